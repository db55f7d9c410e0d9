/* socket_path.h - where the daemon listens unless told otherwise: $XDG_RUNTIME_DIR/quire/quire.sock, else
 * ~/.quire/quire.sock. */
#ifndef QR_CLI_SOCKET_PATH_H
#define QR_CLI_SOCKET_PATH_H

#include <quire/status.h>

/* Writes the path, NUL-terminated. INVALID when neither variable is set or the path does not fit. */
QUIRE_MUST_CHECK quire_status qr_socket_path_default(char *path, size_t size, quire_error *error);
#endif
