/* assertion.h - promises of the caller. QR_ASSERT is O(1) and on in every build; QR_DCHECK may cost O(n) and is on in
 * debug builds. Never for bytes from outside: those get a status and a quire_error. */
#ifndef QR_BASE_ASSERTION_H
#define QR_BASE_ASSERTION_H

/* Writes one line to standard error and aborts. */
_Noreturn void qr_assert_failed(const char *file, int line, const char *expression);

#define QR_ASSERT(x) ((x) ? (void)0 : qr_assert_failed(__FILE__, __LINE__, #x))

#ifdef QR_DEBUG
#define QR_DCHECK(x) QR_ASSERT(x)
#else
#define QR_DCHECK(x) ((void)sizeof(!(x)))
#endif

#endif
