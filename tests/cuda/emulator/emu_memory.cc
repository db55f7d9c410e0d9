// Lists of allocations by address.
#include "tests/cuda/emulator/emu_memory.h"

#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/cuda/emulator/emu_core.h"
#include "tests/cuda/emulator/emu_sanitizer.h"

typedef std::map<const char *, size_t> range_list;

static range_list &device_ranges() {
    static range_list ranges;
    return ranges;
}

static range_list &pinned_ranges() {
    static range_list ranges;
    return ranges;
}

void *emu_device_alloc(size_t bytes) {
    size_t room = (bytes ? bytes + 15 : 16) / 16 * 16;
    void *memory;
    if (posix_memalign(&memory, 256, room)) return nullptr;
    memset(memory, 0xff, room);
    device_ranges()[(char *)memory] = room;
    emu_poison(memory, room);
    return memory;
}

bool emu_device_free(void *memory) {
    auto range = device_ranges().find((char *)memory);
    if (range == device_ranges().end()) return false;
    emu_unpoison(memory, range->second);
    device_ranges().erase(range);
    free(memory);
    return true;
}

static bool overlaps(const range_list &ranges, const char *begin, size_t bytes) {
    auto after = ranges.lower_bound(begin + bytes);
    return after != ranges.begin() && (--after)->first + after->second > begin;
}

bool emu_pin(void *memory, size_t bytes) {
    if (overlaps(pinned_ranges(), (char *)memory, bytes)) return false;
    pinned_ranges()[(char *)memory] = bytes;
    return true;
}

bool emu_unpin(void *memory) { return pinned_ranges().erase((char *)memory) != 0; }

static bool inside(const range_list &ranges, const char *begin, size_t bytes, const char *what) {
    auto after = ranges.upper_bound(begin);
    if (after == ranges.begin()) return false;
    const auto &range = *--after;
    if (begin >= range.first + range.second) return false;
    if (begin + bytes > range.first + range.second)
        emu_fail("copy", 0, "%zu bytes from %p end %zu bytes past %s memory", bytes, (const void *)begin,
                 (size_t)(begin + bytes - (range.first + range.second)), what);
    return true;
}

emu_space emu_space_of(const void *memory, size_t bytes) {
    if (inside(device_ranges(), (const char *)memory, bytes, "device")) return EMU_DEVICE;
    return inside(pinned_ranges(), (const char *)memory, bytes, "pinned") ? EMU_PINNED : EMU_PAGEABLE;
}

size_t emu_device_bytes_used() {
    size_t sum = 0;
    for (auto &range : device_ranges()) sum += range.second;
    return sum;
}

void emu_memory_open() {
    for (auto &range : device_ranges()) emu_unpoison(range.first, range.second);
}

void emu_memory_close() {
    for (auto &range : device_ranges()) emu_poison(range.first, range.second);
}
