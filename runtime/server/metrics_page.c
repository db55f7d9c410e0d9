/* metrics_page.c - see metrics_page.h. */
#include "runtime/server/metrics_page.h"

#include <inttypes.h>

void qr_page_head(qr_bytes *page, const char *name, const char *type, const char *help) {
    qr_bytes_format(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void qr_page_integer(qr_bytes *page, const char *name, const char *type, uint64_t value, const char *help) {
    qr_page_head(page, name, type, help);
    qr_bytes_format(page, "%s %" PRIu64 "\n", name, value);
}

void qr_page_real(qr_bytes *page, const char *name, const char *type, double value, const char *help) {
    qr_page_head(page, name, type, help);
    qr_bytes_format(page, "%s %.12g\n", name, value);
}
