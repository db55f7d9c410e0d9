/* Bytes in memory that nobody holds when a namespace is erased: of what was evicted, spilled or ended earlier. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { POOL = 16, PROMPT = 5 * RIG_BLOCK + RIG_BLOCK / 2, MARK = 0xa5 };

static quire_token prompt[PROMPT], other[PROMPT];

static quire_kv_config small_config(uint32_t element_count) {
    quire_kv_config config = rig_config();
    config.block_count = POOL;
    config.groups[0].key_dim = config.groups[0].value_dim = element_count;
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(other, PROMPT, 1000);
    return config;
}

static quire_kv *small_kv(void) {
    quire_kv_config config = small_config(1);
    return rig_create(&config);
}

/* Every byte of the sequence's blocks, behind the committed tokens too: as if the one before it had filled them. */
static void mark_blocks(quire_kv *kv, quire_seq_id seq) {
    uint32_t count;
    size_t stride;
    unsigned char *base = quire_kv_pool_base(kv, 0, &stride);
    const quire_block_id *table = quire_kv_seq_table(kv, seq, 0, &count);
    for (uint32_t i = 0; i < count; i++) memset(base + table[i] * stride, MARK, stride);
}

static uint32_t marked_blocks(const quire_kv *kv) {
    size_t stride;
    uint32_t marked = 0;
    const unsigned char *base = quire_kv_pool_base(kv, 0, &stride);
    for (uint32_t i = 0; i < POOL; i++) marked += memchr(base + i * stride, MARK, stride) != NULL;
    return marked;
}

/* A prompt in five whole blocks and an unfinished one, which is never in the tree. */
static void run_marked(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens) {
    quire_seq_id seq;
    rig_start(kv, ns, tokens, PROMPT, 0, &seq);
    mark_blocks(kv, seq);
    rig_close(kv, seq);
}

static void poll_erasing(quire_kv *kv) {
    quire_error error;
    for (uint32_t left = quire_kv_erasing(kv), now; left > 0; left = now) {
        cr_assert_eq(quire_kv_poll_after_us(kv), 0, "nobody would wake its owner");
        cr_assert(quire_kv_poll(kv));
        now = quire_kv_erasing(kv);
        cr_assert_lt(now, left);
        cr_assert_eq(quire_kv_check(kv, &error), QUIRE_OK, "%s", error.text);
    }
    cr_assert_eq(quire_kv_poll_after_us(kv), UINT64_MAX);
    cr_assert_not(quire_kv_poll(kv));
}

Test(kv_erasing, evicted_blocks_and_unfinished_ones_are_overwritten_however_they_are_forgotten) {
    for (int way = 0; way < 3; way++) {
        quire_kv *kv = small_kv();
        quire_namespace_id ns;
        cr_assert_eq(quire_kv_namespace_open(kv, "salt", 4, &ns), QUIRE_OK);
        run_marked(kv, ns, prompt);
        cr_assert_eq(quire_kv_evict(kv, 2), 2);
        if (way == 0) quire_kv_forget_all(kv, true);
        if (way == 1) quire_kv_forget_key(kv, "salt", 4, true);
        if (way == 2) quire_kv_forget_namespace(kv, ns, true);
        cr_assert(quire_kv_erasing(kv) == 3 && marked_blocks(kv) == 3, "two evicted, one unfinished");
        poll_erasing(kv);
        cr_assert_eq(marked_blocks(kv), 0);
        quire_kv_namespace_close(kv, ns);
        rig_destroy(kv);
    }
}

Test(kv_erasing, without_wipe_nothing_is_owed) {
    quire_kv *kv = small_kv();
    run_marked(kv, 0, prompt);
    quire_kv_forget_all(kv, false);
    cr_assert(quire_kv_erasing(kv) == 0 && marked_blocks(kv) == 6);
    rig_destroy(kv);
}

Test(kv_erasing, a_salt_that_is_not_known_any_more_has_its_blocks_overwritten_too) {
    quire_kv *kv = small_kv();
    run_marked(kv, 0, prompt);
    quire_kv_evict(kv, POOL);
    quire_kv_forget_key(kv, "gone", 4, true);
    cr_assert_eq(quire_kv_erasing(kv), 6);
    poll_erasing(kv);
    cr_assert_eq(marked_blocks(kv), 0);
    rig_destroy(kv);
}

