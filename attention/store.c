/* store.c - a token's K and V into its block: K transposed, V as it is. */
#include "attention/span.h"
#include "base/assertion.h"

/* Element d of the key to slot `slot` of row d. */
static void scatter(uint8_t *to, size_t stride, const uint8_t *from, uint32_t count, size_t size) {
    for (uint32_t d = 0; d < count; d++) memcpy(to + d * stride, from + d * size, size);
}

void qr_attn_store(const qr_attn_path *path, const qr_attn_shape *shape, const qr_attn_memory *memory, uint32_t layer,
                   quire_block_id block, uint32_t slot, const float *key, const float *value, uint64_t *saturated) {
    _Alignas(64) uint8_t narrow[QR_ATTN_HEAD_DIM_MAX * sizeof(float)];
    size_t key_size = quire_kv_type_bytes(shape->key_type), value_size = quire_kv_type_bytes(shape->value_type);
    uint8_t *base = memory->base + block * memory->block_stride;
    QR_ASSERT(slot < shape->block_tokens);
    for (uint32_t h = 0; h < shape->kv_head_count; h++) {
        size_t part = (size_t)layer * shape->kv_head_count + h;
        uint8_t *to_key = base + memory->key_offset[part] + slot * key_size;
        uint8_t *to_value = base + memory->value_offset[part] + slot * shape->value_dim * value_size;
        *saturated += path->narrow(narrow, key + h * shape->key_dim, shape->key_dim, shape->key_type);
        if (key_size == 2) scatter(to_key, shape->block_tokens * 2u, narrow, shape->key_dim, 2);
        else scatter(to_key, shape->block_tokens * 4u, narrow, shape->key_dim, 4);
        *saturated += path->narrow(to_value, value + h * shape->value_dim, shape->value_dim, shape->value_type);
    }
}
