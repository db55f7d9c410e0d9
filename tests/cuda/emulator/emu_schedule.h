/*
 * Which thread runs next, and the life of a CTA. Internal to the emulator.
 *
 * Forward and reverse order together show a missing barrier whose values matter: of any unordered reader and writer one of
 * the two orders is the wrong one, unless a collective happens to lie between them. ThreadSanitizer covers that case.
 */
#pragma once
#include <functional>

#include "tests/cuda/emulator/emu_fiber.h"

// Of the running thread: sleep until woken, let others run, wake another one.
void emu_sleep(const char *file, int line);
void emu_offer_switch(const char *file, int line); // random order only: anyone may run after a collective
void emu_wake(unsigned linear);
unsigned emu_thread_count();

// The state of barriers and collectives (emu_sync.cc) begins anew with each CTA.
void emu_sync_reset(unsigned thread_count);
void emu_sync_thread_exits(const emu_fiber *fiber);

// Runs every CTA of a grid; body is one thread's work.
void emu_run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &body);
