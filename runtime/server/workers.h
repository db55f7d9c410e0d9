/* workers.h - starts libuv's worker threads, or says why not.
 *
 * libuv starts them at the first work that it is given, and ends the process without a word where one cannot be started. So
 * they are started with the server, when as many have been tried.
 *
 * Thread: any, while no other starts threads.
 */
#ifndef QR_SERVER_WORKERS_H
#define QR_SERVER_WORKERS_H

#include <quire/status.h>

/* Errors: IO (the reason, and both numbers). */
QUIRE_MUST_CHECK quire_status qr_workers_start(quire_error *error);

#endif
