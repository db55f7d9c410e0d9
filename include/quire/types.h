/* types.h - the ids and formats that every part of Quire shares. */
#ifndef QUIRE_TYPES_H
#define QUIRE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include <quire/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A token id of the model's vocabulary. */
typedef int32_t quire_token;

/* A physical KV block of one KV group's pool; valid ids are 0 .. block_count-1. */
typedef uint32_t quire_block_id;
#define QUIRE_BLOCK_NONE UINT32_MAX

/* A live sequence. Outlives its object safely: a stale id is refused, never another sequence. */
typedef struct quire_seq_id {
    uint32_t index;
    uint32_t generation; /* 0 is never live */
} quire_seq_id;

/* A cache namespace; 0 is the namespace of the empty key and always exists. */
typedef uint32_t quire_namespace_id;

typedef enum quire_kv_type {
    QUIRE_KV_F32,
    QUIRE_KV_F16,
    QUIRE_KV_BF16,
    QUIRE_KV_INT8,     /* one fp32 scale per (token, KV head) in the block */
    QUIRE_KV_FP8_E4M3, /* as INT8 */
    QUIRE_KV_TYPE_COUNT
} quire_kv_type;

typedef enum quire_kv_policy { QUIRE_KV_DLFU, QUIRE_KV_LRU } quire_kv_policy;

enum {
    QUIRE_KV_GROUPS_MAX = 4,
    QUIRE_TOP_LOGPROBS_MAX = 20,
};

/* "f32", "f16", "bf16", "int8", "fp8_e4m3". parse returns QUIRE_INVALID for any other word. */
QUIRE_API const char *quire_kv_type_name(quire_kv_type type);
QUIRE_API quire_status quire_kv_type_parse(const char *name, quire_kv_type *type);
QUIRE_API size_t quire_kv_type_bytes(quire_kv_type type); /* of one element, scales not counted */

#ifdef __cplusplus
}
#endif
#endif
