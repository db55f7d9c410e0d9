/* faults.c - the parser of fault lists: a table of names, and a reader for each kind of value. */
#include "tests/support/faults.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef enum value_kind { VALUE_COUNT, VALUE_COUNT32, VALUE_SIZE, VALUE_WHEN, VALUE_SWITCH } value_kind;

typedef struct fault_option {
    const char *name;
    value_kind kind;
    size_t offset;
} fault_option;

#define FIELD(member) offsetof(faults, member)
static const fault_option options[] = {
    {"seed", VALUE_COUNT, FIELD(seed)},
    {"slow", VALUE_SIZE, FIELD(slow_bytes_per_second)},
    {"delay", VALUE_COUNT, FIELD(delay_us)},
    {"nospace", VALUE_SIZE, FIELD(nospace_bytes)},
    {"full", VALUE_SWITCH, FIELD(full)},
    {"flip_read", VALUE_WHEN, FIELD(flip_read)},
    {"flip_write", VALUE_WHEN, FIELD(flip_write)},
    {"eio_read", VALUE_WHEN, FIELD(eio_read)},
    {"eio_write", VALUE_WHEN, FIELD(eio_write)},
    {"eio_sync", VALUE_WHEN, FIELD(eio_sync)},
    {"eio_open", VALUE_WHEN, FIELD(eio_open)},
    {"eio_remove", VALUE_WHEN, FIELD(eio_remove)},
    {"eio_punch", VALUE_WHEN, FIELD(eio_punch)},
    {"nospace_allocate", VALUE_WHEN, FIELD(nospace_allocate)},
    {"nospace_write", VALUE_WHEN, FIELD(nospace_write)},
    {"short_read", VALUE_WHEN, FIELD(short_read)},
    {"short_write", VALUE_WHEN, FIELD(short_write)},
    {"interrupt", VALUE_WHEN, FIELD(interrupt)},
    {"alloc_fail", VALUE_WHEN, FIELD(alloc)},
    {"copy_delay", VALUE_COUNT32, FIELD(device.delay_polls_max)},
    {"reorder", VALUE_SWITCH, FIELD(device.reorder)},
    {"copies_max", VALUE_COUNT, FIELD(device.copies_max)},
    {"device_bytes", VALUE_SIZE, FIELD(device.memory_bytes)},
    {"host_tier", VALUE_SWITCH, FIELD(host_tier)},
};
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "device_bytes is read as 64 bits");

/* ---- values; `end` is where the option ends ---- */

static bool read_count(const char *text, const char *end, uint64_t *value) {
    char *stopped;
    errno = 0;
    if (*text < '0' || *text > '9') return false;
    *value = strtoull(text, &stopped, 10);
    return stopped == end && errno == 0;
}

static bool read_size(const char *text, const char *end, uint64_t *value) {
    static const char units[] = "KMG";
    const char *unit = end > text && end[-1] ? strchr(units, end[-1]) : NULL;
    unsigned shift = unit ? 10u * (unsigned)(unit - units + 1) : 0;
    if (!read_count(text, end - (unit ? 1 : 0), value) || *value > UINT64_MAX >> shift) return false;
    *value <<= shift;
    return true;
}

static bool read_when(const char *text, const char *end, fault_when *when) {
    char *stopped;
    if (!memchr(text, '.', (size_t)(end - text))) return read_count(text, end, &when->nth) && when->nth > 0;
    when->rate = strtod(text, &stopped);
    return stopped == end && when->rate >= 0 && when->rate <= 1;
}

static const char *what_is_wanted(value_kind kind) {
    switch (kind) {
    case VALUE_COUNT:
    case VALUE_COUNT32: return "takes a whole number";
    case VALUE_SIZE: return "takes a size such as 20M";
    case VALUE_WHEN: return "takes the number of the call, from 1, or a probability such as 0.01";
    case VALUE_SWITCH: break;
    }
    return "takes no value, or 0 or 1";
}

static bool read_value(const fault_option *option, const char *value, const char *end, void *field) {
    uint64_t number = 1;
    bool good = false;
    switch (option->kind) {
    case VALUE_COUNT: return value && read_count(value, end, field);
    case VALUE_SIZE: return value && read_size(value, end, field);
    case VALUE_WHEN: return value && read_when(value, end, field);
    case VALUE_COUNT32:
        good = value && read_count(value, end, &number) && number < UINT32_MAX;
        if (good) *(uint32_t *)field = (uint32_t)number;
        break;
    case VALUE_SWITCH:
        good = !value || (read_count(value, end, &number) && number <= 1);
        if (good) *(bool *)field = number == 1;
        break;
    }
    return good;
}

/* ---- the list ---- */

static const fault_option *find_option(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0) return &options[i];
    return NULL;
}

static quire_status parse_one(const char *text, const char *end, faults *out, quire_error *error) {
    const char *equals = memchr(text, '=', (size_t)(end - text));
    const char *name_end = equals ? equals : end;
    const fault_option *option = find_option(text, (size_t)(name_end - text));
    if (!option)
        return qr_fail(error, QUIRE_INVALID, "QUIRE_FAULTS", QR_NO_OFFSET, "there is no fault '%.*s'", (int)(name_end - text),
                       text);
    if (!read_value(option, equals ? equals + 1 : NULL, end, (char *)out + option->offset))
        return qr_fail(error, QUIRE_INVALID, "QUIRE_FAULTS", QR_NO_OFFSET, "'%.*s': %s %s", (int)(end - text), text,
                       option->name, what_is_wanted(option->kind));
    return QUIRE_OK;
}

quire_status faults_parse(const char *text, faults *out, quire_error *error) {
    quire_status status = QUIRE_OK;
    *out = (faults){.seed = 1};
    while (*text && status == QUIRE_OK) {
        const char *end = text + strcspn(text, ",");
        status = parse_one(text, end, out, error);
        text = *end ? end + 1 : end;
    }
    if (status != QUIRE_OK) *out = (faults){0};
    out->device.seed = out->seed;
    return status;
}

bool faults_want_device(const faults *f) {
    return f->device.delay_polls_max || f->device.reorder || f->device.copies_max || f->device.memory_bytes || f->host_tier;
}
