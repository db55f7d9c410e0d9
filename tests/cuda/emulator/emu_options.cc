// Options from the environment, read once before main. An unknown value ends the program: a typing error must not turn a
// test mode into the default one.
#include <cstdlib>
#include <cstring>

#include "tests/cuda/emulator/emu_core.h"

static int choice(const char *variable, const char *const names[], int count) {
    const char *value = getenv(variable);
    if (!value) return 0;
    for (int i = 0; i < count; i++)
        if (!strcmp(value, names[i])) return i;
    emu_fail(variable, 0, "unknown value %s", value);
}

static int number(const char *variable, int otherwise) {
    const char *value = getenv(variable);
    return value ? atoi(value) : otherwise;
}

static emu_options options_from_environment() {
    static const char *const orders[] = {"forward", "reverse", "random"}, *const copies[] = {"late", "eager"},
                             *const streams[] = {"lazy", "eager", "random"}, *const sums[] = {"fma", "truncate"};
    emu_options o;
    o.order = (emu_order)choice("EMU_ORDER", orders, 3);
    o.seed = (unsigned)number("EMU_SEED", (int)o.seed);
    o.late_copies = !choice("EMU_COPIES", copies, 2);
    o.streams = (emu_stream_order)choice("EMU_STREAMS", streams, 3);
    o.truncate_sums = choice("EMU_SUMS", sums, 2);
    o.compute_capability = number("EMU_CC", o.compute_capability);
    return o;
}

emu_options emu_opt = options_from_environment();
