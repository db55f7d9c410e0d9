/* json_in.c - see json_in.h. */
#include "runtime/server/json_in.h"

#include <math.h>
#include <string.h>

/* Depth and number of values, before any memory is spent on them. Not a validator: the parser judges the rest. */
static bool json_within_limits(const char *data, size_t size, qr_http_error *error) {
    size_t depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = data[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > QR_JSON_DEPTH_MAX)
                return qr_http_refuse(error, 400, NULL, "the JSON body is nested deeper than %d", QR_JSON_DEPTH_MAX);
        } else if (c == '}' || c == ']') {
            if (depth) depth--;
        } else if (c == ',' && ++values > QR_JSON_VALUES_MAX) {
            return qr_http_refuse(error, 400, NULL, "the JSON body has more than %d values", QR_JSON_VALUES_MAX);
        }
    }
    return true;
}

json_t *qr_json_load(const char *data, size_t size, qr_http_error *error) {
    if (!json_within_limits(data, size, error)) return NULL;
    json_error_t cause;
    json_t *root = json_loadb(size ? data : "", size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &cause);
    if (!root) {
        qr_http_refuse(error, 400, NULL, "the body is not valid JSON: %s (line %d, column %d)", cause.text, cause.line,
                       cause.column);
        return NULL;
    }
    if (json_is_object(root)) return root;
    json_decref(root);
    qr_http_refuse(error, 400, NULL, "the body must be a JSON object");
    return NULL;
}

const json_t *qr_json_member(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

qr_text qr_json_string_of(const json_t *string) { return (qr_text){json_string_value(string), json_string_length(string)}; }

static bool field_range(const qr_field *field, double value, qr_http_error *error) {
    if (value >= field->least && value <= field->most) return true;
    return qr_http_refuse(error, 400, field->name, "%s must be between %.12g and %.12g", field->name, field->least,
                          field->most);
}

static bool field_kind_error(const qr_field *field, const char *kind, qr_http_error *error) {
    return qr_http_refuse(error, 400, field->name, "%s must be %s", field->name, kind);
}

static bool field_read(const qr_field *field, const json_t *value, char *member, qr_http_error *error) {
    switch (field->kind) {
    case QR_FIELD_BOOL:
        if (!json_is_boolean(value)) return field_kind_error(field, "true or false", error);
        *(bool *)(void *)member = json_is_true(value);
        return true;
    case QR_FIELD_INT:
        if (!json_is_integer(value)) return field_kind_error(field, "a whole number", error);
        *(int64_t *)(void *)member = json_integer_value(value);
        return field_range(field, (double)json_integer_value(value), error);
    case QR_FIELD_REAL:
        if (!json_is_number(value)) return field_kind_error(field, "a number", error);
        *(double *)(void *)member = json_number_value(value);
        return field_range(field, json_number_value(value), error);
    case QR_FIELD_STRING:
        if (!json_is_string(value)) return field_kind_error(field, "a string", error);
        *(qr_text *)(void *)member = qr_json_string_of(value);
        return true;
    }
    return true;
}

bool qr_json_read_fields(const json_t *object, const qr_field *fields, size_t count, void *into, qr_http_error *error) {
    for (size_t i = 0; i < count; i++) {
        const json_t *value = qr_json_member(object, fields[i].name);
        if (value && !field_read(&fields[i], value, (char *)into + fields[i].offset, error)) return false;
    }
    return true;
}

bool qr_json_read_tokens(const json_t *array, const char *name, uint32_t vocabulary_size, qr_token_buffer *out,
                         qr_http_error *error) {
    if (!json_is_array(array)) return qr_http_refuse(error, 400, name, "%s must be a list of token ids", name);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item)) return qr_http_refuse(error, 400, name, "%s[%zu] must be a token id", name, i);
        json_int_t id = json_integer_value(item);
        if (id < 0 || id >= (json_int_t)vocabulary_size)
            return qr_http_refuse(error, 400, name, "%s[%zu] is %lld, outside the vocabulary of %u tokens", name, i,
                                  (long long)id, vocabulary_size);
        quire_token token = (quire_token)id;
        if (qr_token_buffer_append(out, &token, 1) != QUIRE_OK) return qr_http_refuse(error, 503, NULL, "out of memory");
    }
    return true;
}
