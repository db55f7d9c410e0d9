/* loads.c - loads as the owner of a sequence sees them: plan, begin, how far it is, take, give up. */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

/* Before anything is measured: how long the first byte takes. */
enum { LOAD_HOST_LATENCY_US = 20, LOAD_DISK_LATENCY_US = 200 };

static kv_load *load_of(const quire_kv *kv, uint32_t row) { return &kv->tiers.loads[row]; }

/* The first block that no committed token lies in. */
static uint32_t load_floor(const quire_kv *kv, uint32_t row) { return qr_kv_blocks_for(kv, kv->sequences[row].token_count); }

/* ---- what could be loaded ---- */

static bool node_is_loadable(const quire_kv *kv, qr_node_id node) {
    if (!qr_tree_is_stored(&kv->tree, node)) return false;
    uint32_t record = qr_tree_record(&kv->tree, node);
    return qr_tree_host(&kv->tree, node) != QR_COPY_NONE ||
           (record != QR_COPY_NONE && kv->tiers.records[record] == KV_RECORD_PUBLISHED);
}

uint32_t qr_kv_stored_run(const quire_kv *kv, qr_node_id from, const quire_token *words, uint32_t blocks, qr_node_id *node) {
    uint32_t count = 0;
    *node = from;
    while (count < blocks && qr_tree_has_stored_children(&kv->tree, *node)) {
        qr_node_id child = qr_tree_find(&kv->tree, *node, words + (uint64_t)count * kv->config.block_tokens);
        if (child == QR_NODE_NONE || !node_is_loadable(kv, child)) break;
        *node = child;
        count++;
    }
    return count;
}

/* Nodes that go on from the sequence's tip, resident ones first (somebody else has computed them since: they are taken without
 * a load), into nodes[place] when that is not NULL. */
static void load_follow(const quire_kv *kv, uint32_t row, const quire_token *tokens, uint32_t end, qr_node_id *nodes,
                        quire_kv_load *load) {
    const kv_sequence *sequence = &kv->sequences[row];
    qr_node_id node = sequence->tip;
    uint32_t place = sequence->node_count;
    *load = (quire_kv_load){.begin_block = load_floor(kv, row)};
    for (; place < end; place++) {
        node = qr_tree_find(&kv->tree, node, tokens + (uint64_t)place * kv->config.block_tokens);
        if (node == QR_NODE_NONE) break;
        bool loadable = node_is_loadable(kv, node);
        if (!loadable && !qr_tree_is_resident(&kv->tree, node)) break;
        if (nodes) nodes[place] = node;
        if (!loadable || place < load->begin_block) continue;
        if (qr_tree_host(&kv->tree, node) != QR_COPY_NONE) load->host_blocks++;
        else load->disk_blocks++;
    }
    load->end_block = place > load->begin_block ? place : load->begin_block;
}

static uint64_t load_tier_us(const quire_kv *kv, quire_kv_tier tier, uint32_t blocks, uint32_t queued, uint64_t latency_us) {
    const kv_tiers *tiers = &kv->tiers;
    if (blocks == 0) return 0;
    double speed = qr_rate_estimate(&tiers->rates[tier], qr_kv_now_us(kv));
    return latency_us + qr_rate_time_us(speed, (uint64_t)(blocks + queued) * tiers->rate_bytes);
}

/* Blocks that the loads that go before have not asked for yet; what their owners have computed they never will. */
static void load_count_before(const quire_kv *kv, uint32_t *host_blocks, uint32_t *disk_blocks) {
    *host_blocks = *disk_blocks = 0;
    for (uint32_t i = 0; i < kv->tiers.load_count; i++) {
        uint32_t row = kv->tiers.load_list[i], floor = load_floor(kv, row);
        const kv_load *l = load_of(kv, row);
        uint32_t left = l->asked > floor && !l->abandoned ? l->asked - floor : 0;
        *host_blocks += l->host_left < left ? l->host_left : left;
        *disk_blocks += l->disk_left < left ? l->disk_left : left;
    }
}

