#include "prefix_cache/leaves.h"

#include "base/assertion.h"

void qr_leaves_init(qr_leaves *leaves, uint32_t capacity, const qr_policy *policy, uint64_t seed, qr_arena *arena) {
    *leaves = (qr_leaves){.capacity = capacity, .policy = policy, .random = {seed}};
    leaves->ids = qr_arena_take(arena, capacity, sizeof *leaves->ids);
}

static bool leaves_ordered(const qr_leaves *leaves) { return leaves->policy->kind == QUIRE_KV_LRU; }

static void leaves_set(qr_leaves *leaves, qr_node *nodes, uint32_t slot, qr_node_id id) {
    leaves->ids[slot] = id;
    nodes[id].leaf_slot = slot;
}

static bool leaves_before(const qr_leaves *leaves, const qr_node *nodes, qr_node_id a, qr_node_id b) {
    return qr_policy_before(leaves->policy, &nodes[a], &nodes[b]);
}

static void leaves_sift_up(qr_leaves *leaves, qr_node *nodes, uint32_t slot) {
    qr_node_id id = leaves->ids[slot];
    while (slot > 0 && leaves_before(leaves, nodes, id, leaves->ids[(slot - 1) / 2])) {
        leaves_set(leaves, nodes, slot, leaves->ids[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    leaves_set(leaves, nodes, slot, id);
}

static void leaves_sift_down(qr_leaves *leaves, qr_node *nodes, uint32_t slot) {
    qr_node_id id = leaves->ids[slot];
    for (uint32_t child = 2 * slot + 1; child < leaves->count; child = 2 * slot + 1) {
        if (child + 1 < leaves->count && leaves_before(leaves, nodes, leaves->ids[child + 1], leaves->ids[child])) child++;
        if (!leaves_before(leaves, nodes, leaves->ids[child], id)) break;
        leaves_set(leaves, nodes, slot, leaves->ids[child]);
        slot = child;
    }
    leaves_set(leaves, nodes, slot, id);
}

void qr_leaves_insert(qr_leaves *leaves, qr_node *nodes, qr_node_id id) {
    QR_ASSERT(leaves->count < leaves->capacity && nodes[id].leaf_slot == QR_NODE_NONE);
    leaves_set(leaves, nodes, leaves->count++, id);
    if (leaves_ordered(leaves)) leaves_sift_up(leaves, nodes, leaves->count - 1);
}

void qr_leaves_remove(qr_leaves *leaves, qr_node *nodes, qr_node_id id) {
    uint32_t slot = nodes[id].leaf_slot;
    QR_ASSERT(slot < leaves->count && leaves->ids[slot] == id);
    qr_node_id last = leaves->ids[--leaves->count];
    nodes[id].leaf_slot = QR_NODE_NONE;
    if (last == id) return;
    leaves_set(leaves, nodes, slot, last);
    if (!leaves_ordered(leaves)) return;
    leaves_sift_up(leaves, nodes, slot);
    leaves_sift_down(leaves, nodes, nodes[last].leaf_slot);
}

static qr_node_id leaves_sample(qr_leaves *leaves, const qr_node *nodes) {
    bool all = leaves->count <= QR_LEAVES_SAMPLE;
    uint32_t tries = all ? leaves->count : QR_LEAVES_SAMPLE;
    qr_node_id worst = leaves->ids[0];
    for (uint32_t i = 0; i < tries; i++) {
        qr_node_id id = leaves->ids[all ? i : qr_random_below(&leaves->random, leaves->count)];
        if (i == 0 || leaves_before(leaves, nodes, id, worst)) worst = id;
    }
    return worst;
}

qr_node_id qr_leaves_worst(qr_leaves *leaves, const qr_node *nodes) {
    if (leaves->count == 0) return QR_NODE_NONE;
    return leaves_ordered(leaves) ? leaves->ids[0] : leaves_sample(leaves, nodes);
}

bool qr_leaves_check(const qr_leaves *leaves, const qr_node *nodes) {
    for (uint32_t i = 0; i < leaves->count; i++) {
        if (nodes[leaves->ids[i]].leaf_slot != i) return false;
        if (leaves_ordered(leaves) && i > 0 && leaves_before(leaves, nodes, leaves->ids[i], leaves->ids[(i - 1) / 2]))
            return false;
    }
    return true;
}
