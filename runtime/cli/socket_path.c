#include "runtime/cli/socket_path.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

quire_status qr_socket_path_default(char *path, size_t size, quire_error *error) {
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
    int length = -1;
    path[0] = '\0';
    if (runtime && runtime[0] == '/') length = snprintf(path, size, "%s/quire/quire.sock", runtime);
    else if (home && home[0] == '/') length = snprintf(path, size, "%s/.quire/quire.sock", home);
    else
        return qr_fail(error, QUIRE_INVALID, "--socket", QR_NO_OFFSET,
                       "neither XDG_RUNTIME_DIR nor HOME is set: name the socket");
    if ((size_t)length < size) return QUIRE_OK;
    path[0] = '\0';
    return qr_fail(error, QUIRE_INVALID, "--socket", QR_NO_OFFSET, "the default path is longer than %zu bytes", size - 1);
}