/* Both tiers work at the same time. */
static uint64_t load_estimate_us(const quire_kv *kv, const quire_kv_load *load) {
    const kv_tiers *tiers = &kv->tiers;
    uint32_t host, disk;
    load_count_before(kv, &host, &disk);
    uint64_t host_us =
        load_tier_us(kv, QUIRE_KV_TIER_HOST, load->host_blocks, host + tiers->scatters.count, LOAD_HOST_LATENCY_US);
    uint64_t disk_us = load_tier_us(kv, QUIRE_KV_TIER_DISK, load->disk_blocks, disk + tiers->read_count, LOAD_DISK_LATENCY_US);
    return host_us > disk_us ? host_us : disk_us;
}

/* The sequence stands on its path, and these are its tokens so far. */
static bool load_fits(const quire_kv *kv, const kv_sequence *sequence, const quire_token *tokens, uint32_t count) {
    return !sequence->forgotten && sequence->node_count == sequence->token_count / kv->config.block_tokens &&
           count >= sequence->token_count &&
           memcmp(tokens, qr_kv_sequence_tokens(kv, sequence), sequence->token_count * sizeof *tokens) == 0;
}

quire_status quire_kv_load_plan(const quire_kv *kv, quire_seq_id seq, const quire_token *tokens, uint32_t count, uint32_t limit,
                                quire_kv_load *load) {
    const kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    uint32_t wanted = count < limit ? count : limit;
    *load = (quire_kv_load){0};
    if (!sequence) return QUIRE_NOT_FOUND;
    load->begin_block = load->end_block = qr_kv_blocks_for(kv, sequence->token_count);
    if (wanted > qr_kv_sequence_room(kv, sequence)) return QUIRE_INVALID;
    if (!kv->tiers.present || !load_fits(kv, sequence, tokens, wanted)) return QUIRE_OK;
    load_follow(kv, seq.index, tokens, wanted / kv->config.block_tokens, NULL, load);
    load->estimate_us = load_estimate_us(kv, load);
    return QUIRE_OK;
}

/* ---- begin and end ---- */

static void load_list_add(quire_kv *kv, uint32_t row) {
    load_of(kv, row)->list_place = kv->tiers.load_count;
    kv->tiers.load_list[kv->tiers.load_count++] = row;
}

static void load_list_remove(quire_kv *kv, uint32_t row) {
    kv_tiers *tiers = &kv->tiers;
    uint32_t place = load_of(kv, row)->list_place, count = --tiers->load_count;
    for (; place < count; place++) {
        tiers->load_list[place] = tiers->load_list[place + 1];
        load_of(kv, tiers->load_list[place])->list_place = place;
    }
}

/* The way down to the first node that it reads, which the sequence holds as well; then all of it, as any user of a node. */
static void load_lock(quire_kv *kv, uint32_t row) {
    kv_load *l = load_of(kv, row);
    qr_node_id node = kv->sequences[row].tip;
    for (uint32_t place = kv->sequences[row].node_count; place-- > 0; node = qr_tree_parent(&kv->tree, node))
        *kv_load_node(&kv->tiers, row, place) = node;
    for (uint32_t place = 0; place < l->limit; place++) qr_tree_lock(&kv->tree, *kv_load_node(&kv->tiers, row, place));
    l->locks = true;
}

static void load_unlock(quire_kv *kv, uint32_t row) {
    kv_load *l = load_of(kv, row);
    for (uint32_t place = l->limit; place-- > 0 && l->locks;) qr_tree_unlock(&kv->tree, *kv_load_node(&kv->tiers, row, place));
    l->locks = false;
}