/* 3 MiB a block in each of two groups: two of them in one poll. What others have cached stays. */
Test(kv_erasing, a_poll_overwrites_a_bounded_part) {
    quire_kv_config config = small_config(24576);
    config.groups[1] = config.groups[0];
    config.group_count = 2;
    quire_kv *kv = rig_create(&config);
    quire_namespace_id ns;
    cr_assert_eq(quire_kv_namespace_open(kv, "salt", 4, &ns), QUIRE_OK);
    run_marked(kv, ns, prompt);
    run_marked(kv, 0, other);
    cr_assert_eq(quire_kv_evict(kv, 4), 4);
    cr_assert_eq(quire_kv_forget_key(kv, "salt", 4, true), 1);
    for (uint32_t left = 2 * 5; left > 0; left -= 2) { /* the first group's come first */
        cr_assert_eq(quire_kv_erasing(kv), left);
        cr_assert_eq(marked_blocks(kv), left > 5 ? left : 5);
        cr_assert(quire_kv_poll(kv));
    }
    cr_assert(quire_kv_erasing(kv) == 0 && marked_blocks(kv) == 5);
    cr_assert_eq(rig_match(kv, 0, other, PROMPT).token_count, 5 * RIG_BLOCK);
    quire_kv_namespace_close(kv, ns);
    rig_destroy(kv);
}

Test(kv_erasing, who_takes_a_block_before_its_turn_finds_it_overwritten) {
    quire_kv *kv = small_kv();
    quire_seq_id seq;
    run_marked(kv, 0, prompt);
    quire_kv_evict(kv, POOL);
    quire_kv_forget_all(kv, true);
    cr_assert_eq(quire_kv_seq_open(kv, 0, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 4 * RIG_BLOCK), QUIRE_OK);
    cr_assert(quire_kv_erasing(kv) == 2 && marked_blocks(kv) == 2);
    rig_close(kv, seq);
    cr_assert_eq(quire_kv_erasing(kv), 2);
    poll_erasing(kv);
    rig_destroy(kv);
}

/* Of the blocks that somebody else fills: a whole one has his bytes only, the rest of one has what was there before. */
Test(kv_erasing, the_rest_of_a_block_in_use_is_overwritten_when_it_is_free) {
    for (int forked = 0; forked < 2; forked++) {
        quire_kv *kv = small_kv();
        quire_namespace_id ns;
        quire_seq_id seq, child = {0};
        cr_assert_eq(quire_kv_namespace_open(kv, "other", 5, &ns), QUIRE_OK);
        rig_start(kv, ns, other, PROMPT, 0, &seq);
        mark_blocks(kv, seq);
        quire_kv_forget_key(kv, "salt", 4, true);
        cr_assert_eq(quire_kv_erasing(kv), 0, "what is in use goes with its last user");
        if (forked) { /* the rest goes along into a copy */
            cr_assert_eq(quire_kv_seq_fork(kv, seq, &child), QUIRE_OK);
            cr_assert_eq(quire_kv_seq_reserve(kv, child, PROMPT + 1), QUIRE_OK);
            cr_assert_eq(marked_blocks(kv), 7);
        }
        rig_close(kv, seq);
        cr_assert_eq(quire_kv_erasing(kv), 1);
        if (forked) rig_close(kv, child);
        cr_assert_eq(quire_kv_erasing(kv), 1 + (uint32_t)forked);
        poll_erasing(kv);
        cr_assert_eq(marked_blocks(kv), 5, "those that are cached");
        quire_kv_namespace_close(kv, ns);
        rig_destroy(kv);
    }
}

Test(kv_erasing, a_block_that_was_filled_since_owes_nothing) {
    quire_kv *kv = small_kv();
    quire_seq_id seq;
    quire_namespace_id ns;
    cr_assert_eq(quire_kv_namespace_open(kv, "other", 5, &ns), QUIRE_OK);
    rig_start(kv, ns, other, PROMPT, 0, &seq);
    mark_blocks(kv, seq);
    quire_kv_forget_key(kv, "salt", 4, true);
    cr_assert_eq(quire_kv_seq_commit(kv, seq, prompt, RIG_BLOCK / 2), QUIRE_OK);
    rig_close(kv, seq);
    cr_assert_eq(quire_kv_evict(kv, POOL), 6);
    cr_assert_eq(quire_kv_erasing(kv), 0);
    quire_kv_namespace_close(kv, ns);
    rig_destroy(kv);
}

/* ---- the host tier, and memory where blocks are compared ---- */

static bool all_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

