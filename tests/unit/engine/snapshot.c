#include "runtime/engine/snapshot.h"

#include <criterion/criterion.h>
#include <string.h>

/* Readers beside a writer: tests/stress/engine.c. */
Test(engine_snapshot, reads_what_was_written_at_every_size) {
    for (size_t bytes = 1; bytes < 100; bytes++) {
        char from[100], to[100];
        qr_snapshot *s = qr_snapshot_create(bytes);
        memset(to, 1, sizeof to);
        qr_snapshot_read(s, to);
        for (size_t i = 0; i < bytes; i++) cr_assert_eq(to[i], 0, "zero at first");
        for (size_t i = 0; i < bytes; i++) from[i] = (char)(i * 7 + bytes);
        qr_snapshot_write(s, from);
        qr_snapshot_read(s, to);
        cr_assert_eq(memcmp(from, to, bytes), 0);
        cr_assert_eq(to[bytes], 1, "nothing behind it");
        qr_snapshot_destroy(s);
    }
}
