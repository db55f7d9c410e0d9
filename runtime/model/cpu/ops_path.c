/* ops_path.c - which path this machine can run. */
#include "runtime/model/cpu/ops_path.h"

#include <string.h>

#include "base/cpu_features.h"

const qr_ops_path *qr_ops_path_find(const char *name, const qr_cpu_features *features) {
    if (strcmp(name, qr_ops_scalar.name) == 0) return &qr_ops_scalar;
#ifdef __x86_64__
    if (strcmp(name, qr_ops_avx2.name) == 0) return features->avx2 ? &qr_ops_avx2 : NULL;
    if (strcmp(name, qr_ops_avx512vnni.name) == 0) return features->avx512_vnni ? &qr_ops_avx512vnni : NULL;
#endif
    return NULL;
}
