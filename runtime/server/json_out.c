/* json_out.c - see json_out.h. */
#include "runtime/server/json_out.h"

#include "base/assertion.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void json_separate(qr_json *json) {
    if (json->comma) qr_bytes_append(json->out, ",", 1);
    json->comma = true;
}

void qr_json_open(qr_json *json, char bracket) {
    QR_ASSERT(bracket == '{' || bracket == '[');
    json_separate(json);
    qr_bytes_append(json->out, &bracket, 1);
    json->comma = false;
}

void qr_json_close(qr_json *json, char bracket) {
    QR_ASSERT(bracket == '}' || bracket == ']');
    qr_bytes_append(json->out, &bracket, 1);
    json->comma = true;
}

/* Length of the well-formed UTF-8 sequence at data (Unicode table 3-7), or 0. */
static size_t utf8_sequence(const unsigned char *data, size_t size) {
    unsigned char lead = data[0], low = 0x80, high = 0xbf;
    size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    if (length > size || length == 0) return 0;
    for (size_t i = 1; i < length; i++, low = 0x80, high = 0xbf)
        if (data[i] < low || data[i] > high) return 0;
    return length;
}

static void json_escape(qr_bytes *out, unsigned char c) {
    static const char shorts[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if ((unsigned char)shorts[i] == c) return qr_bytes_append(out, (char[]){'\\', shorts[i + 1]}, 2);
    qr_bytes_format(out, "\\u%04x", c);
}

static bool json_is_plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

static void json_quote(qr_bytes *out, const char *text, size_t size) {
    const unsigned char *data = (const unsigned char *)text;
    qr_bytes_append(out, "\"", 1);
    for (size_t i = 0; i < size;) {
        size_t plain = i;
        while (plain < size && json_is_plain(data[plain])) plain++;
        qr_bytes_append(out, text + i, plain - i);
        i = plain;
        if (i == size) break;
        size_t length = utf8_sequence(data + i, size - i);
        if (length == 0) qr_bytes_append(out, "\xef\xbf\xbd", 3);
        else if (length == 1) json_escape(out, data[i]);
        else qr_bytes_append(out, text + i, length);
        i += length ? length : 1;
    }
    qr_bytes_append(out, "\"", 1);
}

void qr_json_key_bytes(qr_json *json, const char *data, size_t size) {
    json_separate(json);
    json_quote(json->out, data, size);
    qr_bytes_append(json->out, ":", 1);
    json->comma = false;
}

void qr_json_key(qr_json *json, const char *key) { qr_json_key_bytes(json, key, strlen(key)); }

void qr_json_string(qr_json *json, const char *data, size_t size) {
    json_separate(json);
    json_quote(json->out, data, size);
}

void qr_json_text(qr_json *json, const char *text) {
    if (text) qr_json_string(json, text, strlen(text));
    else qr_json_null(json);
}

void qr_json_int(qr_json *json, int64_t value) {
    json_separate(json);
    qr_bytes_format(json->out, "%" PRId64, value);
}

void qr_json_uint(qr_json *json, uint64_t value) {
    json_separate(json);
    qr_bytes_format(json->out, "%" PRIu64, value);
}

void qr_json_real(qr_json *json, double value) {
    json_separate(json);
    qr_bytes_format(json->out, "%.12g", isfinite(value) ? value : 0.0);
}

void qr_json_float(qr_json *json, float value) {
    char text[32];
    if (!isfinite(value)) value = -1e30f;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    json_separate(json);
    qr_bytes_text(json->out, text);
}

void qr_json_bool(qr_json *json, bool value) {
    json_separate(json);
    qr_bytes_text(json->out, value ? "true" : "false");
}

void qr_json_null(qr_json *json) {
    json_separate(json);
    qr_bytes_text(json->out, "null");
}

void qr_json_byte_array(qr_json *json, const char *data, size_t size) {
    qr_json_open(json, '[');
    for (size_t i = 0; i < size; i++) qr_json_uint(json, (unsigned char)data[i]);
    qr_json_close(json, ']');
}

void qr_json_put_text(qr_json *json, const char *key, const char *text) {
    qr_json_key(json, key);
    qr_json_text(json, text);
}

void qr_json_put_int(qr_json *json, const char *key, int64_t value) {
    qr_json_key(json, key);
    qr_json_int(json, value);
}

void qr_json_put_uint(qr_json *json, const char *key, uint64_t value) {
    qr_json_key(json, key);
    qr_json_uint(json, value);
}

void qr_json_put_real(qr_json *json, const char *key, double value) {
    qr_json_key(json, key);
    qr_json_real(json, value);
}

void qr_json_put_bool(qr_json *json, const char *key, bool value) {
    qr_json_key(json, key);
    qr_json_bool(json, value);
}

void qr_json_put_null(qr_json *json, const char *key) {
    qr_json_key(json, key);
    qr_json_null(json);
}
