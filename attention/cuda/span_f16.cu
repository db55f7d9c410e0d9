/* The span kernels of KV type f16: a file of its own, so that compilers work side by side. */
#include "attention/cuda/launch_internal.h"
#include "attention/cuda/span_kernel.cuh"

QR_SPAN_KERNELS(QUIRE_KV_F16, f16)