quire_status quire_kv_load_begin(quire_kv *kv, quire_seq_id seq, const quire_token *tokens, const quire_kv_load *load,
                                 bool verify) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    quire_kv_load found;
    if (!sequence) return QUIRE_NOT_FOUND;
    uint32_t row = seq.index, bt = kv->config.block_tokens, end = load->end_block;
    if (!kv->tiers.present || load_of(kv, row)->active || load->begin_block != load_floor(kv, row) || end < load->begin_block ||
        (uint64_t)end * bt > qr_kv_sequence_room(kv, sequence) ||
        !load_fits(kv, sequence, tokens, end * bt > sequence->token_count ? end * bt : sequence->token_count))
        return QUIRE_INVALID;
    load_follow(kv, row, tokens, end, kv_load_node(&kv->tiers, row, 0), &found); /* some of it may have gone since the plan */
    kv_load *l = load_of(kv, row);
    end = found.end_block;
    *l = (kv_load){.serial = l->serial + 1,
                   .begin = found.begin_block,
                   .end = end,
                   .limit = end,
                   .asked = end,
                   .host_left = found.host_blocks,
                   .disk_left = found.disk_blocks};
    l->verify = verify;
    l->active = !verify && end > l->begin;
    if (!l->active) return QUIRE_OK;
    kv->tiers.slower = false;
    memset(kv_load_place(&kv->tiers, row, l->begin), KV_PLACE_NONE, end - l->begin);
    qr_kv_sequence_put_tokens(kv, sequence, sequence->token_count, tokens + sequence->token_count,
                              end * bt - sequence->token_count);
    load_lock(kv, row);
    load_list_add(kv, row);
    return QUIRE_OK;
}

void qr_kv_load_end(quire_kv *kv, uint32_t row) {
    if (!kv->tiers.present) return;
    kv_load *l = load_of(kv, row);
    l->verify = false;
    if (!l->active) return;
    load_unlock(kv, row);
    load_list_remove(kv, row);
    l->active = false;
    l->serial++;
    kv->tiers.changed = true;
}

void qr_kv_load_drop(quire_kv *kv, uint32_t row) {
    if (!kv->tiers.present) return;
    kv_load *l = load_of(kv, row);
    l->verify = false;
    if (!l->active) return;
    load_unlock(kv, row);
    qr_kv_load_fail(kv, row, l->begin, QUIRE_KV_MISS_EVICTED);
}

/* ---- how far it is ---- */

/* The first block that may not be computed: it is there, or on its way. The limit when there is none. */
static uint32_t load_front(const quire_kv *kv, uint32_t row) {
    const kv_load *l = load_of(kv, row);
    uint32_t front = load_floor(kv, row);
    if (front < l->asked) front = l->asked;
    while (front < l->limit && kv_place_state(*kv_load_place(&kv->tiers, row, front)) == KV_PLACE_NONE) front++;
    return front;
}

static uint32_t load_arrived_run(const quire_kv *kv, uint32_t row) {
    const kv_load *l = load_of(kv, row);
    uint32_t from = l->end;
    while (from > l->begin && kv_place_state(*kv_load_place(&kv->tiers, row, from - 1)) == KV_PLACE_ARRIVED) from--;
    return l->end - from;
}

/* Until what is on its way from a tier is there, all loads' together: they share it. */
static uint64_t load_coming_us(const quire_kv *kv, quire_kv_tier tier, uint32_t blocks) {
    const qr_rate *rate = &kv->tiers.rates[tier];
    if (blocks == 0) return 0;
    if (rate->bytes_per_second == 0.0) return UINT64_MAX;
    return qr_rate_time_us(qr_rate_estimate(rate, qr_kv_now_us(kv)), blocks * kv->tiers.rate_bytes);
}

