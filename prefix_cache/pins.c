#include "prefix_cache/pins.h"

#include "base/assertion.h"

static void pins_remove(qr_tree *tree, uint32_t place) {
    qr_node_id node = tree->pins[place].node;
    tree->pins[place] = tree->pins[--tree->pin_count];
    qr_tree_add_pin_count(tree, node, -1);
}

void qr_pins_expire(qr_tree *tree) {
    for (uint32_t i = tree->pin_count; i-- > 0;)
        if (tree->pins[i].expires_us <= tree->policy.now_us) pins_remove(tree, i);
}

static bool pins_yields_to(const qr_pin *a, const qr_pin *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->expires_us < b->expires_us;
}

static uint32_t pins_lowest(const qr_tree *tree) {
    uint32_t lowest = 0;
    for (uint32_t i = 1; i < tree->pin_count; i++)
        if (pins_yields_to(&tree->pins[i], &tree->pins[lowest])) lowest = i;
    return lowest;
}

void qr_pins_revoke_lowest(qr_tree *tree) {
    QR_ASSERT(tree->pin_count > 0);
    pins_remove(tree, pins_lowest(tree));
}

void qr_pins_drop_root(qr_tree *tree, uint32_t root) {
    for (uint32_t i = tree->pin_count; i-- > 0;)
        if (tree->store.nodes[tree->pins[i].node].root == root) pins_remove(tree, i);
}

static uint32_t pins_find(const qr_tree *tree, qr_node_id id) {
    uint32_t i = 0;
    while (i < tree->pin_count && tree->pins[i].node != id) i++;
    return i;
}

bool qr_tree_pin(qr_tree *tree, qr_node_id id, uint32_t priority, uint64_t ttl_us) {
    uint64_t now = tree->policy.now_us;
    qr_pin pin = {id, priority, ttl_us > UINT64_MAX - now ? UINT64_MAX : now + ttl_us};
    QR_ASSERT(qr_tree_is_resident(tree, id));
    uint32_t place = pins_find(tree, id);
    if (place < tree->pin_count) {
        tree->pins[place] = pin;
        return true;
    }
    if (tree->pin_count == QR_TREE_PINS_MAX) {
        if (pins_yields_to(&pin, &tree->pins[pins_lowest(tree)])) return false;
        qr_pins_revoke_lowest(tree);
    }
    tree->pins[tree->pin_count++] = pin;
    qr_tree_add_pin_count(tree, id, 1);
    return true;
}
