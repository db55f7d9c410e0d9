/* Sequences: their tokens, their block tables, and their path of locked nodes in the tree. */
#include <string.h>

#include "base/assertion.h"
#include "runtime/kv/kv_internal.h"

void qr_kv_sequences_init(quire_kv *kv) {
    for (uint32_t i = 0; i < kv->config.max_sequences; i++)
        kv->sequences[i] =
            (kv_sequence){.generation = 1, .next_free = i + 1 < kv->config.max_sequences ? i + 1 : KV_INDEX_NONE};
    kv->free_sequence = 0;
}

uint32_t qr_kv_blocks_for(const quire_kv *kv, uint32_t tokens) {
    return tokens / kv->config.block_tokens + (tokens % kv->config.block_tokens != 0);
}

kv_sequence *qr_kv_sequence_find(const quire_kv *kv, quire_seq_id seq) {
    if (seq.index >= kv->config.max_sequences) return NULL;
    kv_sequence *sequence = &kv->sequences[seq.index];
    return sequence->live && sequence->generation == seq.generation ? sequence : NULL;
}

static uint32_t sequence_row(const quire_kv *kv, const kv_sequence *sequence) { return (uint32_t)(sequence - kv->sequences); }

quire_token *qr_kv_sequence_tokens(const quire_kv *kv, const kv_sequence *sequence) {
    return kv->tokens + (uint64_t)sequence_row(kv, sequence) * kv->token_capacity;
}

void qr_kv_sequence_put_tokens(quire_kv *kv, kv_sequence *sequence, uint32_t from, const quire_token *tokens, uint32_t count) {
    if (count == 0) return;
    memcpy(qr_kv_sequence_tokens(kv, sequence) + from, tokens, count * sizeof *tokens);
    if (sequence->token_high < from + count) sequence->token_high = from + count;
}

/* All groups hold the same positions, so the first one's table is as long as any. */
static uint32_t sequence_blocks(const quire_kv *kv, const kv_sequence *sequence) {
    return qr_block_table_length(&kv->tables[0], sequence_row(kv, sequence));
}

/* The last committed block is part-filled and not this sequence's alone: it must be copied before it is written. */
static bool sequence_must_copy(const quire_kv *kv, const kv_sequence *sequence) {
    if (sequence->token_count % kv->config.block_tokens == 0) return false;
    const quire_block_id *ids = qr_block_table_ids(&kv->tables[0], sequence_row(kv, sequence));
    return !qr_pool_is_private(&kv->pools[0], ids[sequence->token_count / kv->config.block_tokens]);
}

uint32_t qr_kv_sequence_room(const quire_kv *kv, const kv_sequence *sequence) {
    if (sequence_must_copy(kv, sequence)) return sequence->token_count;
    uint64_t room = (uint64_t)sequence_blocks(kv, sequence) * kv->config.block_tokens;
    return room < kv->token_capacity ? (uint32_t)room : kv->token_capacity;
}

/* ---- life ---- */

static kv_sequence *sequence_open(quire_kv *kv, quire_namespace_id ns, quire_seq_id *seq) {
    uint32_t index = kv->free_sequence;
    *seq = (quire_seq_id){0};
    if (index == KV_INDEX_NONE) return NULL;
    kv_sequence *sequence = &kv->sequences[index];
    kv->free_sequence = sequence->next_free;
    *sequence = (kv_sequence){.generation = sequence->generation, .live = true, .ns = ns, .tip = ns};
    kv->namespaces.entries[ns].sequence_count++;
    kv->sequence_count++;
    *seq = (quire_seq_id){index, sequence->generation};
    return sequence;
}

quire_status quire_kv_seq_open(quire_kv *kv, quire_namespace_id ns, quire_seq_id *seq) {
    *seq = (quire_seq_id){0};
    if (!qr_kv_namespace_valid(kv, ns)) return QUIRE_NOT_FOUND;
    return sequence_open(kv, ns, seq) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static void sequence_unlock_tip(quire_kv *kv, kv_sequence *sequence) {
    qr_node_id parent = qr_tree_parent(&kv->tree, sequence->tip);
    qr_tree_unlock(&kv->tree, sequence->tip);
    sequence->tip = parent;
    sequence->node_count--;
}

/* A load ends here: all blocks that it fills lie behind the committed tokens. */
static void sequence_truncate(quire_kv *kv, kv_sequence *sequence, uint32_t token_count) {
    uint32_t blocks = qr_kv_blocks_for(kv, token_count);
    qr_kv_load_end(kv, sequence_row(kv, sequence));
    if (sequence->wipe) qr_kv_transfers_wipe(kv);
    for (uint32_t g = 0; g < kv->config.group_count; g++)
        qr_block_table_truncate(&kv->tables[g], &kv->pools[g], sequence_row(kv, sequence), blocks, sequence->wipe);
    while (sequence->node_count > blocks) sequence_unlock_tip(kv, sequence);
    sequence->token_count = token_count;
}

quire_status quire_kv_seq_truncate(quire_kv *kv, quire_seq_id seq, uint32_t token_count) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence) return QUIRE_NOT_FOUND;
    if (token_count > sequence->token_count) return QUIRE_INVALID;
    sequence_truncate(kv, sequence, token_count);
    return QUIRE_OK;
}

