/* model_cpu_path.h - one name for a pair of kernel sets: products and small operations here, attention next door. */
#ifndef QR_MODEL_MODEL_CPU_PATH_H
#define QR_MODEL_MODEL_CPU_PATH_H

#include "attention/attention.h"
#include "runtime/model/cpu/matmul.h"

typedef struct qr_cpu_path {
    const char *name; /* "scalar", "avx2", "avx512" */
    const qr_ops_path *ops;
    const qr_attn_path *attention;
} qr_cpu_path;

/* name NULL: the fastest of this machine. Errors: UNSUPPORTED (an unknown name, or one this machine cannot run). */
QUIRE_MUST_CHECK quire_status qr_cpu_path_find(const char *name, qr_cpu_path *path, quire_error *error);
#endif