void quire_kv_load_get_state(const quire_kv *kv, quire_seq_id seq, quire_kv_load_state *state) {
    const kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    *state = (quire_kv_load_state){0};
    if (!sequence) return;
    uint32_t bt = kv->config.block_tokens, row = seq.index;
    state->front_tokens = qr_kv_sequence_room(kv, sequence);
    if (!kv->tiers.present) return;
    const kv_load *l = load_of(kv, row);
    state->host_tokens = l->host_tokens;
    state->disk_tokens = l->disk_tokens;
    state->failed = l->failed;
    state->cause = l->cause;
    if (!l->active) return;
    uint32_t front = load_front(kv, row);
    state->active = true;
    if (front < l->limit) state->front_tokens = front * bt;
    state->loaded_tokens = load_arrived_run(kv, row) * bt;
    state->coming_tokens = (l->read_count + l->copy_count) * bt;
    uint64_t disk_us = load_coming_us(kv, QUIRE_KV_TIER_DISK, l->read_count ? kv->tiers.read_count : 0);
    uint64_t host_us = load_coming_us(kv, QUIRE_KV_TIER_HOST, l->copy_count ? kv->tiers.scatters.count : 0);
    state->coming_us = disk_us > host_us ? disk_us : host_us;
}

void quire_kv_load_computing(quire_kv *kv, quire_seq_id seq, uint32_t token_count) {
    const kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (sequence && kv->tiers.present) load_of(kv, seq.index)->computing = token_count;
}

/* ---- taking ---- */

static void load_count_hit(quire_kv *kv, kv_load *l, uint8_t place) {
    uint32_t bt = kv->config.block_tokens;
    bool arrived = kv_place_state(place) == KV_PLACE_ARRIVED, host = (place & KV_PLACE_HOST) != 0;
    quire_kv_tier tier = !arrived ? QUIRE_KV_TIER_DEVICE : host ? QUIRE_KV_TIER_HOST : QUIRE_KV_TIER_DISK;
    kv->tiers.counters[tier].hit_tokens += bt;
    if (tier == QUIRE_KV_TIER_HOST) l->host_tokens += bt;
    if (tier == QUIRE_KV_TIER_DISK) l->disk_tokens += bt;
}

/* The block where the committed tokens end, when it is there: loaded, or computed by somebody else meanwhile. */
static bool load_take_one(quire_kv *kv, kv_sequence *sequence, uint32_t row) {
    kv_load *l = load_of(kv, row);
    uint32_t bt = kv->config.block_tokens, place = sequence->token_count / bt;
    if (sequence->token_count % bt != 0 || place >= l->end) return false;
    qr_node_id node = *kv_load_node(&kv->tiers, row, place);
    uint8_t mark = *kv_load_place(&kv->tiers, row, place);
    bool resident = qr_tree_is_resident(&kv->tree, node), arrived = kv_place_state(mark) == KV_PLACE_ARRIVED;
    if (!arrived && !resident) return false;
    load_count_hit(kv, l, mark);
    qr_kv_load_set_place(kv, row, place, KV_PLACE_NONE);
    sequence->token_count += bt;
    qr_kv_sequence_enter_block(kv, sequence);
    qr_kv_touch_record(kv, sequence->tip);
    l->begin = place + 1;
    return true;
}

uint32_t quire_kv_load_take(quire_kv *kv, quire_seq_id seq) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence || !kv->tiers.present || !load_of(kv, seq.index)->active) return 0;
    uint32_t before = sequence->token_count;
    load_of(kv, seq.index)->computing = 0;
    while (load_take_one(kv, sequence, seq.index)) continue;
    qr_kv_load_finish(kv, seq.index);
    return sequence->token_count - before;
}

void quire_kv_load_abandon(quire_kv *kv, quire_seq_id seq) {
    const kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence || !kv->tiers.present || !load_of(kv, seq.index)->active) return;
    kv_load *l = load_of(kv, seq.index);
    if (l->read_count > 0) qr_rate_give_up(&kv->tiers.rates[QUIRE_KV_TIER_DISK], kv->tiers.rate_bytes / 2, qr_kv_now_us(kv));
    for (uint32_t place = l->asked; place < l->end && l->read_count > 0; place++)
        if (kv_place_state(*kv_load_place(&kv->tiers, seq.index, place)) == KV_PLACE_READING)
            qr_kv_load_set_place(kv, seq.index, place, KV_PLACE_NONE);
    l->abandoned = true;
    qr_kv_load_finish(kv, seq.index);
}

