/* What was forgotten for good is in the manager's own memory no more: token ids and keys. Blocks have tests of their own. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 8 * RIG_BLOCK };

static quire_token prompt[PROMPT];
static const char salt[] = "a-salt-that-nobody-else-has";

static bool memory_has(const tiers_rig *rig, const void *bytes, size_t size_bytes) {
    return memmem(rig->kv->region.base, rig->kv->region.size_bytes, bytes, size_bytes) != NULL;
}

/* Of the prompt, from any place on. */
static bool has_tokens(const tiers_rig *rig) {
    for (uint32_t i = 0; i + RIG_BLOCK / 2 <= PROMPT; i += RIG_BLOCK / 2)
        if (memory_has(rig, prompt + i, RIG_BLOCK / 2 * sizeof *prompt)) return true;
    return false;
}

static bool has_salt(const tiers_rig *rig) { return memory_has(rig, salt, sizeof salt - 1); }

static quire_namespace_id open_salted(tiers_rig *rig) {
    quire_namespace_id ns;
    cr_assert_eq(quire_kv_namespace_open(rig->kv, salt, sizeof salt - 1, &ns), QUIRE_OK);
    return ns;
}

static void rig_prepare(tiers_rig *rig) {
    *rig = tiers_rig_make();
    rig_count_up(prompt, PROMPT, 7000001);
    tiers_rig_open(rig);
}

/* Computes the prompt, has it stored and evicted, and loads it again. */
static void use_everything(tiers_rig *rig, quire_namespace_id ns) {
    quire_seq_id seq;
    tiers_rig_run(rig, ns, prompt, PROMPT);
    tiers_rig_settle(rig);
    quire_kv_evict(rig->kv, 1000);
    tiers_rig_settle(rig);
    tiers_rig_load(rig, ns, prompt, PROMPT, false, &seq);
    tiers_rig_finish(rig, seq, prompt, PROMPT, 0);
    rig_close(rig->kv, seq);
    tiers_rig_settle(rig);
    cr_assert(has_tokens(rig) && has_salt(rig));
}

Test(kv_wipe, a_forgotten_namespace_leaves_neither_tokens_nor_key) {
    for (int all = 0; all < 2; all++) {
        tiers_rig rig;
        rig_prepare(&rig);
        quire_namespace_id ns = open_salted(&rig);
        use_everything(&rig, ns);
        quire_kv_namespace_close(rig.kv, ns);
        if (all) quire_kv_forget_all(rig.kv, true);
        else quire_kv_forget_key(rig.kv, salt, sizeof salt - 1, true);
        tiers_rig_settle(&rig);
        cr_assert(!has_tokens(&rig));
        cr_assert(!has_salt(&rig));
        tiers_rig_close(&rig);
    }
}

/* Its owner has it still: the key goes with him. */
Test(kv_wipe, a_namespace_that_is_used_goes_with_its_last_user) {
    for (int by_id = 0; by_id < 2; by_id++) {
        tiers_rig rig;
        quire_seq_id seq;
        rig_prepare(&rig);
        quire_namespace_id ns = open_salted(&rig);
        use_everything(&rig, ns);
        tiers_rig_start(&rig, ns, prompt, PROMPT, &seq);
        if (by_id) quire_kv_forget_namespace(rig.kv, ns, true);
        else quire_kv_forget_key(rig.kv, salt, sizeof salt - 1, true);
        tiers_rig_settle(&rig);
        cr_assert(has_tokens(&rig) && has_salt(&rig));
        quire_kv_namespace_close(rig.kv, ns);
        cr_assert(has_tokens(&rig) && has_salt(&rig));
        rig_close(rig.kv, seq);
        tiers_rig_settle(&rig);
        cr_assert(!has_tokens(&rig));
        cr_assert(!has_salt(&rig));
        tiers_rig_close(&rig);
    }
}

/* Held all the time, or by nobody for a moment. */
Test(kv_wipe, one_that_is_opened_anew_stays) {
    for (int held = 0; held < 2; held++) {
        tiers_rig rig;
        rig_prepare(&rig);
        quire_namespace_id ns = open_salted(&rig);
        use_everything(&rig, ns);
        quire_kv_forget_key(rig.kv, salt, sizeof salt - 1, true);
        if (!held) quire_kv_namespace_close(rig.kv, ns);
        ns = open_salted(&rig);
        if (held) quire_kv_namespace_close(rig.kv, ns);
        tiers_rig_run(&rig, ns, prompt, PROMPT);
        quire_kv_namespace_close(rig.kv, ns);
        tiers_rig_settle(&rig);
        ns = open_salted(&rig);
        cr_assert_eq(rig_match(rig.kv, ns, prompt, PROMPT).token_count, PROMPT);
        quire_kv_namespace_close(rig.kv, ns);
        tiers_rig_close(&rig);
    }
}

