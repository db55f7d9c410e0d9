/* list.h - an intrusive circular doubly linked list. The head is a node; an empty list points to itself.
 *
 * Nodes may alias anything: gcc 12.2 at -O3 takes the head's `next` out of a loop that removes nodes when head and nodes
 * lie inside different structs (loop invariant motion), and a search for what is left then never ends. The attribute takes
 * the ground away from it and costs nothing. */
#ifndef QR_BASE_LIST_H
#define QR_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct __attribute__((may_alias)) qr_list {
    struct qr_list *next, *prev;
} qr_list;

#define QR_LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))
#define QR_LIST_EACH(node, head) for (qr_list *node = (head)->next; node != (head); node = node->next)
/* The current node may be removed. */
#define QR_LIST_EACH_SAFE(node, following, head) \
    for (qr_list *node = (head)->next, *following = node->next; node != (head); node = following, following = node->next)

static inline void qr_list_init(qr_list *head) { head->next = head->prev = head; }
static inline bool qr_list_empty(const qr_list *head) { return head->next == head; }

static inline void qr_list_insert_before(qr_list *at, qr_list *node) {
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void qr_list_push_back(qr_list *head, qr_list *node) { qr_list_insert_before(head, node); }
static inline void qr_list_push_front(qr_list *head, qr_list *node) { qr_list_insert_before(head->next, node); }

/* The node becomes an empty list of its own, so removing twice is harmless. */
static inline void qr_list_remove(qr_list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    qr_list_init(node);
}

static inline qr_list *qr_list_pop_front(qr_list *head) {
    qr_list *node = head->next;
    if (node == head) return NULL;
    qr_list_remove(node);
    return node;
}
#endif
