/* ops_avx512.c - the path "avx512vnni": see ops.inc. */
#define OPS_TABLE qr_ops_avx512vnni
#define OPS_NAME "avx512vnni"
#define OPS_QUANTIZE qr_quantize_avx512
#define OPS_MATMUL qr_matmul_avx512
#include "runtime/model/cpu/ops.inc"
