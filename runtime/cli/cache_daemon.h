/* cache_daemon.h - what `quire cache` asks of a running daemon. Prints the answer.
 *
 * Errors: IO (no daemon there), INVALID (it refuses: its reason), those of qr_chat_client_create.
 */
#ifndef QR_CLI_CACHE_DAEMON_H
#define QR_CLI_CACHE_DAEMON_H

#include <stdbool.h>

#include <quire/status.h>

typedef struct qr_cache_daemon {
    const char *socket;
    bool json;
    double timeout_s; /* flush and clear: how long the daemon lets the answer wait; < 0: as it likes */
} qr_cache_daemon;

QUIRE_MUST_CHECK quire_status qr_cache_daemon_stat(const qr_cache_daemon *daemon, quire_error *error);
/* *flushed: all of it is on disk and lasts. *left: blocks that were not erased in time. */
QUIRE_MUST_CHECK quire_status qr_cache_daemon_flush(const qr_cache_daemon *daemon, bool *flushed, quire_error *error);
/* salt NULL: everything. */
QUIRE_MUST_CHECK quire_status qr_cache_daemon_clear(const qr_cache_daemon *daemon, const char *salt, uint64_t *left,
                                                    quire_error *error);
#endif
