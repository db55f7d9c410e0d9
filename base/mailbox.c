/* mailbox.c - a ring of messages, one producer, one consumer.
 *
 *   slots[capacity], positions count up for ever:  head (next to pop) <= tail (next to push) <= head + capacity
 *
 * tail belongs to the producer and head to the consumer. The consumer says that it sleeps, then looks again; the producer
 * publishes, then looks for a sleeper (all sequentially consistent), so no wake-up is lost. `bell` is the futex word and moves
 * only when somebody sleeps: a busy consumer costs the producer no system call.
 */
#include "base/mailbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/futex_internal.h"
#include "base/memory.h"

enum { CACHE_LINE = 64 };

struct qr_mailbox {
    size_t message_bytes, capacity;
    unsigned char *slots;
    _Alignas(CACHE_LINE) _Atomic uint64_t tail;
    _Alignas(CACHE_LINE) _Atomic uint64_t head;
    _Alignas(CACHE_LINE) _Atomic uint32_t bell;
    _Atomic bool sleeping, poked;
};

static size_t power_of_two_at_least(size_t value) {
    size_t power = 1;
    while (power < value) power *= 2;
    return power;
}

quire_status qr_mailbox_create(size_t message_bytes, size_t capacity, qr_mailbox **out) {
    *out = NULL;
    if (message_bytes == 0 || capacity == 0 || capacity > SIZE_MAX / 4) return QUIRE_INVALID;
    qr_mailbox *mailbox = qr_alloc_zero(1, sizeof *mailbox);
    if (!mailbox) return QUIRE_NO_MEMORY;
    mailbox->message_bytes = message_bytes;
    mailbox->capacity = power_of_two_at_least(capacity);
    mailbox->slots = qr_alloc_zero(mailbox->capacity, message_bytes);
    if (!mailbox->slots) {
        free(mailbox);
        return QUIRE_NO_MEMORY;
    }
    *out = mailbox;
    return QUIRE_OK;
}

void qr_mailbox_destroy(qr_mailbox *mailbox) {
    if (!mailbox) return;
    free(mailbox->slots);
    free(mailbox);
}

static void *mailbox_slot(const qr_mailbox *mailbox, uint64_t position) {
    return mailbox->slots + (position & (mailbox->capacity - 1)) * mailbox->message_bytes;
}

static void mailbox_wake(qr_mailbox *mailbox) {
    if (!atomic_load(&mailbox->sleeping)) return;
    atomic_fetch_add(&mailbox->bell, 1);
    qr_futex_wake(&mailbox->bell, 1);
}

bool qr_mailbox_try_push(qr_mailbox *mailbox, const void *message) {
    uint64_t tail = atomic_load_explicit(&mailbox->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&mailbox->head, memory_order_acquire);
    if (tail - head == mailbox->capacity) return false;
    memcpy(mailbox_slot(mailbox, tail), message, mailbox->message_bytes);
    atomic_store(&mailbox->tail, tail + 1);
    mailbox_wake(mailbox);
    return true;
}

bool qr_mailbox_try_pop(qr_mailbox *mailbox, void *message) {
    uint64_t head = atomic_load_explicit(&mailbox->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&mailbox->tail, memory_order_acquire);
    if (tail == head) return false;
    memcpy(message, mailbox_slot(mailbox, head), mailbox->message_bytes);
    atomic_store_explicit(&mailbox->head, head + 1, memory_order_release);
    return true;
}

/* head first: it only grows, so the difference is never negative nor, for the reader who owns one end, past the truth. */
size_t qr_mailbox_count(const qr_mailbox *mailbox) {
    uint64_t head = atomic_load(&mailbox->head);
    uint64_t tail = atomic_load(&mailbox->tail);
    uint64_t count = tail - head;
    return count < mailbox->capacity ? (size_t)count : mailbox->capacity;
}

size_t qr_mailbox_space(const qr_mailbox *mailbox) { return mailbox->capacity - qr_mailbox_count(mailbox); }

/* Takes the poke when there is one. */
static bool mailbox_has_reason(qr_mailbox *mailbox) {
    bool poked = atomic_exchange(&mailbox->poked, false);
    return poked || qr_mailbox_count(mailbox) > 0;
}

void qr_mailbox_wait(qr_mailbox *mailbox, uint64_t timeout_us) {
    if (mailbox_has_reason(mailbox) || timeout_us == 0) return;
    bool limited = timeout_us <= UINT64_MAX / 2000;
    uint64_t now = qr_clock_ns(), end = limited ? now + timeout_us * 1000 : UINT64_MAX;
    atomic_store(&mailbox->sleeping, true);
    while (now < end) {
        uint32_t seen = atomic_load(&mailbox->bell);
        if (mailbox_has_reason(mailbox)) break;
        qr_futex_wait(&mailbox->bell, seen, limited ? end - now : UINT64_MAX);
        now = qr_clock_ns();
    }
    atomic_store(&mailbox->sleeping, false);
}

void qr_mailbox_poke(qr_mailbox *mailbox) {
    atomic_store(&mailbox->poked, true);
    mailbox_wake(mailbox);
}
