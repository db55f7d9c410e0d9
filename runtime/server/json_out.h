/* json_out.h - writes JSON into a byte buffer.
 *
 * Commas are placed by the writer. Strings become valid JSON whatever bytes they hold: what is not UTF-8 comes out as
 * U+FFFD, control characters are escaped. Numbers are always finite.
 *
 * Thread: one owner.
 */
#ifndef QR_SERVER_JSON_OUT_H
#define QR_SERVER_JSON_OUT_H

#include "runtime/server/byte_buffer.h"

#include <stdint.h>

typedef struct qr_json {
    qr_bytes *out; /* borrows */
    bool comma;    /* a value came before on this level */
} qr_json;

void qr_json_open(qr_json *json, char bracket); /* '{' or '[' */
void qr_json_close(qr_json *json, char bracket);
void qr_json_key(qr_json *json, const char *key); /* a plain ASCII word */
/* The same for a key of any bytes. */
void qr_json_key_bytes(qr_json *json, const char *data, size_t size);

void qr_json_string(qr_json *json, const char *data, size_t size);
void qr_json_text(qr_json *json, const char *text); /* NULL writes null */
void qr_json_int(qr_json *json, int64_t value);
void qr_json_uint(qr_json *json, uint64_t value);
void qr_json_real(qr_json *json, double value); /* not finite: 0 */
void qr_json_float(qr_json *json, float value); /* shortest form that reads back as the same float; floor -1e30 */
void qr_json_bool(qr_json *json, bool value);
void qr_json_null(qr_json *json);
/* An array of the bytes as numbers. */
void qr_json_byte_array(qr_json *json, const char *data, size_t size);

void qr_json_put_text(qr_json *json, const char *key, const char *text);
void qr_json_put_int(qr_json *json, const char *key, int64_t value);
void qr_json_put_uint(qr_json *json, const char *key, uint64_t value);
void qr_json_put_real(qr_json *json, const char *key, double value);
void qr_json_put_bool(qr_json *json, const char *key, bool value);
void qr_json_put_null(qr_json *json, const char *key);

#endif
