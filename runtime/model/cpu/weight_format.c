/* weight_format.c - see weight_format.h. Bytes are read one by one or by memcpy: GGUF rows need no alignment. */
#include "runtime/model/cpu/weight_format.h"

#include <math.h>
#include <string.h>

#include "base/assertion.h"
#include "base/float16.h"

typedef struct format_facts {
    const char *name;
    uint16_t elements, bytes; /* of one block */
} format_facts;

static const format_facts FACTS[QR_WEIGHT_TYPE_COUNT] = {
    [QR_WEIGHT_F32] = {"F32", 1, 4},       [QR_WEIGHT_F16] = {"F16", 1, 2},       [QR_WEIGHT_BF16] = {"BF16", 1, 2},
    [QR_WEIGHT_Q8_0] = {"Q8_0", 32, 34},   [QR_WEIGHT_Q4_0] = {"Q4_0", 32, 18},   [QR_WEIGHT_Q4_1] = {"Q4_1", 32, 20},
    [QR_WEIGHT_Q5_0] = {"Q5_0", 32, 22},   [QR_WEIGHT_Q5_1] = {"Q5_1", 32, 24},   [QR_WEIGHT_Q4_K] = {"Q4_K", 256, 144},
    [QR_WEIGHT_Q5_K] = {"Q5_K", 256, 176}, [QR_WEIGHT_Q6_K] = {"Q6_K", 256, 210},
};

static const format_facts *facts_of(qr_weight_type type) {
    QR_ASSERT((unsigned)type < QR_WEIGHT_TYPE_COUNT);
    return &FACTS[type];
}

const char *qr_weight_type_name(qr_weight_type type) { return facts_of(type)->name; }
uint32_t qr_weight_block_elements(qr_weight_type type) { return facts_of(type)->elements; }
uint32_t qr_weight_block_bytes(qr_weight_type type) { return facts_of(type)->bytes; }
bool qr_weight_is_float(qr_weight_type type) { return facts_of(type)->elements == 1; }
uint32_t qr_weight_float_bytes(qr_weight_type type) { return facts_of(type)->bytes; }

static uint16_t read_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

/* ---- blocks of 32: [d][m?][32 high bits?][16 bytes of nibbles], or [d][32 int8] ---- */

/* Byte j holds element j in its low nibble and element j + 16 in its high one. */
static void read_nibbles(const uint8_t *qs, uint8_t *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = qs[j] & 15;
        code[j + 16] = qs[j] >> 4;
    }
}

static void read_fifth_bits(const uint8_t *qh, uint8_t *code) {
    for (int j = 0; j < QR_GROUP; j++) code[j] |= (uint8_t)((qh[j / 8] >> (j % 8) & 1) << 4);
}

static void read_small_block(qr_weight_type type, const uint8_t *p, qr_weight_group *out) {
    out->d = read_u16(p);
    p += 2;
    if (type == QR_WEIGHT_Q8_0) {
        memcpy(out->code, p, QR_GROUP);
        return;
    }
    if (qr_weight_has_minimum(type)) {
        out->m = read_u16(p);
        p += 2;
    }
    bool five = qr_weight_code_bits(type) == 5;
    read_nibbles(five ? p + 4 : p, out->code);
    if (five) read_fifth_bits(p, out->code);
}

/* ---- blocks of 256 ---- */

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes: the first four of each in the low six bits of bytes 0-3 and 4-7;
 * the others in the nibbles of bytes 8-11 with their top two bits over the first four. */
static void read_sub_scales(const uint8_t *s, uint32_t group, uint8_t sub[2]) {
    if (group < 4) {
        sub[0] = s[group] & 63;
        sub[1] = s[group + 4] & 63;
        return;
    }
    sub[0] = (uint8_t)((s[group + 4] & 15) | s[group - 4] >> 6 << 4);
    sub[1] = (uint8_t)(s[group + 4] >> 4 | s[group] >> 6 << 4);
}

