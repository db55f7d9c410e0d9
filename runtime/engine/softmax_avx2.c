/* The softmax path for AVX2 and FMA; flags in CMakeLists.txt. */
#include "runtime/engine/softmax_kernel.h"

const qr_softmax_path qr_softmax_path_avx2 = {"avx2", block_sums, max_logit};
