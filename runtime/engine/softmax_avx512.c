/* The softmax path for AVX-512; flags in CMakeLists.txt. */
#include "runtime/engine/softmax_kernel.h"

const qr_softmax_path qr_softmax_path_avx512 = {"avx512", block_sums, max_logit};
