#include "runtime/engine/snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct qr_snapshot {
    _Atomic uint64_t sequence;
    size_t bytes, words;
    _Atomic uint64_t data[];
};

qr_snapshot *qr_snapshot_create(size_t bytes) {
    size_t words = (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    qr_snapshot *s = qr_alloc_zero(1, sizeof *s + words * sizeof(uint64_t));
    if (!s) return NULL;
    s->bytes = bytes;
    s->words = words;
    return s;
}

void qr_snapshot_destroy(qr_snapshot *s) { free(s); }

static size_t word_bytes(const qr_snapshot *s, size_t word) {
    size_t left = s->bytes - word * sizeof(uint64_t);
    return left < sizeof(uint64_t) ? left : sizeof(uint64_t);
}

/* Stores release and loads acquire: whoever reads a word of this write also sees the odd counter before it. */
void qr_snapshot_write(qr_snapshot *s, const void *from) {
    uint64_t sequence = atomic_load_explicit(&s->sequence, memory_order_relaxed);
    atomic_store_explicit(&s->sequence, sequence + 1, memory_order_relaxed);
    for (size_t i = 0; i < s->words; i++) {
        uint64_t word = 0;
        memcpy(&word, (const char *)from + i * sizeof word, word_bytes(s, i));
        atomic_store_explicit(&s->data[i], word, memory_order_release);
    }
    atomic_store_explicit(&s->sequence, sequence + 2, memory_order_release);
}

void qr_snapshot_read(const qr_snapshot *s, void *to) {
    for (;;) {
        uint64_t before = atomic_load_explicit(&s->sequence, memory_order_acquire);
        for (size_t i = 0; i < s->words; i++) {
            uint64_t word = atomic_load_explicit(&s->data[i], memory_order_acquire);
            memcpy((char *)to + i * sizeof word, &word, word_bytes(s, i));
        }
        uint64_t after = atomic_load_explicit(&s->sequence, memory_order_relaxed);
        if (before == after && before % 2 == 0) return;
    }
}
