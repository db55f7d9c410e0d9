#include "base/list.h"

#include <criterion/criterion.h>

typedef struct item {
    int number;
    qr_list node;
} item;

Test(base_list, nodes_keep_order_and_can_leave_during_a_walk) {
    qr_list head;
    item items[10];
    qr_list_init(&head);
    cr_assert(qr_list_empty(&head));
    cr_assert_null(qr_list_pop_front(&head));
    for (int i = 0; i < 10; i++) {
        items[i].number = i;
        qr_list_push_back(&head, &items[i].node);
    }
    QR_LIST_EACH_SAFE (node, next, &head) {
        if (QR_LIST_ENTRY(node, item, node)->number % 2) qr_list_remove(node);
    }
    qr_list_remove(&items[1].node); /* twice is harmless */
    int expected = 0;
    QR_LIST_EACH (node, &head) {
        cr_assert_eq(QR_LIST_ENTRY(node, item, node)->number, expected);
        expected += 2;
    }
    cr_assert_eq(expected, 10);
    qr_list_push_front(&head, &items[9].node);
    cr_assert_eq(QR_LIST_ENTRY(qr_list_pop_front(&head), item, node)->number, 9);
}
