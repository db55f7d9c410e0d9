/*
 * Device memory and pinned host memory: ordinary heap blocks, kept in two lists so that every copy can be checked.
 *
 * Device memory starts as 0xFF bytes (NaN, -1). Under AddressSanitizer it is poisoned except while the device works, so
 * host code that touches it is caught.
 */
#pragma once
#include <cstddef>

enum emu_space { EMU_PAGEABLE, EMU_PINNED, EMU_DEVICE };

void *emu_device_alloc(size_t bytes);
bool emu_device_free(void *memory);
bool emu_pin(void *memory, size_t bytes);
bool emu_unpin(void *memory);
// Where a range lies; a range that begins in a device allocation or pinned range and ends outside of it is an error.
emu_space emu_space_of(const void *memory, size_t bytes);
size_t emu_device_bytes_used();

void emu_memory_open(); // the device works: kernels and copies may touch device memory
void emu_memory_close();
