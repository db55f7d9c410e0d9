/* descriptors.c - see descriptors.h. */
#include "runtime/server/descriptors.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

quire_status qr_descriptors_check(quire_error *error) {
    int fds[QR_DESCRIPTORS_MIN], count = 0;
    while (count < QR_DESCRIPTORS_MIN && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0) count++;
    int reason = errno;
    for (int i = 0; i < count; i++) close(fds[i]);
    if (count == QR_DESCRIPTORS_MIN) return QUIRE_OK;
    return qr_fail(error, QUIRE_IO, "server", QR_NO_OFFSET,
                   "%s: it needs %d open files more and could have %d; raise the limit (ulimit -n)", strerror(reason),
                   QR_DESCRIPTORS_MIN, count);
}
