/* model_cpu_path.c - which kernels run here. Bits do not depend on the choice, only speed. */
#include "runtime/model/model_cpu_path.h"

#include <string.h>

#include "base/cpu_features.h"
#include "base/error.h"

/* Fastest first. */
static const struct {
    const char *name, *ops, *attention;
} candidates[] = {
    {"avx512", "avx512vnni", "avx512"},
    {"avx2", "avx2", "avx2"},
    {"scalar", "scalar", "scalar"},
};

quire_status qr_cpu_path_find(const char *name, qr_cpu_path *path, quire_error *error) {
    qr_cpu_features features;
    qr_cpu_features_detect(&features);
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (name && strcmp(name, candidates[i].name) != 0) continue;
        path->name = candidates[i].name;
        path->ops = qr_ops_path_find(candidates[i].ops, &features);
        path->attention = qr_attn_path_find(candidates[i].attention, &features);
        if (path->ops && path->attention) return QUIRE_OK;
    }
    memset(path, 0, sizeof *path);
    return qr_fail(error, QUIRE_UNSUPPORTED, "cpu_path", QR_NO_OFFSET, "\"%s\" is unknown or this machine (%s) cannot run it",
                   name ? name : "any", features.model);
}