/* ---- commits meanwhile ---- */

bool qr_kv_load_allows(quire_kv *kv, uint32_t row, const quire_token *tokens, uint32_t count) {
    const kv_sequence *sequence = &kv->sequences[row];
    uint32_t bt = kv->config.block_tokens, end = qr_kv_blocks_for(kv, sequence->token_count + count);
    const kv_load *l = load_of(kv, row);
    for (uint32_t place = l->begin; place < end && place < l->limit && l->copy_count > 0; place++) {
        uint8_t state = kv_place_state(*kv_load_place(&kv->tiers, row, place));
        if (state == KV_PLACE_COPYING || state == KV_PLACE_DROPPING) return false;
    }
    uint64_t ahead = (uint64_t)l->limit * bt > sequence->token_count ? (uint64_t)l->limit * bt - sequence->token_count : 0;
    const quire_token *expected = qr_kv_sequence_tokens(kv, sequence) + sequence->token_count;
    if (memcmp(expected, tokens, (size_t)(count < ahead ? count : ahead) * sizeof *tokens) != 0) qr_kv_load_drop(kv, row);
    return true;
}

void qr_kv_load_passed(quire_kv *kv, uint32_t row) {
    kv_load *l = load_of(kv, row);
    for (uint32_t floor = load_floor(kv, row); l->begin < floor && l->begin < l->limit; l->begin++)
        if (*kv_load_place(&kv->tiers, row, l->begin) != KV_PLACE_NONE) qr_kv_load_set_place(kv, row, l->begin, KV_PLACE_NONE);
    qr_kv_load_finish(kv, row);
}

bool qr_kv_load_verifies(const quire_kv *kv, uint32_t row, uint32_t place) {
    if (!kv->tiers.present) return false;
    const kv_load *l = load_of(kv, row);
    return l->verify && place >= l->begin && place < l->end;
}

/* ---- what it reads is lost ---- */

void qr_kv_loads_hurt(quire_kv *kv, qr_node_id node) {
    uint32_t place = kv->tree.store.nodes[node].depth - 1;
    for (uint32_t i = 0; i < kv->tiers.load_count; i++) {
        uint32_t row = kv->tiers.load_list[i];
        kv_load *l = load_of(kv, row);
        if (l->locks && place < l->limit && *kv_load_node(&kv->tiers, row, place) == node) l->hurt = true;
    }
}

/* The first block that cannot be had any more. One that was read before its record went has proved itself. */
static uint32_t load_first_lost(const quire_kv *kv, uint32_t row) {
    const kv_load *l = load_of(kv, row);
    for (uint32_t place = l->begin; place < l->end; place++) {
        uint8_t state = kv_place_state(*kv_load_place(&kv->tiers, row, place));
        bool waits = state == KV_PLACE_NONE || state == KV_PLACE_READING;
        if (waits && qr_tree_is_ghost(&kv->tree, *kv_load_node(&kv->tiers, row, place))) return place;
    }
    return l->end;
}

void qr_kv_loads_heal(quire_kv *kv) {
    for (uint32_t i = kv->tiers.load_count; i-- > 0;) { /* from the back: one that ends leaves the list */
        uint32_t row = kv->tiers.load_list[i];
        kv_load *l = load_of(kv, row);
        if (!l->hurt || !l->locks) continue;
        l->hurt = false;
        uint32_t lost = load_first_lost(kv, row);
        if (lost == l->end || l->abandoned) continue;
        bool damaged = qr_tree_cause(&kv->tree, *kv_load_node(&kv->tiers, row, lost)) == QR_GHOST_DAMAGED;
        qr_kv_load_fail(kv, row, lost, damaged ? QUIRE_KV_MISS_DAMAGED : QUIRE_KV_MISS_EVICTED);
    }
}
