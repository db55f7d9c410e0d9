/* mailbox.h - a bounded queue of fixed-size messages between two threads.
 *
 * One producer, one consumer, no lock in push and pop. A consumer that has nothing to do sleeps in wait (futex); push
 * wakes it. Messages are copied in and out.
 */
#ifndef QR_BASE_MAILBOX_H
#define QR_BASE_MAILBOX_H

#include <stdbool.h>

#include <quire/status.h>

typedef struct qr_mailbox qr_mailbox;

/* capacity is rounded up to a power of two. */
QUIRE_MUST_CHECK quire_status qr_mailbox_create(size_t message_bytes, size_t capacity, qr_mailbox **mailbox);
void qr_mailbox_destroy(qr_mailbox *mailbox);
bool qr_mailbox_try_push(qr_mailbox *mailbox, const void *message); /* false: full */
bool qr_mailbox_try_pop(qr_mailbox *mailbox, void *message);        /* false: empty */
size_t qr_mailbox_space(const qr_mailbox *mailbox);                 /* producer: messages that fit now, at least */
size_t qr_mailbox_count(const qr_mailbox *mailbox);
/* Consumer: sleeps until a message is there, poke was called or timeout_us passed (UINT64_MAX: no limit). */
void qr_mailbox_wait(qr_mailbox *mailbox, uint64_t timeout_us);
/* Any thread: ends the current or next wait. */
void qr_mailbox_poke(qr_mailbox *mailbox);
#endif
