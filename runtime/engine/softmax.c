/* The portable path, and the choice among all. */
#include "runtime/engine/softmax.h"

#include <string.h>

#include "base/cpu_features.h"
#include "runtime/engine/softmax_kernel.h"

static const qr_softmax_path softmax_path_scalar = {"scalar", block_sums, max_logit};

const qr_softmax_path *qr_softmax_find(const char *name, const qr_cpu_features *features) {
    if (strcmp(name, "scalar") == 0) return &softmax_path_scalar;
#ifdef QR_ENGINE_X86
    if (strcmp(name, "avx2") == 0 && features->avx2) return &qr_softmax_path_avx2;
    if (strcmp(name, "avx512") == 0 && features->avx512) return &qr_softmax_path_avx512;
#endif
    (void)features;
    return NULL;
}

const qr_softmax_path *qr_softmax_best(const qr_cpu_features *features) {
    const qr_softmax_path *path = qr_softmax_find("avx512", features);
    if (!path) path = qr_softmax_find("avx2", features);
    return path ? path : &softmax_path_scalar;
}