quire_status quire_kv_seq_close(quire_kv *kv, quire_seq_id seq) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence) return QUIRE_NOT_FOUND;
    qr_tree_mark_end(&kv->tree, sequence->tip);
    sequence_truncate(kv, sequence, 0);
    qr_wipe(qr_kv_sequence_tokens(kv, sequence), sequence->token_high * sizeof(quire_token));
    qr_kv_forget_copies(kv);
    kv->namespaces.entries[sequence->ns].sequence_count--;
    kv->sequence_count--;
    sequence->live = false;
    if (++sequence->generation == 0) sequence->generation = 1;
    sequence->next_free = kv->free_sequence;
    kv->free_sequence = seq.index;
    qr_kv_namespace_let_go(kv, sequence->ns);
    return QUIRE_OK;
}

quire_status quire_kv_seq_forget(quire_kv *kv, quire_seq_id seq, bool wipe) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence) return QUIRE_NOT_FOUND;
    if (sequence_blocks(kv, sequence) > 0) return QUIRE_INVALID;
    qr_kv_sequence_forget(sequence, wipe);
    kv->namespaces.entries[sequence->ns].forgotten |= wipe; /* it may have been opened after all was forgotten */
    return QUIRE_OK;
}

/* Also one without a token yet: its owner has the text already. */
void qr_kv_sequence_forget(kv_sequence *sequence, bool wipe) {
    sequence->forgotten = true;
    sequence->wipe |= wipe;
    sequence->node_count = 0;
    sequence->tip = sequence->ns;
}

/* ---- attach ---- */

/* Shares one node: a lock, and a reference and a place in the table of every group. */
static void sequence_share_node(quire_kv *kv, uint32_t row, uint32_t place, qr_node_id node) {
    const quire_block_id *blocks = qr_tree_blocks(&kv->tree, node);
    qr_tree_lock(&kv->tree, node);
    qr_tree_touch(&kv->tree, node);
    qr_kv_touch_record(kv, node);
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        qr_pool_ref(&kv->pools[g], blocks[g]);
        qr_block_table_replace(&kv->tables[g], row, place, blocks[g]);
    }
}

/* From the tip up: the tree knows parents. */
static void sequence_attach_path(quire_kv *kv, kv_sequence *sequence, const qr_tree_match *found) {
    uint32_t row = sequence_row(kv, sequence);
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_block_table_extend(&kv->tables[g], row, found->block_count);
    qr_node_id node = found->node;
    for (uint32_t place = found->block_count; place-- > 0; node = qr_tree_parent(&kv->tree, node))
        sequence_share_node(kv, row, place, node);
    sequence->tip = found->node;
    sequence->node_count = found->block_count;
}

static void sequence_append_fresh(quire_kv *kv, uint32_t row, quire_block_id blocks[QUIRE_KV_GROUPS_MAX]) {
    qr_kv_take_blocks(kv, blocks);
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_block_table_append(&kv->tables[g], row, blocks[g]);
}

/* Copies the block that holds the tail into a fresh one. The source is in use meanwhile, so that making room cannot evict
 * it. False when no block can be had. */
static bool sequence_attach_tail(quire_kv *kv, kv_sequence *sequence, qr_node_id node) {
    const quire_block_id *source = qr_tree_blocks(&kv->tree, node);
    quire_block_id fresh[QUIRE_KV_GROUPS_MAX];
    qr_tree_lock(&kv->tree, node);
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_pool_ref(&kv->pools[g], source[g]);
    bool possible = qr_kv_can_copy(kv) && qr_kv_make_room(kv, 1);
    if (possible) {
        sequence_append_fresh(kv, sequence_row(kv, sequence), fresh);
        qr_kv_copy_blocks(kv, source, fresh);
    }
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        quire_status status = qr_pool_unref(&kv->pools[g], source[g], NULL);
        QR_ASSERT(status == QUIRE_OK);
    }
    qr_tree_unlock(&kv->tree, node);
    return possible;
}

