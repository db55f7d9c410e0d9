/* Loads: what lies below the pool comes back, whatever happens meanwhile. */
#include <criterion/criterion.h>

#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, OTHER = 14 * RIG_BLOCK };

static quire_token prompt[OTHER], other[OTHER];

/* The prompt is on disk only. */
static void rig_prepare(tiers_rig *rig) {
    rig_count_up(prompt, OTHER, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_run(rig, 0, prompt, PROMPT);
    tiers_rig_settle(rig);
    quire_kv_evict(rig->kv, 1000);
    cr_assert_eq(rig_match(rig->kv, 0, prompt, PROMPT).token_count, 0);
    cr_assert_eq(rig_match(rig->kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
}

Test(kv_loads, what_was_evicted_to_disk_comes_back_with_its_bytes) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert(load.begin_block == 0 && load.end_block == 10 && load.disk_blocks == 10 && load.host_blocks == 0);
    cr_assert_gt(load.estimate_us, 0);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    quire_kv_load_state state = tiers_rig_state(&rig, seq);
    cr_assert(!state.failed && state.disk_tokens == PROMPT && state.host_tokens == 0);
    rig_close(rig.kv, seq);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).token_count, PROMPT);
    tiers_rig_close(&rig);
}

Test(kv_loads, a_restart_finds_everything_again) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    tiers_rig_open(&rig);
    rig_prepare(&rig);
    tiers_rig_restart(&rig);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_loads, host_memory_behind_a_device_with_slow_copies) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = 12;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 5, .delay_polls_max = 6, .reorder = true};
    tiers_rig_open(&rig);
    rig_count_up(prompt, OTHER, 1);
    rig_count_up(other, OTHER, 1000);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_run(&rig, 0, other, OTHER);
    cr_assert_gt(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 0);
    quire_kv_load load = tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_gt(load.host_blocks, 0);
    uint32_t taken = tiers_rig_finish(&rig, seq, prompt, PROMPT, 0);
    cr_assert_eq(taken, (load.end_block - load.begin_block) * RIG_BLOCK);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}
