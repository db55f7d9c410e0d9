/* erasing.c - bytes in memory that an erasure must find gone.
 *
 * What a forget frees is overwritten at once. But pool, host tier and scratch also hold what was evicted, spilled or ended
 * earlier, and nobody knows whose it was: so an erasure owes all of it. Polls overwrite it, a bounded part each; whoever takes
 * a block or slot before has it overwritten first. What is in use pays when it is let go of: the rest of a block that a
 * sequence is filling, a slot or the scratch under a copy. Memory that the CPU cannot reach is not overwritten.
 */
#include <string.h>

#include "runtime/kv/kv_internal.h"

static bool slot_is_owed(const kv_slot *s) { return s->owed && !s->taken; }

void qr_kv_slot_wipe(quire_kv *kv, uint32_t slot) {
    kv_tiers *tiers = &kv->tiers;
    kv_slot *s = &tiers->slots[slot];
    memset(qr_host_arena_address(&tiers->host, slot), 0, (size_t)tiers->payload_bytes);
    tiers->owed_slots -= slot_is_owed(s);
    s->written = s->owed = false;
}

/* A slot that is filled and not being read holds its node's bytes and no others. */
static void erasing_owe_slots(kv_tiers *tiers) {
    for (uint32_t i = 0; i < tiers->host.slot_count; i++) {
        kv_slot *s = &tiers->slots[i];
        if (s->owed || !s->written || (s->taken && s->user_count == 0)) continue;
        s->owed = true;
        tiers->owed_slots += !s->taken;
    }
}

void qr_kv_erasing_begin(quire_kv *kv) {
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_pool_owe(&kv->pools[g]);
    erasing_owe_slots(&kv->tiers);
    kv->tiers.scratch_owed = kv->tiers.scratch != NULL;
}

static bool scratch_is_free(const kv_tiers *tiers) {
    for (uint32_t i = 0; i < KV_VERIFY_JOBS && tiers->jobs; i++)
        if (tiers->jobs[i].state == KV_VERIFY_COPYING) return false;
    return true;
}

static size_t erasing_wipe_scratch(kv_tiers *tiers) {
    if (!tiers->scratch_owed || !scratch_is_free(tiers)) return 0;
    memset(tiers->scratch, 0, (size_t)tiers->payload_bytes);
    tiers->scratch_owed = false;
    return (size_t)tiers->payload_bytes;
}

static size_t erasing_wipe_slots(quire_kv *kv, size_t wanted_bytes) {
    kv_tiers *tiers = &kv->tiers;
    size_t wiped_bytes = 0;
    while (tiers->owed_slots > 0 && wiped_bytes < wanted_bytes) {
        uint32_t slot = tiers->slot_hand;
        tiers->slot_hand = slot + 1 < tiers->host.slot_count ? slot + 1 : 0;
        if (!slot_is_owed(&tiers->slots[slot])) continue;
        qr_kv_slot_wipe(kv, slot);
        wiped_bytes += (size_t)tiers->payload_bytes;
    }
    return wiped_bytes;
}

bool qr_kv_erasing_poll(quire_kv *kv) {
    if (qr_kv_erasing_left(kv) == 0) return false;
    size_t wiped_bytes = erasing_wipe_scratch(&kv->tiers);
    for (uint32_t g = 0; g < kv->config.group_count && wiped_bytes < KV_WIPE_BYTES; g++)
        wiped_bytes += qr_pool_wipe_some(&kv->pools[g], KV_WIPE_BYTES - wiped_bytes);
    if (wiped_bytes < KV_WIPE_BYTES) wiped_bytes += erasing_wipe_slots(kv, KV_WIPE_BYTES - wiped_bytes);
    return wiped_bytes > 0;
}

uint32_t qr_kv_erasing_left(const quire_kv *kv) {
    uint32_t left = kv->tiers.owed_slots + kv->tiers.scratch_owed;
    for (uint32_t g = 0; g < kv->config.group_count; g++) left += kv->pools[g].owed_count;
    return left;
}