quire_status quire_kv_seq_attach(quire_kv *kv, quire_seq_id seq, const quire_token *tokens, uint32_t count, uint32_t limit,
                                 quire_kv_match *match) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    qr_tree_match found;
    *match = (quire_kv_match){0};
    if (!sequence) return QUIRE_NOT_FOUND;
    if (sequence_blocks(kv, sequence) > 0) return QUIRE_INVALID;
    qr_kv_match(kv, sequence->ns, tokens, count, limit < kv->token_capacity ? limit : kv->token_capacity, match, &found);
    sequence_attach_path(kv, sequence, &found);
    if (match->tail_tokens > 0 && !sequence_attach_tail(kv, sequence, found.tail_node)) {
        match->token_count -= match->tail_tokens;
        match->tail_tokens = 0;
    }
    sequence->token_count = match->token_count;
    qr_kv_sequence_put_tokens(kv, sequence, 0, tokens, match->token_count);
    kv->counters.lookups++;
    kv->counters.lookup_tokens += count;
    kv->counters.hit_tokens += match->token_count;
    return QUIRE_OK;
}

/* ---- reserve ---- */

/* Gives the sequence a private copy of its shared, part-filled last block. */
static void sequence_copy_last(quire_kv *kv, kv_sequence *sequence) {
    uint32_t row = sequence_row(kv, sequence), place = sequence->token_count / kv->config.block_tokens;
    quire_block_id fresh[QUIRE_KV_GROUPS_MAX], shared[QUIRE_KV_GROUPS_MAX] = {0};
    qr_kv_take_blocks(kv, fresh);
    for (uint32_t g = 0; g < kv->config.group_count; g++)
        shared[g] = qr_block_table_replace(&kv->tables[g], row, place, fresh[g]);
    qr_kv_copy_blocks(kv, shared, fresh);
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        quire_status status = qr_pool_unref(&kv->pools[g], shared[g], NULL);
        QR_ASSERT(status == QUIRE_OK);
    }
    if (sequence->node_count > place) sequence_unlock_tip(kv, sequence);
}

quire_status quire_kv_seq_reserve(quire_kv *kv, quire_seq_id seq, uint32_t token_count) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence) return QUIRE_NOT_FOUND;
    if (token_count > kv->token_capacity) return QUIRE_TOO_LARGE;
    uint32_t have = sequence_blocks(kv, sequence), wanted = qr_kv_blocks_for(kv, token_count);
    uint32_t more = wanted > have ? wanted - have : 0;
    bool copy = token_count > sequence->token_count && sequence_must_copy(kv, sequence);
    if (copy && !qr_kv_can_copy(kv)) return QUIRE_QUEUE_FULL;
    if (!qr_kv_make_room(kv, more + copy)) return QUIRE_NO_BLOCKS;
    if (copy) sequence_copy_last(kv, sequence);
    quire_block_id fresh[QUIRE_KV_GROUPS_MAX];
    for (uint32_t i = 0; i < more; i++) sequence_append_fresh(kv, sequence_row(kv, sequence), fresh);
    return QUIRE_OK;
}

/* ---- commit ---- */

/* An equal block is in the tree: the sequence goes on with it and frees its own. */
static void sequence_adopt_node(quire_kv *kv, kv_sequence *sequence, qr_node_id node) {
    const quire_block_id *blocks = qr_tree_blocks(&kv->tree, node);
    uint32_t row = sequence_row(kv, sequence), place = sequence->node_count;
    qr_tree_lock(&kv->tree, node);
    qr_tree_touch(&kv->tree, node);
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        qr_pool_ref(&kv->pools[g], blocks[g]);
        quire_block_id own = qr_block_table_replace(&kv->tables[g], row, place, blocks[g]);
        quire_status status = qr_pool_unref(&kv->pools[g], own, NULL);
        QR_ASSERT(status == QUIRE_OK);
    }
    kv->counters.deduplicated_blocks++;
}

/* What a tier has of it stays a copy, but a slot of the host tier: that is for what the pool does not have. */
static void sequence_leave_slot(quire_kv *kv, const kv_sequence *sequence, qr_node_id node) {
    uint32_t slot = qr_tree_host(&kv->tree, node);
    if (slot == QR_COPY_NONE) return;
    if (qr_kv_load_verifies(kv, sequence_row(kv, sequence), sequence->node_count)) (void)qr_kv_verify_slot(kv, node, slot);
    qr_tree_set_host(&kv->tree, node, QR_COPY_NONE);
    qr_kv_slot_let_go(kv, slot, false);
}

