/* descriptors.h - whether enough files can be opened for a server to live at all.
 *
 * libuv ends the process without a word where it cannot open its first pipes, so that is found out before.
 *
 * Thread: any, while no other opens files.
 */
#ifndef QR_SERVER_DESCRIPTORS_H
#define QR_SERVER_DESCRIPTORS_H

#include <quire/status.h>

enum { QR_DESCRIPTORS_MIN = 24 }; /* a dozen of the loop, its sockets, the model; the rest for clients */

/* Errors: IO (the reason, and both numbers). */
QUIRE_MUST_CHECK quire_status qr_descriptors_check(quire_error *error);

#endif
