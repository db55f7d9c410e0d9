/* mailbox stress: one producer, one consumer that sleeps whenever it is empty, a third thread that pokes. Every message must
 * come once, whole and in order, and nobody may sleep for ever. Run under ThreadSanitizer. */
#include "base/mailbox.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORDS = 9 };

typedef struct message {
    uint64_t words[WORDS];
} message;

typedef struct shared {
    qr_mailbox *mailbox;
    uint64_t messages;
    _Atomic bool over;
} shared;

static void *produce(void *argument) {
    shared *s = argument;
    for (uint64_t n = 1; n <= s->messages; n++) {
        message m;
        for (int w = 0; w < WORDS; w++) m.words[w] = n * WORDS + (uint64_t)w;
        while (!qr_mailbox_try_push(s->mailbox, &m)) sched_yield();
        if (n % 500 == 0) nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    return NULL;
}

static void *poke(void *argument) {
    shared *s = argument;
    while (!atomic_load(&s->over)) {
        qr_mailbox_poke(s->mailbox);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    return NULL;
}

static int message_is(const message *m, uint64_t n) {
    for (int w = 0; w < WORDS; w++)
        if (m->words[w] != n * WORDS + (uint64_t)w) return 0;
    return 1;
}

static int consume(shared *s) {
    for (uint64_t n = 1; n <= s->messages;) {
        message m;
        if (!qr_mailbox_try_pop(s->mailbox, &m)) {
            qr_mailbox_wait(s->mailbox, UINT64_MAX);
            continue;
        }
        if (!message_is(&m, n)) return 1;
        n++;
    }
    return 0;
}

static int run(uint64_t messages, size_t capacity, int with_pokes) {
    shared s = {.messages = messages};
    pthread_t producer, poker;
    if (qr_mailbox_create(sizeof(message), capacity, &s.mailbox) != QUIRE_OK) return 1;
    pthread_create(&producer, NULL, produce, &s);
    if (with_pokes) pthread_create(&poker, NULL, poke, &s);
    int failed = consume(&s);
    pthread_join(producer, NULL);
    atomic_store(&s.over, true);
    if (with_pokes) pthread_join(poker, NULL);
    qr_mailbox_destroy(s.mailbox);
    return failed;
}

int main(int argc, char **argv) {
    uint64_t messages = argc > 1 ? strtoull(argv[1], NULL, 10) : 30000;
    int failed = run(messages, 1, 0) || run(messages, 64, 0) || run(messages, 1, 1) || run(messages, 64, 1);
    puts(failed ? "FAILED" : "ok");
    return failed;
}