static qr_node_id sequence_insert_node(quire_kv *kv, kv_sequence *sequence, const quire_token *label) {
    quire_block_id blocks[QUIRE_KV_GROUPS_MAX];
    uint32_t row = sequence_row(kv, sequence), place = sequence->node_count;
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        blocks[g] = qr_block_table_ids(&kv->tables[g], row)[place];
        qr_pool_keep(&kv->pools[g], blocks[g]);
    }
    qr_node_id node = qr_tree_insert(&kv->tree, sequence->tip, label, blocks);
    QR_ASSERT(node != QR_NODE_NONE);
    sequence_leave_slot(kv, sequence, node);
    if (qr_kv_load_verifies(kv, row, place)) qr_kv_verify_record(kv, node);
    kv->counters.inserted_blocks++;
    return node;
}

void qr_kv_sequence_enter_block(quire_kv *kv, kv_sequence *sequence) {
    const quire_token *label = qr_kv_sequence_tokens(kv, sequence) + (uint64_t)sequence->node_count * kv->config.block_tokens;
    qr_node_id node = qr_tree_find(&kv->tree, sequence->tip, label);
    if (node != QR_NODE_NONE && qr_tree_is_resident(&kv->tree, node)) sequence_adopt_node(kv, sequence, node);
    else node = sequence_insert_node(kv, sequence, label);
    sequence->tip = node;
    sequence->node_count++;
}

quire_status quire_kv_seq_commit(quire_kv *kv, quire_seq_id seq, const quire_token *tokens, uint32_t count) {
    kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    if (!sequence) return QUIRE_NOT_FOUND;
    if (count > qr_kv_sequence_room(kv, sequence) - sequence->token_count) return QUIRE_INVALID;
    if (count == 0) return QUIRE_OK;
    bool loading = kv->tiers.present && kv->tiers.loads[seq.index].active;
    if (loading && !qr_kv_load_allows(kv, seq.index, tokens, count)) return QUIRE_INVALID;
    qr_kv_sequence_put_tokens(kv, sequence, sequence->token_count, tokens, count);
    sequence->token_count += count;
    bool enters = !kv->config.cache_disabled && !sequence->forgotten;
    while (enters && sequence->node_count < sequence->token_count / kv->config.block_tokens)
        qr_kv_sequence_enter_block(kv, sequence);
    if (loading) qr_kv_load_passed(kv, seq.index);
    return QUIRE_OK;
}

/* ---- fork ---- */

quire_status quire_kv_seq_fork(quire_kv *kv, quire_seq_id seq, quire_seq_id *child) {
    const kv_sequence *parent = qr_kv_sequence_find(kv, seq);
    *child = (quire_seq_id){0};
    if (!parent) return QUIRE_NOT_FOUND;
    kv_sequence *fork = sequence_open(kv, parent->ns, child);
    if (!fork) return QUIRE_NO_MEMORY;
    for (uint32_t g = 0; g < kv->config.group_count; g++)
        qr_block_table_fork(&kv->tables[g], &kv->pools[g], seq.index, child->index, qr_kv_blocks_for(kv, parent->token_count));
    qr_node_id node = parent->tip;
    for (uint32_t i = 0; i < parent->node_count; i++, node = qr_tree_parent(&kv->tree, node)) qr_tree_lock(&kv->tree, node);
    qr_kv_sequence_put_tokens(kv, fork, 0, qr_kv_sequence_tokens(kv, parent), parent->token_count);
    fork->forgotten = parent->forgotten;
    fork->wipe = parent->wipe;
    fork->token_count = parent->token_count;
    fork->node_count = parent->node_count;
    fork->tip = parent->tip;
    return QUIRE_OK;
}

/* ---- reading ---- */

quire_status quire_kv_seq_get(const quire_kv *kv, quire_seq_id seq, quire_kv_seq_info *info) {
    const kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    *info = (quire_kv_seq_info){0};
    if (!sequence) return QUIRE_NOT_FOUND;
    *info = (quire_kv_seq_info){.ns = sequence->ns,
                                .token_count = sequence->token_count,
                                .reserved_tokens = qr_kv_sequence_room(kv, sequence),
                                .tokens = qr_kv_sequence_tokens(kv, sequence)};
    return QUIRE_OK;
}

const quire_block_id *quire_kv_seq_table(const quire_kv *kv, quire_seq_id seq, uint32_t group, uint32_t *count) {
    const kv_sequence *sequence = qr_kv_sequence_find(kv, seq);
    *count = 0;
    if (!sequence || group >= kv->config.group_count) return NULL;
    *count = qr_block_table_length(&kv->tables[group], seq.index);
    return qr_block_table_ids(&kv->tables[group], seq.index);
}
