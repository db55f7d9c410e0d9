/* size_text.h - byte sizes as people write and read them. K, M, G and T are powers of 1,024. */
#ifndef QR_CLI_SIZE_TEXT_H
#define QR_CLI_SIZE_TEXT_H

#include <quire/status.h>

/* "4096", "64M", "1.5G", "80GiB"; case does not matter. INVALID for anything else, for signs and for what does not fit in 64
 * bits; then *bytes is 0. */
QUIRE_MUST_CHECK quire_status qr_size_parse(const char *text, uint64_t *bytes);

enum { QR_SIZE_TEXT_BYTES = 24 };
/* "512 B", "128 KiB", "1.50 GiB"; returns text. */
const char *qr_size_format(uint64_t bytes, char text[QR_SIZE_TEXT_BYTES]);
#endif
