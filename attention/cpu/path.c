/* path.c - which instruction sets this build and this machine offer to attention. */
#include "attention/span.h"
#include "base/cpu_features.h"

static bool path_usable(const qr_attn_path *path, const qr_cpu_features *features) {
#ifdef QR_ATTENTION_X86
    if (path == &qr_attn_path_avx2) return features->avx2;
    if (path == &qr_attn_path_avx512) return features->avx512;
#endif
    return path == &qr_attn_path_scalar;
}

const qr_attn_path *qr_attn_path_find(const char *name, const qr_cpu_features *features) {
    static const qr_attn_path *const paths[] = {
#ifdef QR_ATTENTION_X86
        &qr_attn_path_avx512,
        &qr_attn_path_avx2,
#endif
        &qr_attn_path_scalar,
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(paths[i]->name, name) == 0) return path_usable(paths[i], features) ? paths[i] : NULL;
    return NULL;
}

const char *qr_attn_path_name(const qr_attn_path *path) { return path->name; }
