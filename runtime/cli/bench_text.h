/* bench_text.h - reproducible text made of short common words, so that one word is about one token. */
#ifndef QR_CLI_BENCH_TEXT_H
#define QR_CLI_BENCH_TEXT_H

#include <stdint.h>

/* malloc'd sentence text of about `words` words behind `opening`; the caller owns it; NULL when out of memory. */
char *qr_bench_text(const char *opening, uint32_t words, uint64_t seed);
#endif
