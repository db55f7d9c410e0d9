/* ops_scalar.c - the path "scalar": see ops.inc. */
#define OPS_TABLE qr_ops_scalar
#define OPS_NAME "scalar"
#define OPS_QUANTIZE qr_quantize_scalar
#define OPS_MATMUL qr_matmul_scalar
#include "runtime/model/cpu/ops.inc"
