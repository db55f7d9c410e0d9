#include "blockmgr/layout.h"

#include "base/assertion.h"
#include "base/checked.h"

static bool layout_type_known(quire_kv_type type) { return (unsigned)type < QUIRE_KV_TYPE_COUNT; }

/* The 8-bit types need a scale per token and KV head. */
static bool layout_type_scaled(quire_kv_type type) { return type == QUIRE_KV_INT8 || type == QUIRE_KV_FP8_E4M3; }

bool qr_layout_group_valid(const quire_kv_group *group) {
    return group->layer_count && group->kv_head_count && group->key_dim && group->value_dim &&
           layout_type_known(group->key_type) && layout_type_known(group->value_type);
}

/* Bytes of each part for `tokens` tokens of one (layer, head). A product of three 32-bit numbers may wrap: false then. */
static bool layout_part_sizes(const quire_kv_group *group, uint32_t tokens, uint64_t sizes[QR_LAYOUT_PARTS]) {
    uint64_t scales = (uint64_t)tokens * sizeof(float);
    sizes[QUIRE_KV_KEY_SCALES] = layout_type_scaled(group->key_type) ? scales : 0;
    sizes[QUIRE_KV_VALUE_SCALES] = layout_type_scaled(group->value_type) ? scales : 0;
    return qr_mul_u64((uint64_t)group->key_dim * tokens, quire_kv_type_bytes(group->key_type), &sizes[QUIRE_KV_KEYS]) &&
           qr_mul_u64((uint64_t)group->value_dim * tokens, quire_kv_type_bytes(group->value_type), &sizes[QUIRE_KV_VALUES]);
}

/* Sum of the parts, each padded to `alignment`. */
static bool layout_sum(const uint64_t sizes[QR_LAYOUT_PARTS], uint64_t alignment, uint64_t *sum) {
    *sum = 0;
    for (int i = 0; i < QR_LAYOUT_PARTS; i++) {
        uint64_t padded;
        if (!qr_add_u64(sizes[i], alignment - 1, &padded)) return false;
        if (!qr_add_u64(*sum, padded & ~(alignment - 1), sum)) return false;
    }
    return true;
}

/* Bytes of `tokens` tokens over all layers and heads with parts padded to `alignment`; 0 when invalid or too large. */
static uint64_t layout_bytes(const quire_kv_group *group, uint32_t tokens, uint64_t alignment) {
    uint64_t sizes[QR_LAYOUT_PARTS], sum;
    if (tokens == 0 || !qr_layout_group_valid(group)) return 0;
    if (!layout_part_sizes(group, tokens, sizes) || !layout_sum(sizes, alignment, &sum)) return 0;
    if (!qr_mul_u64(sum, (uint64_t)group->layer_count * group->kv_head_count, &sum)) return 0;
    return sum;
}

uint64_t qr_layout_token_bytes(const quire_kv_group *group) { return layout_bytes(group, 1, 1); }

uint64_t qr_layout_block_bytes(const quire_kv_group *group, uint32_t block_tokens) {
    uint64_t bytes = layout_bytes(group, block_tokens, QR_LAYOUT_PART_ALIGNMENT);
    if (!qr_add_u64(bytes, QR_LAYOUT_BLOCK_ALIGNMENT - 1, &bytes)) return 0;
    return bytes & ~(uint64_t)(QR_LAYOUT_BLOCK_ALIGNMENT - 1);
}

static quire_kv_type layout_part_type(const quire_kv_group *group, int part) {
    if (part == QUIRE_KV_KEYS) return group->key_type;
    return part == QUIRE_KV_VALUES ? group->value_type : QUIRE_KV_F32;
}

void qr_layout_init(qr_layout *layout, const quire_kv_group *group, uint32_t block_tokens, qr_arena *arena) {
    uint64_t sizes[QR_LAYOUT_PARTS], offset = 0, heads = (uint64_t)group->layer_count * group->kv_head_count;
    layout->layer_count = group->layer_count;
    layout->kv_head_count = group->kv_head_count;
    layout->block_bytes = qr_layout_block_bytes(group, block_tokens);
    QR_ASSERT(layout->block_bytes > 0 && layout_part_sizes(group, block_tokens, sizes));
    layout->parts = qr_arena_take(arena, heads, QR_LAYOUT_PARTS * sizeof(qr_layout_part));
    if (!layout->parts) return;
    for (uint64_t i = 0; i < heads * QR_LAYOUT_PARTS; i++) {
        int part = (int)(i % QR_LAYOUT_PARTS);
        layout->parts[i] = (qr_layout_part){offset, sizes[part], layout_part_type(group, part)};
        offset += qr_align_up(sizes[part], QR_LAYOUT_PART_ALIGNMENT);
    }
    QR_ASSERT(offset <= layout->block_bytes);
}

const qr_layout_part *qr_layout_find(const qr_layout *layout, uint32_t layer, uint32_t kv_head, quire_kv_part part) {
    if (!layout->parts || layer >= layout->layer_count || kv_head >= layout->kv_head_count) return NULL;
    if ((unsigned)part >= QR_LAYOUT_PARTS) return NULL;
    return &layout->parts[((uint64_t)layer * layout->kv_head_count + kv_head) * QR_LAYOUT_PARTS + part];
}
