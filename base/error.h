/* error.h - filling a quire_error. */
#ifndef QR_BASE_ERROR_H
#define QR_BASE_ERROR_H

#include <quire/status.h>

#define QR_NO_OFFSET UINT64_MAX

/* Fills *error (NULL is fine) and returns status, so that a failing call is one line. Bytes of the formatted text that
 * are not valid UTF-8 or are control characters become '?'. source may be NULL. */
__attribute__((format(printf, 5, 6))) quire_status qr_fail(quire_error *error, quire_status status, const char *source,
                                                           uint64_t offset, const char *format, ...);
void qr_error_clear(quire_error *error);
#endif