/* Requests that came before and are computed afterwards: one that waits or is paused, and a fork of one that runs. */
Test(kv_wipe, a_sequence_that_begins_in_a_forgotten_namespace_does_not_keep_its_key) {
    for (int way = 0; way < 3; way++) {
        tiers_rig rig;
        quire_seq_id seq, child;
        rig_prepare(&rig);
        quire_namespace_id ns = open_salted(&rig);
        if (way == 2) tiers_rig_start(&rig, ns, prompt, PROMPT, &seq);
        quire_kv_forget_key(rig.kv, salt, sizeof salt - 1, true);
        if (way < 2) {
            cr_assert_eq(quire_kv_seq_open(rig.kv, ns, &seq), QUIRE_OK);
            if (way == 1) cr_assert_eq(quire_kv_seq_forget(rig.kv, seq, true), QUIRE_OK);
        } else {
            cr_assert_eq(quire_kv_seq_fork(rig.kv, seq, &child), QUIRE_OK);
            rig_close(rig.kv, child);
        }
        rig_close(rig.kv, seq);
        cr_assert(has_salt(&rig));
        quire_kv_namespace_close(rig.kv, ns);
        cr_assert(!has_salt(&rig), "way %d", way);
        tiers_rig_close(&rig);
    }
}

/* Everything was forgotten between its submission and its turn. */
Test(kv_wipe, a_sequence_that_is_forgotten_takes_its_key_along) {
    tiers_rig rig;
    quire_seq_id seq;
    rig_prepare(&rig);
    quire_kv_forget_all(rig.kv, true);
    quire_namespace_id ns = open_salted(&rig);
    cr_assert_eq(quire_kv_seq_open(rig.kv, ns, &seq), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_forget(rig.kv, seq, true), QUIRE_OK);
    rig_close(rig.kv, seq);
    quire_kv_namespace_close(rig.kv, ns);
    cr_assert(!has_salt(&rig));
    tiers_rig_close(&rig);
}

Test(kv_wipe, a_namespace_that_nobody_holds_goes_at_once) {
    tiers_rig rig;
    rig_prepare(&rig);
    quire_namespace_id ns = open_salted(&rig);
    use_everything(&rig, ns);
    quire_kv_namespace_close(rig.kv, ns);
    cr_assert_eq(quire_kv_forget_namespace(rig.kv, ns, true), PROMPT / RIG_BLOCK);
    cr_assert(!has_salt(&rig));
    cr_assert_eq(quire_kv_forget_namespace(rig.kv, ns, true), 0);
    tiers_rig_close(&rig);
}

/* A row keeps nothing of a sequence that is closed, also of one that was cut or whose load was given up. */
Test(kv_wipe, a_closed_sequence_leaves_no_tokens_in_its_row) {
    for (int way = 0; way < 4; way++) {
        tiers_rig rig;
        quire_seq_id seq, child = {0};
        rig_prepare(&rig);
        quire_namespace_id ns = open_salted(&rig);
        if (way == 3) {
            tiers_rig_run(&rig, ns, prompt, PROMPT);
            tiers_rig_settle(&rig);
            quire_kv_evict(rig.kv, 1000);
            tiers_rig_settle(&rig);
            fake_store_hold(rig.fake, true);
            tiers_rig_load(&rig, ns, prompt, PROMPT, false, &seq);
            quire_kv_load_abandon(rig.kv, seq);
        } else tiers_rig_start(&rig, ns, prompt, PROMPT, &seq);
        if (way == 1) cr_assert_eq(quire_kv_seq_truncate(rig.kv, seq, 1), QUIRE_OK);
        if (way == 2) cr_assert_eq(quire_kv_seq_fork(rig.kv, seq, &child), QUIRE_OK);
        uint32_t rows[] = {seq.index, way == 2 ? child.index : seq.index};
        rig_close(rig.kv, seq);
        if (way == 2) rig_close(rig.kv, child);
        for (int i = 0; i < 2; i++) {
            const quire_token *row = rig.kv->tokens + (uint64_t)rows[i] * rig.kv->token_capacity;
            for (uint32_t k = 0; k < PROMPT; k++) cr_assert_eq(row[k], 0, "way %d, token %u", way, k);
        }
        fake_store_hold(rig.fake, false);
        quire_kv_namespace_close(rig.kv, ns);
        tiers_rig_settle(&rig);
        tiers_rig_close(&rig);
    }
}
