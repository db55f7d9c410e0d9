/* gguf_read.c - the checks that make a GGUF header trustworthy (R37).
 *
 * One pass with a cursor that cannot leave the file: every length is compared with the bytes that remain before it is
 * used or memory is taken for it, so time and memory are linear in the file. The layout is that of ggml-org/ggml
 * docs/gguf.md, versions 2 and 3, little endian:
 *
 *     magic, version, tensor count, key count | keys and values | tensor infos | pad | tensor data, each padded
 */
#include "runtime/model/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

typedef struct cursor {
    const qr_gguf *gguf;
    uint64_t at;
    quire_error *error;
} cursor;

enum {
    GGUF_KEY_BYTES_LEAST = 8 + 1 + 4 + 1,        /* length, one character, type, one value byte */
    GGUF_TENSOR_BYTES_LEAST = 8 + 4 + 8 + 4 + 8, /* empty name, dimension count, one dimension, type, offset */
};

static quire_status malformed(const cursor *c, uint64_t offset, const char *field, const char *what) {
    return qr_fail(c->error, QUIRE_FORMAT, c->gguf->path, offset, "%s: %s", field, what);
}

static quire_status malformed_at(const cursor *c, uint64_t offset, qr_text name, const char *what) {
    int shown = name.size < 80 ? (int)name.size : 80;
    return qr_fail(c->error, QUIRE_FORMAT, c->gguf->path, offset, "%.*s: %s", shown, name.data, what);
}

static uint64_t remaining(const cursor *c) { return c->gguf->size - c->at; }

/* The next bytes, or NULL after noting a FORMAT error. */
static const uint8_t *take(cursor *c, uint64_t bytes, const char *field) {
    if (bytes > remaining(c)) {
        (void)malformed(c, c->at, field, "the file ends inside it");
        return NULL;
    }
    const uint8_t *data = c->gguf->data + c->at;
    c->at += bytes;
    return data;
}

static quire_status take_u32(cursor *c, const char *field, uint32_t *value) {
    const uint8_t *data = take(c, sizeof *value, field);
    if (!data) return QUIRE_FORMAT;
    memcpy(value, data, sizeof *value);
    return QUIRE_OK;
}

static quire_status take_u64(cursor *c, const char *field, uint64_t *value) {
    const uint8_t *data = take(c, sizeof *value, field);
    if (!data) return QUIRE_FORMAT;
    memcpy(value, data, sizeof *value);
    return QUIRE_OK;
}

static quire_status take_text(cursor *c, const char *field, uint64_t limit, qr_text *text) {
    uint64_t begin = c->at, size;
    quire_status status = take_u64(c, field, &size);
    if (status) return status;
    if (size > limit) return malformed(c, begin, field, "its length is beyond the format's limit");
    const uint8_t *data = take(c, size, field);
    if (!data) return QUIRE_FORMAT;
    *text = (qr_text){(const char *)data, (size_t)size};
    return QUIRE_OK;
}

size_t gguf_type_bytes(gguf_type type) {
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return bytes[type];
}

