#include "prefix_cache/leaves.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { NODES = 500 };

typedef struct leaves_rig {
    qr_policy policy;
    qr_leaves leaves;
    qr_node nodes[NODES];
    void *memory;
} leaves_rig;

static leaves_rig *leaves_create(quire_kv_policy kind) {
    leaves_rig *rig = calloc(1, sizeof *rig);
    qr_arena arena = {0};
    rig->policy.kind = kind;
    rig->policy.horizon_s = 30;
    qr_leaves_init(&rig->leaves, NODES, &rig->policy, 3, &arena);
    rig->memory = calloc(1, arena.used_bytes);
    arena = (qr_arena){.base = rig->memory, .size_bytes = arena.used_bytes};
    qr_leaves_init(&rig->leaves, NODES, &rig->policy, 3, &arena);
    for (uint32_t i = 0; i < NODES; i++)
        rig->nodes[i] = (qr_node){.leaf_slot = QR_NODE_NONE, .weight = 1, .touched = (i * 7919u) % NODES};
    return rig;
}

static void leaves_destroy(leaves_rig *rig) {
    cr_assert(qr_leaves_check(&rig->leaves, rig->nodes));
    free(rig->memory);
    free(rig);
}

Test(prefix_cache_leaves, lru_hands_them_out_in_order_also_after_removals) {
    leaves_rig *rig = leaves_create(QUIRE_KV_LRU);
    for (uint32_t i = 0; i < NODES; i++) qr_leaves_insert(&rig->leaves, rig->nodes, i);
    for (uint32_t i = 0; i < NODES; i += 3) qr_leaves_remove(&rig->leaves, rig->nodes, i);
    cr_assert(qr_leaves_check(&rig->leaves, rig->nodes));
    uint64_t last = 0;
    while (rig->leaves.count > 0) {
        qr_node_id worst = qr_leaves_worst(&rig->leaves, rig->nodes);
        cr_assert(rig->nodes[worst].touched >= last && worst % 3 != 0);
        last = rig->nodes[worst].touched;
        qr_leaves_remove(&rig->leaves, rig->nodes, worst);
    }
    cr_assert_eq(qr_leaves_worst(&rig->leaves, rig->nodes), QR_NODE_NONE);
    leaves_destroy(rig);
}

Test(prefix_cache_leaves, dlfu_is_exact_among_few_and_near_among_many) {
    leaves_rig *rig = leaves_create(QUIRE_KV_DLFU);
    for (uint32_t i = 0; i < QR_LEAVES_SAMPLE; i++) qr_leaves_insert(&rig->leaves, rig->nodes, i);
    for (uint32_t count = QR_LEAVES_SAMPLE; count > 0; count--) {
        qr_node_id worst = qr_leaves_worst(&rig->leaves, rig->nodes);
        for (uint32_t i = 0; i < rig->leaves.count; i++)
            cr_assert_geq(rig->nodes[rig->leaves.ids[i]].touched, rig->nodes[worst].touched);
        qr_leaves_remove(&rig->leaves, rig->nodes, worst);
    }
    for (uint32_t i = 0; i < NODES; i++) qr_leaves_insert(&rig->leaves, rig->nodes, i);
    uint64_t sum = 0;
    for (int i = 0; i < 200; i++) sum += rig->nodes[qr_leaves_worst(&rig->leaves, rig->nodes)].touched;
    cr_assert_lt(sum / 200, NODES / 16, "the lowest of 32 lies in the lowest thirty-third on average");
    leaves_destroy(rig);
}
