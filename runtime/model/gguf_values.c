/* gguf_values.c - typed access to the values of a checked GGUF header.
 *
 * The bytes were proved to be there by gguf_read; what can still be wrong is a value's type or range, which depends on
 * who asks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/model/gguf_internal.h"

/* An integer of any width: magnitude and sign, so that the whole u64 and i64 ranges fit. */
typedef struct integer {
    uint64_t bits; /* two's complement when negative */
    bool negative;
} integer;

static integer from_signed(int64_t value) { return (integer){(uint64_t)value, value < 0}; }

#define LOAD(type, at) \
    type value;        \
    memcpy(&value, (at), sizeof value)

static bool load_integer(gguf_type type, const uint8_t *at, integer *out) {
    switch (type) {
    case GGUF_U8: *out = (integer){*at, false}; return true;
    case GGUF_I8: *out = from_signed((int8_t)*at); return true;
    case GGUF_U16: {
        LOAD(uint16_t, at);
        *out = (integer){value, false};
        return true;
    }
    case GGUF_I16: {
        LOAD(int16_t, at);
        *out = from_signed(value);
        return true;
    }
    case GGUF_U32: {
        LOAD(uint32_t, at);
        *out = (integer){value, false};
        return true;
    }
    case GGUF_I32: {
        LOAD(int32_t, at);
        *out = from_signed(value);
        return true;
    }
    case GGUF_U64: {
        LOAD(uint64_t, at);
        *out = (integer){value, false};
        return true;
    }
    case GGUF_I64: {
        LOAD(int64_t, at);
        *out = from_signed(value);
        return true;
    }
    default: return false;
    }
}

static bool load_float(gguf_type type, const uint8_t *at, double *out) {
    if (type == GGUF_F32) {
        LOAD(float, at);
        *out = (double)value;
        return true;
    }
    if (type == GGUF_F64) {
        LOAD(double, at);
        *out = value;
        return true;
    }
    return false;
}

static quire_status bad_value(const qr_gguf *gguf, const gguf_key *key, const char *what, quire_error *error) {
    return qr_fail(error, QUIRE_FORMAT, gguf->path, (uint64_t)(key->data - gguf->data), "%.*s: %s",
                   key->name.size < 80 ? (int)key->name.size : 80, key->name.data, what);
}

/* The key as a scalar, or NOT_FOUND without text. */
static quire_status find_scalar(const qr_gguf *gguf, const char *name, const gguf_key **key, quire_error *error) {
    *key = gguf_find_key(gguf, name);
    if (!*key) return QUIRE_NOT_FOUND;
    return (*key)->is_array ? bad_value(gguf, *key, "it must not be an array", error) : QUIRE_OK;
}

quire_status qr_gguf_get_u64(const qr_gguf *gguf, const char *name, uint64_t *value, quire_error *error) {
    const gguf_key *key;
    integer number;
    *value = 0;
    quire_status status = find_scalar(gguf, name, &key, error);
    if (status) return status;
    if (!load_integer(key->type, key->data, &number)) return bad_value(gguf, key, "it must be an integer", error);
    if (number.negative) return bad_value(gguf, key, "it must not be negative", error);
    *value = number.bits;
    return QUIRE_OK;
}

quire_status qr_gguf_get_f64(const qr_gguf *gguf, const char *name, double *value, quire_error *error) {
    const gguf_key *key;
    *value = 0;
    quire_status status = find_scalar(gguf, name, &key, error);
    if (status) return status;
    double number;
    if (!load_float(key->type, key->data, &number)) return bad_value(gguf, key, "it must be a float", error);
    if (!isfinite(number)) return bad_value(gguf, key, "it must be finite", error);
    *value = number;
    return QUIRE_OK;
}

quire_status qr_gguf_get_bool(const qr_gguf *gguf, const char *name, bool *value, quire_error *error) {
    const gguf_key *key;
    *value = false;
    quire_status status = find_scalar(gguf, name, &key, error);
    if (status) return status;
    if (key->type != GGUF_BOOL) return bad_value(gguf, key, "it must be a bool", error);
    *value = *key->data;
    return QUIRE_OK;
}

/* Reads the string at *at, which moves behind it. */
static qr_text next_text(const uint8_t **at) {
    uint64_t size;
    memcpy(&size, *at, sizeof size);
    qr_text text = {(const char *)*at + sizeof size, (size_t)size};
    *at += sizeof size + size;
    return text;
}

quire_status qr_gguf_get_text(const qr_gguf *gguf, const char *name, qr_text *value, quire_error *error) {
    const gguf_key *key;
    *value = (qr_text){NULL, 0};
    quire_status status = find_scalar(gguf, name, &key, error);
    if (status) return status;
    if (key->type != GGUF_STRING) return bad_value(gguf, key, "it must be a string", error);
    const uint8_t *at = key->data;
    *value = next_text(&at);
    return QUIRE_OK;
}

static quire_status find_array(const qr_gguf *gguf, const char *name, const gguf_key **key, quire_error *error) {
    *key = gguf_find_key(gguf, name);
    if (!*key) return QUIRE_NOT_FOUND;
    return (*key)->is_array ? QUIRE_OK : bad_value(gguf, *key, "it must be an array", error);
}

static quire_status no_memory(const qr_gguf *gguf, const char *name, quire_error *error) {
    return qr_fail(error, QUIRE_NO_MEMORY, gguf->path, QR_NO_OFFSET, "%s: no memory for its elements", name);
}

bool qr_gguf_is_array(const qr_gguf *gguf, const char *name) {
    const gguf_key *key = gguf_find_key(gguf, name);
    return key && key->is_array;
}

quire_status qr_gguf_get_texts(const qr_gguf *gguf, const char *name, qr_text **values, uint64_t *count, quire_error *error) {
    const gguf_key *key;
    *values = NULL;
    *count = 0;
    quire_status status = find_array(gguf, name, &key, error);
    if (status) return status;
    if (key->type != GGUF_STRING) return bad_value(gguf, key, "its elements must be strings", error);
    qr_text *texts = calloc(key->count ? key->count : 1, sizeof *texts);
    if (!texts) return no_memory(gguf, name, error);
    const uint8_t *at = key->data;
    for (uint64_t i = 0; i < key->count; i++) texts[i] = next_text(&at);
    *values = texts;
    *count = key->count;
    return QUIRE_OK;
}

static bool fits_i32(integer number) { return number.negative ? (int64_t)number.bits >= INT32_MIN : number.bits <= INT32_MAX; }

quire_status qr_gguf_get_i32s(const qr_gguf *gguf, const char *name, int32_t **values, uint64_t *count, quire_error *error) {
    const gguf_key *key;
    integer number;
    *values = NULL;
    *count = 0;
    quire_status status = find_array(gguf, name, &key, error);
    if (status) return status;
    int32_t *numbers = calloc(key->count ? key->count : 1, sizeof *numbers);
    if (!numbers) return no_memory(gguf, name, error);
    for (uint64_t i = 0; !status && i < key->count; i++) {
        if (!load_integer(key->type, key->data + i * gguf_type_bytes(key->type), &number))
            status = bad_value(gguf, key, "its elements must be integers", error);
        else if (!fits_i32(number)) status = bad_value(gguf, key, "an element does not fit 32 bits", error);
        else numbers[i] = (int32_t)(int64_t)number.bits;
    }
    if (status) {
        free(numbers);
        return status;
    }
    *values = numbers;
    *count = key->count;
    return QUIRE_OK;
}
