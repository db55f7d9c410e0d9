/* ops_avx2.c - the path "avx2": see ops.inc. */
#define OPS_TABLE qr_ops_avx2
#define OPS_NAME "avx2"
#define OPS_QUANTIZE qr_quantize_avx2
#define OPS_MATMUL qr_matmul_avx2
#include "runtime/model/cpu/ops.inc"
