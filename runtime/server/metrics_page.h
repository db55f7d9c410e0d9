/* metrics_page.h - lines of a page in Prometheus' text format 0.0.4.
 *
 * Thread: any.
 */
#ifndef QR_SERVER_METRICS_PAGE_H
#define QR_SERVER_METRICS_PAGE_H

#include "runtime/server/byte_buffer.h"

#include <stdint.h>

/* HELP and TYPE of a metric; its samples follow. */
void qr_page_head(qr_bytes *page, const char *name, const char *type, const char *help);
/* A metric of one sample without labels. */
void qr_page_integer(qr_bytes *page, const char *name, const char *type, uint64_t value, const char *help);
void qr_page_real(qr_bytes *page, const char *name, const char *type, double value, const char *help);
#endif