int gguf_compare_names(qr_text a, qr_text b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* ---- keys and values ---- */

static quire_status skip_strings(cursor *c, const gguf_key *key) {
    for (uint64_t i = 0; i < key->count; i++) {
        uint64_t begin = c->at, size;
        if (remaining(c) < sizeof size) return malformed_at(c, begin, key->name, "the file ends inside a string");
        memcpy(&size, c->gguf->data + begin, sizeof size);
        c->at += sizeof size;
        if (size > remaining(c)) return malformed_at(c, begin, key->name, "a string is longer than the file");
        c->at += size;
    }
    return QUIRE_OK;
}

static quire_status skip_values(cursor *c, const gguf_key *key) {
    if (key->type == GGUF_STRING) return skip_strings(c, key);
    uint64_t bytes;
    if (!qr_mul_u64(key->count, gguf_type_bytes(key->type), &bytes) || bytes > remaining(c))
        return malformed_at(c, c->at, key->name, "the file ends inside its value");
    for (uint64_t i = 0; key->type == GGUF_BOOL && i < bytes; i++)
        if (key->data[i] > 1) return malformed_at(c, c->at + i, key->name, "a bool is neither 0 nor 1");
    c->at += bytes;
    return QUIRE_OK;
}

static quire_status read_key(cursor *c, gguf_key *key) {
    uint64_t begin = c->at;
    uint32_t type;
    quire_status status = take_text(c, "key", GGUF_KEY_BYTES_MAX, &key->name);
    if (status) return status;
    if (!key->name.size) return malformed(c, begin, "key", "its name is empty");
    if ((status = take_u32(c, "value type", &type))) return status;
    key->count = 1;
    if (type == GGUF_ARRAY) {
        key->is_array = true;
        if ((status = take_u32(c, "array type", &type)) || (status = take_u64(c, "array length", &key->count))) return status;
        if (type == GGUF_ARRAY)
            return qr_fail(c->error, QUIRE_UNSUPPORTED, c->gguf->path, c->at, "%.*s: arrays of arrays are not supported",
                           key->name.size < 80 ? (int)key->name.size : 80, key->name.data);
    }
    if (type >= GGUF_TYPE_COUNT) return malformed_at(c, begin, key->name, "its value type is unknown");
    key->type = (gguf_type)type;
    key->data = c->gguf->data + c->at;
    return skip_values(c, key);
}

static int order_keys(const void *a, const void *b) {
    return gguf_compare_names(((const gguf_key *)a)->name, ((const gguf_key *)b)->name);
}

static quire_status read_keys(cursor *c, qr_gguf *gguf, uint64_t count) {
    gguf->keys = calloc(count ? count : 1, sizeof *gguf->keys);
    if (!gguf->keys) return QUIRE_NO_MEMORY;
    for (; gguf->key_count < count; gguf->key_count++) {
        quire_status status = read_key(c, &gguf->keys[gguf->key_count]);
        if (status) return status;
    }
    qsort(gguf->keys, count, sizeof *gguf->keys, order_keys);
    for (uint64_t i = 1; i < count; i++)
        if (!order_keys(&gguf->keys[i - 1], &gguf->keys[i]))
            return malformed_at(c, (uint64_t)(gguf->keys[i].data - gguf->data), gguf->keys[i].name, "the key is there twice");
    return QUIRE_OK;
}

static quire_status read_alignment(cursor *c, qr_gguf *gguf) {
    const gguf_key *key = gguf_find_key(gguf, "general.alignment");
    gguf->alignment = GGUF_ALIGNMENT_DEFAULT;
    if (!key) return QUIRE_OK;
    uint64_t offset = (uint64_t)(key->data - gguf->data);
    if (key->is_array || key->type != GGUF_U32) return malformed(c, offset, "general.alignment", "it must be a uint32");
    memcpy(&gguf->alignment, key->data, sizeof gguf->alignment);
    if (gguf->alignment < 8 || gguf->alignment > GGUF_ALIGNMENT_MAX || (gguf->alignment & (gguf->alignment - 1)))
        return malformed(c, offset, "general.alignment", "it must be a power of two from 8 to 65536");
    return QUIRE_OK;
}

/* ---- tensors ---- */

/* ggml's numbering. A name without a weight type is a format that exists and that we have no kernels for. */
typedef struct tensor_format {
    const char *name;
    int weight_type; /* -1: none */
} tensor_format;

static const tensor_format tensor_formats[] = {
    [0] = {"F32", QR_WEIGHT_F32},
    [1] = {"F16", QR_WEIGHT_F16},
    [2] = {"Q4_0", QR_WEIGHT_Q4_0},
    [3] = {"Q4_1", QR_WEIGHT_Q4_1},
    [6] = {"Q5_0", QR_WEIGHT_Q5_0},
    [7] = {"Q5_1", QR_WEIGHT_Q5_1},
    [8] = {"Q8_0", QR_WEIGHT_Q8_0},
    [9] = {"Q8_1", -1},
    [10] = {"Q2_K", -1},
    [11] = {"Q3_K", -1},
    [12] = {"Q4_K", QR_WEIGHT_Q4_K},
    [13] = {"Q5_K", QR_WEIGHT_Q5_K},
    [14] = {"Q6_K", QR_WEIGHT_Q6_K},
    [15] = {"Q8_K", -1},
    [16] = {"IQ2_XXS", -1},
    [17] = {"IQ2_XS", -1},
    [18] = {"IQ3_XXS", -1},
    [19] = {"IQ1_S", -1},
    [20] = {"IQ4_NL", -1},
    [21] = {"IQ3_S", -1},
    [22] = {"IQ2_S", -1},
    [23] = {"IQ4_XS", -1},
    [24] = {"I8", -1},
    [25] = {"I16", -1},
    [26] = {"I32", -1},
    [27] = {"I64", -1},
    [28] = {"F64", -1},
    [29] = {"IQ1_M", -1},
    [30] = {"BF16", QR_WEIGHT_BF16},
    [34] = {"TQ1_0", -1},
    [35] = {"TQ2_0", -1},
    [39] = {"MXFP4", -1},
};

static quire_status read_tensor_type(cursor *c, qr_gguf_tensor *t) {
    uint64_t begin = c->at;
    uint32_t id;
    quire_status status = take_u32(c, "tensor type", &id);
    if (status) return status;
    const tensor_format *format = id < sizeof tensor_formats / sizeof *tensor_formats ? &tensor_formats[id] : NULL;
    if (!format || !format->name) return malformed_at(c, begin, t->name, "its tensor type is unknown");
    if (format->weight_type < 0)
        return qr_fail(c->error, QUIRE_UNSUPPORTED, c->gguf->path, begin, "%.*s: tensors of type %s are not supported",
                       (int)t->name.size, t->name.data, format->name);
    t->type = (qr_weight_type)format->weight_type;
    return QUIRE_OK;
}

static quire_status read_dims(cursor *c, qr_gguf_tensor *t) {
    uint64_t begin = c->at;
    quire_status status = take_u32(c, "dimension count", &t->dim_count);
    if (status) return status;
    if (t->dim_count < 1 || t->dim_count > QR_GGUF_DIMS_MAX)
        return malformed_at(c, begin, t->name, "it must have 1 to 4 dimensions");
    t->element_count = 1;
    for (uint32_t i = 0; i < QR_GGUF_DIMS_MAX; i++) t->dims[i] = 1;
    for (uint32_t i = 0; i < t->dim_count; i++) {
        begin = c->at;
        if ((status = take_u64(c, "dimension", &t->dims[i]))) return status;
        if (!t->dims[i]) return malformed_at(c, begin, t->name, "a dimension is zero");
        if (!qr_mul_u64(t->element_count, t->dims[i], &t->element_count) || t->element_count > INT64_MAX)
            return malformed_at(c, begin, t->name, "its dimensions overflow");
    }
    return QUIRE_OK;
}

/* The offset becomes `data` once the place of the tensor data is known. */
static quire_status read_tensor(cursor *c, qr_gguf_tensor *t, uint64_t *offset) {
    uint64_t begin = c->at;
    quire_status status = take_text(c, "tensor name", GGUF_TENSOR_NAME_MAX, &t->name);
    if (status) return status;
    if (!t->name.size) return malformed(c, begin, "tensor name", "it is empty");
    if ((status = read_dims(c, t)) || (status = read_tensor_type(c, t))) return status;
    uint64_t block = qr_weight_block_elements(t->type);
    if (t->dims[0] % block) return malformed_at(c, begin, t->name, "its rows are not whole blocks of its type");
    if (!qr_mul_u64(t->element_count / block, qr_weight_block_bytes(t->type), &t->size_bytes))
        return malformed_at(c, begin, t->name, "its size overflows");
    begin = c->at;
    if ((status = take_u64(c, "tensor offset", offset))) return status;
    if (*offset % c->gguf->alignment) return malformed_at(c, begin, t->name, "its offset is not aligned");
    return QUIRE_OK;
}

/* Sorting needs the tensors; qsort passes no context, so a sorted entry brings its tensor along. */
typedef struct tensor_entry {
    const qr_gguf_tensor *tensor;
    uint64_t offset;
} tensor_entry;

static int order_entries_by_name(const void *a, const void *b) {
    return gguf_compare_names(((const tensor_entry *)a)->tensor->name, ((const tensor_entry *)b)->tensor->name);
}

static int order_entries_by_offset(const void *a, const void *b) {
    uint64_t x = ((const tensor_entry *)a)->offset, y = ((const tensor_entry *)b)->offset;
    return (x > y) - (x < y);
}

/* Every tensor lies, with its padding, inside the file, and none overlaps the next. */
static quire_status check_places(const cursor *c, tensor_entry *entries, uint64_t count) {
    uint64_t data_bytes = c->gguf->size - c->gguf->data_begin, alignment = c->gguf->alignment, end = 0;
    qsort(entries, count, sizeof *entries, order_entries_by_offset);
    for (uint64_t i = 0; i < count; i++) {
        const qr_gguf_tensor *t = entries[i].tensor;
        uint64_t offset = entries[i].offset, padded;
        if (offset < end) return malformed_at(c, c->gguf->data_begin + offset, t->name, "it overlaps another tensor");
        if (!qr_add_u64(t->size_bytes, alignment - 1, &padded)) padded = UINT64_MAX;
        padded = padded / alignment * alignment;
        if (offset > data_bytes || padded > data_bytes - offset)
            return malformed_at(c, c->gguf->size, t->name, "the file ends before or inside its data");
        end = offset + padded;
    }
    return QUIRE_OK;
}

static quire_status index_names(const cursor *c, qr_gguf *gguf, tensor_entry *entries) {
    qsort(entries, gguf->tensor_count, sizeof *entries, order_entries_by_name);
    for (uint64_t i = 0; i < gguf->tensor_count; i++) {
        const qr_text name = entries[i].tensor->name;
        if (i && !order_entries_by_name(&entries[i - 1], &entries[i]))
            return malformed_at(c, (uint64_t)((const uint8_t *)name.data - gguf->data), name, "the tensor is there twice");
        gguf->tensors_by_name[i] = (uint32_t)(entries[i].tensor - gguf->tensors);
    }
    return QUIRE_OK;
}

static quire_status read_tensors(cursor *c, qr_gguf *gguf, tensor_entry *entries, uint64_t count) {
    quire_status status;
    for (; gguf->tensor_count < count; gguf->tensor_count++) {
        tensor_entry *entry = &entries[gguf->tensor_count];
        entry->tensor = &gguf->tensors[gguf->tensor_count];
        if ((status = read_tensor(c, &gguf->tensors[gguf->tensor_count], &entry->offset))) return status;
    }
    /* The file may end with its header when there is no tensor. */
    gguf->data_begin = qr_align_up(c->at, gguf->alignment);
    if (gguf->data_begin > gguf->size) {
        if (count) return malformed(c, gguf->size, "tensor data", "the file ends before it");
        gguf->data_begin = gguf->size;
    }
    if ((status = check_places(c, entries, count))) return status;
    for (uint64_t i = 0; i < count; i++)
        gguf->tensors[entries[i].tensor - gguf->tensors].data = gguf->data + gguf->data_begin + entries[i].offset;
    return index_names(c, gguf, entries);
}

static quire_status read_tensor_table(cursor *c, qr_gguf *gguf, uint64_t count) {
    size_t slots = count ? (size_t)count : 1;
    tensor_entry *entries = calloc(slots, sizeof *entries);
    gguf->tensors = calloc(slots, sizeof *gguf->tensors);
    gguf->tensors_by_name = calloc(slots, sizeof *gguf->tensors_by_name);
    quire_status status = QUIRE_NO_MEMORY;
    if (entries && gguf->tensors && gguf->tensors_by_name) status = read_tensors(c, gguf, entries, count);
    free(entries);
    return status;
}

/* ---- the whole header ---- */

static quire_status read_version(cursor *c) {
    const uint8_t *magic = take(c, 4, "magic");
    if (!magic) return QUIRE_FORMAT;
    if (memcmp(magic, "GGUF", 4) != 0) return malformed(c, 0, "magic", "this is not a GGUF file");
    uint32_t version;
    quire_status status = take_u32(c, "version", &version);
    if (status) return status;
    if (version == 2 || version == 3) return QUIRE_OK;
    if (version && !(version & 0xffffu))
        return qr_fail(c->error, QUIRE_UNSUPPORTED, c->gguf->path, 4, "version: big-endian files are not supported");
    return qr_fail(c->error, QUIRE_UNSUPPORTED, c->gguf->path, 4, "version: %u is not supported (2 and 3 are)", version);
}

/* A count that the remaining bytes could not hold is refused before memory is taken for it. */
static quire_status take_count(cursor *c, const char *field, uint64_t least_bytes, uint64_t *count) {
    uint64_t begin = c->at;
    quire_status status = take_u64(c, field, count);
    if (status) return status;
    if (*count > remaining(c) / least_bytes) return malformed(c, begin, field, "the file is too short for so many");
    if (*count > GGUF_ENTRIES_MAX) return malformed(c, begin, field, "too many");
    return QUIRE_OK;
}

quire_status gguf_read(qr_gguf *gguf, quire_error *error) {
    cursor c = {gguf, 0, error};
    uint64_t tensor_count, key_count;
    quire_status status = read_version(&c);
    if (!status) status = take_count(&c, "tensor count", GGUF_TENSOR_BYTES_LEAST, &tensor_count);
    if (!status) status = take_count(&c, "key count", GGUF_KEY_BYTES_LEAST, &key_count);
    if (!status) status = read_keys(&c, gguf, key_count);
    if (!status) status = read_alignment(&c, gguf);
    if (!status) status = read_tensor_table(&c, gguf, tensor_count);
    if (status == QUIRE_NO_MEMORY) return qr_fail(error, status, gguf->path, QR_NO_OFFSET, "no memory for the file's header");
    return status;
}
