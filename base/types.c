/* types.c - the words for KV element types. */
#include <string.h>

#include <quire/types.h>

typedef struct kv_type_row {
    const char *name;
    size_t bytes;
} kv_type_row;

static const kv_type_row kv_types[] = {
    [QUIRE_KV_F32] = {"f32", 4},   [QUIRE_KV_F16] = {"f16", 2},           [QUIRE_KV_BF16] = {"bf16", 2},
    [QUIRE_KV_INT8] = {"int8", 1}, [QUIRE_KV_FP8_E4M3] = {"fp8_e4m3", 1},
};
_Static_assert(sizeof kv_types / sizeof *kv_types == QUIRE_KV_TYPE_COUNT, "one row per KV type");

const char *quire_kv_type_name(quire_kv_type type) {
    return (unsigned)type < QUIRE_KV_TYPE_COUNT ? kv_types[type].name : "unknown";
}

quire_status quire_kv_type_parse(const char *name, quire_kv_type *type) {
    for (int i = 0; name && i < QUIRE_KV_TYPE_COUNT; i++) {
        if (strcmp(name, kv_types[i].name) != 0) continue;
        *type = (quire_kv_type)i;
        return QUIRE_OK;
    }
    *type = (quire_kv_type)0;
    return QUIRE_INVALID;
}

size_t quire_kv_type_bytes(quire_kv_type type) { return (unsigned)type < QUIRE_KV_TYPE_COUNT ? kv_types[type].bytes : 0; }
