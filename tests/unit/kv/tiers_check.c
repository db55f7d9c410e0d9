/* The proof of the lower tiers finds what it is there for. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK };

static quire_token prompt[PROMPT];

static void expect_damage(const tiers_rig *rig, const char *what) {
    quire_error error = {0};
    cr_assert_eq(quire_kv_check(rig->kv, &error), QUIRE_CORRUPT, "%s", what);
    cr_assert(strstr(error.text, what) != NULL, "found '%s' instead of '%s'", error.text, what);
}

static void expect_health(const tiers_rig *rig) {
    quire_error error;
    cr_assert_eq(quire_kv_check(rig->kv, &error), QUIRE_OK, "%s", error.text);
}

static qr_node_id node_at(const tiers_rig *rig, uint32_t depth) {
    qr_node_id node = 0;
    for (uint32_t i = 0; i < depth; i++) node = qr_tree_find(&rig->kv->tree, node, prompt + i * RIG_BLOCK);
    cr_assert_neq(node, QR_NODE_NONE);
    return node;
}

/* Four of ten blocks are stored, with slots and without records. */
static tiers_rig rig_open_host(bool store) {
    tiers_rig rig = tiers_rig_make();
    rig.no_store = !store;
    rig.host_slots = 6;
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 4);
    tiers_rig_settle(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 4 * RIG_BLOCK);
    return rig;
}

Test(kv_tiers_check, slots) {
    tiers_rig rig = rig_open_host(false);
    kv_tiers *tiers = &rig.kv->tiers;
    qr_node_copies *copies = rig.kv->tree.store.copies;
    qr_node_id a = node_at(&rig, 10), b = node_at(&rig, 9), resident = node_at(&rig, 6);
    uint32_t slot = copies[a].host;
    copies[a].host = copies[b].host, expect_damage(&rig, "another's too"), copies[a].host = slot;
    copies[a].host = 99, expect_damage(&rig, "not taken"), copies[a].host = slot;
    copies[resident].host = slot, expect_damage(&rig, "not stored has a slot"), copies[resident].host = QR_COPY_NONE;
    tiers->slots[slot].taken = false, expect_damage(&rig, "not taken"), tiers->slots[slot].taken = true;
    tiers->slots[slot].orphan = true, expect_damage(&rig, "let go of"), tiers->slots[slot].orphan = false;
    tiers->slots[slot].user_count++, expect_damage(&rig, "its users"), tiers->slots[slot].user_count--;
    tiers->host.free_count--, expect_damage(&rig, "the count is wrong"), tiers->host.free_count++;
    for (uint32_t i = 0; i < tiers->sizes.slot_count; i++) {
        if (tiers->slots[i].taken) continue;
        tiers->slots[i].taken = true, expect_damage(&rig, "taken by nobody");
        tiers->slots[i].orphan = true, expect_damage(&rig, "let go of and not free");
        tiers->slots[i] = (kv_slot){0};
    }
    expect_health(&rig);
    tiers_rig_close(&rig);
}

/* A leaf's slot decides whether the tree may give it up, so the tree must not see it. */
Test(kv_tiers_check, a_node_that_is_stored_nowhere) {
    tiers_rig rig = rig_open_host(false);
    qr_node_copies *copies = rig.kv->tree.store.copies;
    qr_node_id inner = node_at(&rig, 8);
    uint32_t slot = copies[inner].host;
    copies[inner].host = QR_COPY_NONE;
    expect_damage(&rig, "stored, and nowhere");
    copies[inner].host = slot;
    expect_health(&rig);
    tiers_rig_close(&rig);
}

Test(kv_tiers_check, records) {
    tiers_rig rig = tiers_rig_make();
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    kv_tiers *tiers = &rig.kv->tiers;
    qr_node_copies *copies = rig.kv->tree.store.copies;
    qr_node_id first = node_at(&rig, 1), last = node_at(&rig, 10);
    uint32_t record = copies[last].record, other = copies[first].record;
    copies[last].record = other, expect_damage(&rig, "another's too"), copies[last].record = record;
    copies[last].record = 64, expect_damage(&rig, "none of ours"), copies[last].record = record;
    copies[last].record = QR_COPY_NONE, expect_damage(&rig, "belongs to no node"), copies[last].record = record;
    copies[first].record = QR_COPY_NONE, expect_damage(&rig, "its parent has none"), copies[first].record = other;
    tiers->records[record] = KV_RECORD_NONE, expect_damage(&rig, "none of ours"), tiers->records[record] = KV_RECORD_PUBLISHED;
    tiers->begun_count++, expect_damage(&rig, "the count of those begun"), tiers->begun_count--;
    tiers->records[record] = KV_RECORD_BEGUN, expect_damage(&rig, "the count of those begun");
    tiers->records[record] = KV_RECORD_PUBLISHED;
    expect_health(&rig);
    tiers_rig_close(&rig);
}

Test(kv_tiers_check, loads) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig_count_up(prompt, PROMPT, 1);
    rig.store.read_buffers = 2;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 100);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    kv_tiers *tiers = &rig.kv->tiers;
    kv_load *l = &tiers->loads[seq.index];
    cr_assert(l->asked == 8 && l->read_count == 2);
    l->read_count++, expect_damage(&rig, "its places"), l->read_count--;
    l->arrived_count++, expect_damage(&rig, "its places"), l->arrived_count--;
    l->copy_count++, expect_damage(&rig, "its places"), l->copy_count--;
    l->asked = 11, expect_damage(&rig, "not in order"), l->asked = 8;
    l->end = 11, expect_damage(&rig, "not in order"), l->end = 10;
    l->end = 9, expect_damage(&rig, "behind its end"), l->end = 10;
    tiers->read_count++, expect_damage(&rig, "the count is wrong"), tiers->read_count--;
    tiers->load_count--, expect_damage(&rig, "locked"), tiers->load_count++; /* its locks are nobody's then */
    tiers->loads[7].active = true, expect_damage(&rig, "not listed"), tiers->loads[7].active = false;
    l->active = false, expect_damage(&rig, "listed and not active"), l->active = true;
    qr_node_id *nodes = kv_load_node(tiers, seq.index, 0), second = nodes[1], third = nodes[2];
    nodes[1] = third, nodes[2] = second, expect_damage(&rig, "path is broken"), nodes[1] = second, nodes[2] = third;
    expect_health(&rig);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* References of copies and comparisons are part of the pool's. */
Test(kv_tiers_check, copies_under_way) {
    tiers_rig rig = tiers_rig_make();
    rig.no_store = true;
    rig.host_slots = 12;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 4, .delay_polls_max = 400};
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 4);
    cr_assert_eq(rig.kv->tiers.gathers.count, 4);
    rig.kv->tiers.gathers.count--, expect_damage(&rig, "references"), rig.kv->tiers.gathers.count++;
    expect_health(&rig);
    tiers_rig_settle(&rig);
    tiers_rig_close(&rig);
}
