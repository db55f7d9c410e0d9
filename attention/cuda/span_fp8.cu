/* The span kernels of KV type fp8: a file of its own, so that compilers work side by side. */
#include "attention/cuda/launch_internal.h"
#include "attention/cuda/span_kernel.cuh"

QR_SPAN_KERNELS(QUIRE_KV_FP8_E4M3, fp8)
