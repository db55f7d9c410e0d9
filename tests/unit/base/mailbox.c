#include "base/mailbox.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"

typedef struct message {
    int number;
    char rest[20];
} message;

Test(base_mailbox, messages_come_out_in_order_and_full_and_empty_are_said) {
    qr_mailbox *mailbox;
    message m = {0}, got;
    cr_assert_eq(qr_mailbox_create(sizeof m, 5, &mailbox), QUIRE_OK);
    cr_assert_eq(qr_mailbox_space(mailbox), 8);
    cr_assert(!qr_mailbox_try_pop(mailbox, &got));
    for (int round = 0; round < 100; round++) {
        int count = round % 8 + 1;
        for (int i = 0; i < count; i++) {
            m.number = round * 100 + i;
            cr_assert(qr_mailbox_try_push(mailbox, &m));
            cr_assert_eq(qr_mailbox_count(mailbox), (size_t)i + 1);
        }
        cr_assert_eq(qr_mailbox_space(mailbox), (size_t)(8 - count));
        if (count == 8) cr_assert(!qr_mailbox_try_push(mailbox, &m));
        for (int i = 0; i < count; i++) {
            cr_assert(qr_mailbox_try_pop(mailbox, &got));
            cr_assert_eq(got.number, round * 100 + i);
        }
        cr_assert(!qr_mailbox_try_pop(mailbox, &got));
    }
    qr_mailbox_destroy(mailbox);
}

Test(base_mailbox, impossible_sizes_are_refused) {
    qr_mailbox *mailbox = (void *)1;
    cr_assert_eq(qr_mailbox_create(0, 5, &mailbox), QUIRE_INVALID);
    cr_assert_null(mailbox);
    cr_assert_eq(qr_mailbox_create(8, 0, &mailbox), QUIRE_INVALID);
    cr_assert_eq(qr_mailbox_create(8, SIZE_MAX, &mailbox), QUIRE_INVALID);
    cr_assert_eq(qr_mailbox_create(SIZE_MAX / 2, 64, &mailbox), QUIRE_NO_MEMORY);
    qr_mailbox_destroy(NULL);
}

Test(base_mailbox, wait_ends_by_message_poke_or_time) {
    qr_mailbox *mailbox;
    int one = 1;
    cr_assert_eq(qr_mailbox_create(sizeof one, 4, &mailbox), QUIRE_OK);
    uint64_t begin = qr_clock_us();
    qr_mailbox_wait(mailbox, 3000);
    cr_assert_geq(qr_clock_us() - begin, 3000);
    qr_mailbox_poke(mailbox);
    qr_mailbox_wait(mailbox, UINT64_MAX); /* a poke before the wait counts */
    begin = qr_clock_us();
    qr_mailbox_wait(mailbox, 1000); /* and only once */
    cr_assert_geq(qr_clock_us() - begin, 1000);
    cr_assert(qr_mailbox_try_push(mailbox, &one));
    qr_mailbox_wait(mailbox, UINT64_MAX);
    cr_assert_eq(qr_mailbox_count(mailbox), 1);
    qr_mailbox_destroy(mailbox);
}

static void *poke_later(void *mailbox) {
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    qr_mailbox_poke(mailbox);
    return NULL;
}

Test(base_mailbox, a_poke_wakes_a_sleeper) {
    qr_mailbox *mailbox;
    pthread_t thread;
    cr_assert_eq(qr_mailbox_create(4, 4, &mailbox), QUIRE_OK);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(pthread_create(&thread, NULL, poke_later, mailbox), 0);
        qr_mailbox_wait(mailbox, UINT64_MAX);
        pthread_join(thread, NULL);
    }
    qr_mailbox_destroy(mailbox);
}
