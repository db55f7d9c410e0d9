/* size_text.c - byte sizes as text. Fractions are exact decimal arithmetic: no floating point decides a size. */
#include "runtime/cli/size_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"

enum { FRACTION_DIGITS_MAX = 6 };

/* Digits to a number; false when there is none or it overflows. */
static bool read_digits(const char **at, uint64_t *value) {
    const char *begin = *at;
    *value = 0;
    for (; isdigit((unsigned char)**at); (*at)++)
        if (!qr_mul_u64(*value, 10, value) || !qr_add_u64(*value, (uint64_t)(**at - '0'), value)) return false;
    return *at > begin;
}

/* "", "B", "K", "KB" is refused (is it 1,000 or 1,024?), "KiB" and so on; the shift, or -1. */
static int read_unit(const char *unit) {
    static const char letters[] = "KMGT";
    if (*unit == 0 || strcasecmp(unit, "B") == 0) return 0;
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    if (!letter || (unit[1] != 0 && strcasecmp(unit + 1, "iB") != 0)) return -1;
    return 10 * (int)(letter - letters + 1);
}

quire_status qr_size_parse(const char *text, uint64_t *bytes) {
    uint64_t whole, fraction = 0, scale = 1;
    const char *at = text;
    *bytes = 0;
    if (!read_digits(&at, &whole)) return QUIRE_INVALID;
    if (*at == '.') {
        const char *begin = ++at;
        if (!read_digits(&at, &fraction) || at - begin > FRACTION_DIGITS_MAX) return QUIRE_INVALID;
        for (ptrdiff_t i = 0; i < at - begin; i++) scale *= 10;
    }
    int shift = read_unit(at);
    if (shift < 0 || (shift == 0 && scale > 1)) return QUIRE_INVALID;
    uint64_t unit = (uint64_t)1 << shift, product;
    if (!qr_mul_u64(whole, unit, &product) || !qr_add_u64(product, fraction * unit / scale, bytes)) return QUIRE_INVALID;
    return QUIRE_OK;
}

const char *qr_size_format(uint64_t bytes, char text[QR_SIZE_TEXT_BYTES]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned power = 0;
    double value = (double)bytes;
    while (value >= 1024 && power + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        power++;
    }
    bool exact = value == (double)(uint64_t)value;
    snprintf(text, QR_SIZE_TEXT_BYTES, exact ? "%.0f %s" : "%.2f %s", value, units[power]);
    return text;
}