/* [d][dmin][12 scale bytes][32 bytes of fifth bits, Q5_K][128 bytes of nibbles]: groups 2i and 2i+1 share 32 bytes. */
static void read_q45_k(qr_weight_type type, const uint8_t *p, uint32_t group, qr_weight_group *out) {
    bool five = type == QR_WEIGHT_Q5_K;
    const uint8_t *high = p + 16, *qs = (five ? high + 32 : high) + group / 2 * 32;
    out->d = read_u16(p);
    out->m = read_u16(p + 2);
    read_sub_scales(p + 4, group, out->sub);
    for (int k = 0; k < QR_GROUP; k++) {
        out->code[k] = group % 2 ? qs[k] >> 4 : qs[k] & 15;
        if (five) out->code[k] |= (uint8_t)((high[k] >> group & 1) << 4);
    }
}

/* [128 bytes of nibbles][64 bytes of bit pairs][16 int8 scales][d]: four groups share 64 and 32 bytes. */
static void read_q6_k(const uint8_t *p, uint32_t group, qr_weight_group *out) {
    uint32_t quarter = group % 4;
    const uint8_t *low = p + group / 4 * 64 + quarter % 2 * 32, *high = p + 128 + group / 4 * 32;
    for (int k = 0; k < QR_GROUP; k++) {
        int nibble = quarter / 2 ? low[k] >> 4 : low[k] & 15;
        out->code[k] = (uint8_t)(nibble | (high[k] >> 2 * quarter & 3) << 4);
    }
    memcpy(out->sub, p + 192 + 2 * group, 2);
    out->d = read_u16(p + 208);
}

void qr_weight_read_group(qr_weight_type type, const uint8_t *row, uint32_t group, qr_weight_group *out) {
    *out = (qr_weight_group){0};
    if (!qr_weight_is_k(type)) {
        read_small_block(type, row + (size_t)group * qr_weight_block_bytes(type), out);
        return;
    }
    const uint8_t *block = row + (size_t)(group / QR_SUPER_GROUPS) * qr_weight_block_bytes(type);
    if (type == QR_WEIGHT_Q6_K) read_q6_k(block, group % QR_SUPER_GROUPS, out);
    else read_q45_k(type, block, group % QR_SUPER_GROUPS, out);
}

/* ---- values ---- */

int qr_weight_integer(qr_weight_type type, const qr_weight_group *group, int k) {
    if (type == QR_WEIGHT_Q8_0) return (int8_t)group->code[k];
    return group->code[k] - qr_weight_zero_code(type);
}

float qr_weight_scale(qr_weight_type type, const qr_weight_group *group, int half) {
    float d = qr_f16_to_f32(group->d);
    if (type == QR_WEIGHT_Q6_K) return d * (float)(int8_t)group->sub[half];
    return qr_weight_is_k(type) ? d * (float)group->sub[0] : d;
}

float qr_weight_minimum(qr_weight_type type, const qr_weight_group *group) {
    if (!qr_weight_has_minimum(type)) return 0.0f;
    float m = qr_f16_to_f32(group->m);
    return qr_weight_is_k(type) ? -(m * (float)group->sub[1]) : m;
}

void qr_weight_group_values(qr_weight_type type, const qr_weight_group *group, float *out) {
    float minimum = qr_weight_minimum(type, group);
    for (int k = 0; k < QR_GROUP; k++) {
        float product = qr_weight_scale(type, group, k / (QR_GROUP / 2)) * (float)qr_weight_integer(type, group, k);
        out[k] = qr_weight_has_minimum(type) ? product + minimum : product; /* the product is exact */
    }
}

float qr_weight_read_float(qr_weight_type type, const uint8_t *row, size_t index) {
    if (type != QR_WEIGHT_F32) {
        uint16_t bits = read_u16(row + 2 * index);
        return type == QR_WEIGHT_F16 ? qr_f16_to_f32(bits) : qr_bf16_to_f32(bits);
    }
    float x;
    memcpy(&x, row + 4 * index, sizeof x);
    return x;
}

void qr_weight_dequantize(qr_weight_type type, const void *source, size_t count, float *out) {
    QR_ASSERT(count % qr_weight_block_elements(type) == 0);
    if (qr_weight_is_float(type)) {
        for (size_t i = 0; i < count; i++) out[i] = qr_weight_read_float(type, source, i);
        return;
    }
    size_t block = qr_weight_block_elements(type), bytes = qr_weight_block_bytes(type);
    for (size_t i = 0; i < count; i += QR_GROUP) {
        qr_weight_group group;
        qr_weight_read_group(type, (const uint8_t *)source + i / block * bytes, (uint32_t)(i % block / QR_GROUP), &group);
        qr_weight_group_values(type, &group, out + i);
    }
}
