/* api_keys.h - the keys that TCP clients must show. Compared in constant time; never logged.
 *
 * Thread: read-only after load.
 */
#ifndef QR_SERVER_API_KEYS_H
#define QR_SERVER_API_KEYS_H

#include <quire/status.h>

#include <stdbool.h>

typedef struct qr_api_keys {
    char **keys; /* [count] */
    size_t count;
} qr_api_keys;

/* One key per line; blank lines and lines that begin with # are skipped. Errors: IO, FORMAT (no key, or the file may be
 * read by others), NO_MEMORY. */
QUIRE_MUST_CHECK quire_status qr_api_keys_load(const char *path, qr_api_keys *keys, quire_error *error);
void qr_api_keys_deinit(qr_api_keys *keys);
/* authorization: the value of the header, or NULL. */
bool qr_api_keys_allow(const qr_api_keys *keys, const char *authorization);

#endif