static uint32_t slots_with_bytes(const tiers_rig *rig) {
    const kv_tiers *tiers = &rig->kv->tiers;
    uint32_t count = 0;
    for (uint32_t i = 0; i < tiers->host.slot_count; i++)
        count += !all_zero(qr_host_arena_address(&tiers->host, i), (size_t)tiers->payload_bytes);
    return count;
}

/* Five blocks were in slots and are computed anew, compared, so their slots are free with what they held. */
static tiers_rig rig_that_compared(void) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.host_slots = 16;
    rig.device_sim = rig.no_store = true;
    rig.device.delay_polls_max = 3;
    rig.config.tiers.verify_every = 1;
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(other, PROMPT, 1000);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 1000);
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_verify_next(rig.kv));
    tiers_rig_load(&rig, 0, prompt, PROMPT, true, &seq);
    tiers_rig_compute(&rig, seq, prompt, 0, PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_settle(&rig);
    cr_assert_eq(tiers_rig_stats(&rig).verified_blocks_total, 5);
    cr_assert_eq(slots_with_bytes(&rig), 5);
    cr_assert_not(all_zero(rig.kv->tiers.scratch, (size_t)rig.kv->tiers.payload_bytes));
    return rig;
}

Test(kv_erasing, free_slots_and_the_scratch_are_overwritten) {
    tiers_rig rig = rig_that_compared();
    tiers_rig_run(&rig, 0, other, 2 * RIG_BLOCK);
    quire_kv_forget_key(rig.kv, "salt", 4, true);
    cr_assert_eq(quire_kv_erasing(rig.kv), 5 + 1);
    tiers_rig_settle(&rig);
    cr_assert_eq(quire_kv_erasing(rig.kv), 0);
    cr_assert_eq(slots_with_bytes(&rig), 0);
    cr_assert(all_zero(rig.kv->tiers.scratch, (size_t)rig.kv->tiers.payload_bytes));
    tiers_rig_close(&rig);
}

/* A slot that is taken before its turn is overwritten first: its copy may never come. */
Test(kv_erasing, a_slot_that_is_taken_meanwhile_has_nothing_old) {
    tiers_rig rig = rig_that_compared();
    quire_kv_forget_key(rig.kv, "salt", 4, true);
    cr_assert_eq(quire_kv_evict(rig.kv, 2), 2);
    cr_assert_eq(quire_kv_erasing(rig.kv), 3 + 1);
    for (int i = 0; i < 2; i++) {
        uint32_t slot = rig.kv->tiers.gathers.items[(rig.kv->tiers.gathers.first + (uint32_t)i) % KV_TRANSFERS].slot;
        cr_assert(all_zero(qr_host_arena_address(&rig.kv->tiers.host, slot), (size_t)rig.kv->tiers.payload_bytes));
    }
    tiers_rig_settle(&rig);
    cr_assert(quire_kv_erasing(rig.kv) == 0 && slots_with_bytes(&rig) == 2);
    tiers_rig_close(&rig);
}

/* What a copy fills or reads goes when the copy is over, and what is in a slot stays somebody's. */
Test(kv_erasing, slots_and_scratch_in_use_are_left_alone_until_they_are_free) {
    tiers_rig rig = rig_that_compared();
    kv_verify_job *job = &rig.kv->tiers.jobs[0];
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 1);
    quire_kv_forget_key(rig.kv, "salt", 4, true);
    job->state = KV_VERIFY_COPYING;
    while (rig.kv->tiers.gathers.count > 0 || rig.kv->tiers.owed_slots > 0) quire_kv_poll(rig.kv);
    cr_assert_eq(quire_kv_erasing(rig.kv), 1, "the scratch");
    cr_assert_not(all_zero(rig.kv->tiers.scratch, (size_t)rig.kv->tiers.payload_bytes));
    job->state = KV_VERIFY_FREE;
    tiers_rig_settle(&rig);
    cr_assert_eq(quire_kv_erasing(rig.kv), 0);
    cr_assert(all_zero(rig.kv->tiers.scratch, (size_t)rig.kv->tiers.payload_bytes));
    cr_assert_eq(slots_with_bytes(&rig), 1);
    tiers_rig_run(&rig, 0, prompt, PROMPT); /* its node is in the pool again */
    cr_assert_eq(quire_kv_erasing(rig.kv), 1);
    tiers_rig_settle(&rig);
    cr_assert_eq(slots_with_bytes(&rig), 0);
    tiers_rig_close(&rig);
}
