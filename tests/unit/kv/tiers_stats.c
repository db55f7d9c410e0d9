/* The figures of the lower tiers: what is counted, where, and once. */
#include <criterion/criterion.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK };

static quire_token prompt[PROMPT];

static void open_rig(tiers_rig *rig) {
    rig_count_up(prompt, PROMPT, 1);
    tiers_rig_open(rig);
}

static quire_kv_tier_stats figures(const tiers_rig *rig, quire_kv_tier tier) { return tiers_rig_stats(rig).tiers[tier]; }

static void load_all(tiers_rig *rig) {
    quire_seq_id seq;
    tiers_rig_load(rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_eq(tiers_rig_finish(rig, seq, prompt, PROMPT, 0), PROMPT);
    rig_close(rig->kv, seq);
}

Test(kv_tiers_stats, what_moves_between_device_and_disk) {
    tiers_rig rig = tiers_rig_make();
    rig.store.read_bytes_per_second = rig.store.write_bytes_per_second = 10000000;
    open_rig(&rig);
    uint64_t payload = rig.store.payload_bytes;
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    quire_kv_tier_stats disk = figures(&rig, QUIRE_KV_TIER_DISK), device = figures(&rig, QUIRE_KV_TIER_DEVICE);
    cr_assert(disk.present && disk.block_count == 10);
    cr_assert(disk.stored_blocks_total == 10 && disk.stored_bytes_total == 10 * payload);
    cr_assert_gt(disk.written_bytes_total, disk.stored_bytes_total);
    cr_assert(device.present && device.block_count == 10 && device.used_bytes == 10 * payload);
    cr_assert(disk.loaded_blocks_total == 0 && disk.load_bytes_per_second == 0 && device.evicted_blocks_total == 0);
    quire_kv_evict(rig.kv, 100);
    load_all(&rig);
    disk = figures(&rig, QUIRE_KV_TIER_DISK);
    device = figures(&rig, QUIRE_KV_TIER_DEVICE);
    cr_assert(disk.loaded_blocks_total == 10 && disk.loaded_bytes_total == 10 * payload);
    cr_assert(disk.hit_tokens_total == PROMPT && device.hit_tokens_total == 0 && device.evicted_blocks_total == 10);
    cr_assert(disk.load_bytes_per_second > 5e6 && disk.load_bytes_per_second < 11e6);
    /* From the question to the block: the first waits for one payload, the last of a window for all before it. */
    double alone = (double)payload / 10e6;
    cr_assert(disk.load_seconds_total > 10 * alone && disk.load_seconds_total < 100 * alone);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DEVICE).hit_tokens_total, PROMPT);
    tiers_rig_close(&rig);
}

Test(kv_tiers_stats, what_moves_between_device_and_host_memory) {
    tiers_rig rig = tiers_rig_make();
    rig.no_store = true;
    rig.host_slots = 12;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 2, .delay_polls_max = 60};
    open_rig(&rig);
    uint64_t payload = qr_kv_payload_bytes(&rig.config);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 10);
    quire_kv_tier_stats host = figures(&rig, QUIRE_KV_TIER_HOST);
    cr_assert(host.stores_queued == 10 && host.stored_blocks_total == 0 && host.total_bytes == 12 * payload);
    tiers_rig_settle(&rig);
    host = figures(&rig, QUIRE_KV_TIER_HOST);
    cr_assert(host.stores_queued == 0 && host.stored_blocks_total == 10 && host.stored_bytes_total == 10 * payload);
    cr_assert(host.block_count == 10 && host.used_bytes == 10 * payload && host.written_bytes_total == 10 * payload);
    cr_assert(host.store_seconds_total > 0 && host.load_seconds_total == 0);
    quire_seq_id seq;
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_HOST).loads_queued, 10);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_HOST).stores_queued, 0);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
    host = figures(&rig, QUIRE_KV_TIER_HOST);
    cr_assert(host.loads_queued == 0 && host.loaded_blocks_total == 10 && host.loaded_bytes_total == 10 * payload);
    cr_assert(host.hit_tokens_total == PROMPT && host.load_seconds_total > 0 && host.load_bytes_per_second > 0);
    cr_assert_not(figures(&rig, QUIRE_KV_TIER_DISK).present);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* A write is queued from its first copy on. */
Test(kv_tiers_stats, what_waits_for_the_disk) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 2, .delay_polls_max = 60};
    open_rig(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_round(&rig);
    cr_assert_gt(rig.kv->tiers.begun_count, 0);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).stores_queued, KV_WRITES_PER_POLL);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 100);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).stores_queued, 0);
    fake_store_hold(rig.fake, true);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).loads_queued, rig.kv->tiers.read_count);
    cr_assert_gt(rig.kv->tiers.read_count, 0);
    fake_store_hold(rig.fake, false);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

Test(kv_tiers_stats, what_was_lost_dropped_or_erased) {
    tiers_rig rig = tiers_rig_make();
    qr_record_id record;
    quire_namespace_id ns;
    rig.config.max_namespaces = 2;
    open_rig(&rig);
    cr_assert_eq(quire_kv_namespace_open(rig.kv, "a", 1, &ns), QUIRE_OK);
    tiers_rig_run(&rig, ns, prompt, 4 * RIG_BLOCK);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    cr_assert(fake_store_find(rig.fake, prompt + 9 * RIG_BLOCK, 10, &record));
    fake_store_lose(rig.fake, record);
    tiers_rig_settle(&rig);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).evicted_blocks_total, 1);
    quire_kv_namespace_close(rig.kv, ns);
    cr_assert_eq(quire_kv_namespace_open(rig.kv, "b", 1, &ns), QUIRE_OK); /* there is place for one */
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).evicted_blocks_total, 1 + 4);
    quire_kv_namespace_close(rig.kv, ns);
    cr_assert_eq(tiers_rig_stats(&rig).erased_blocks_total, 0);
    quire_kv_forget_all(rig.kv, true);
    cr_assert_eq(tiers_rig_stats(&rig).erased_blocks_total, fake_store_erased(rig.fake));
    cr_assert_geq(fake_store_erased(rig.fake), 9);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).evicted_blocks_total, 1 + 4, "forgetting is none");
    tiers_rig_close(&rig);
}

Test(kv_tiers_stats, refusals_are_counted_in_blocks) {
    tiers_rig rig = tiers_rig_make();
    open_rig(&rig);
    quire_kv_count_refusal(rig.kv, QUIRE_KV_REFUSED_SLOWER, 5);
    quire_kv_count_refusal(rig.kv, QUIRE_KV_REFUSED_SLOWER, 2);
    quire_kv_count_refusal(rig.kv, QUIRE_KV_REFUSED_ABANDONED, 3);
    quire_kv_count_refusal(rig.kv, QUIRE_KV_REFUSED_COUNT, 9);
    quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
    for (int i = 0; i < QUIRE_KV_REFUSED_COUNT; i++)
        cr_assert_eq(stats.refused_blocks_total[i], i == QUIRE_KV_REFUSED_SLOWER ? 7 : i == QUIRE_KV_REFUSED_ABANDONED ? 3 : 0);
    tiers_rig_close(&rig);
}

/* A store's word and the manager's: both are damage. */
Test(kv_tiers_stats, a_record_that_is_another_one_is_damage_too) {
    tiers_rig rig = tiers_rig_make();
    quire_seq_id seq;
    qr_record_id record;
    open_rig(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    tiers_rig_settle(&rig);
    quire_kv_evict(rig.kv, 100);
    cr_assert(fake_store_find(rig.fake, prompt + 8 * RIG_BLOCK, 9, &record));
    fake_store_tokens(rig.fake, record)[3]++;
    cr_assert(fake_store_find(rig.fake, prompt + 2 * RIG_BLOCK, 3, &record));
    fake_store_damage(rig.fake, record);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 2 * RIG_BLOCK);
    cr_assert_eq(figures(&rig, QUIRE_KV_TIER_DISK).damaged_total, 2);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* Somebody sleeps until something changes. */
Test(kv_tiers_stats, a_poll_says_when_something_that_is_waited_for_changed) {
    tiers_rig rig = tiers_rig_make();
    open_rig(&rig);
    tiers_rig_settle(&rig);
    fake_store_faults_of(rig.fake)->erasing = 3;
    cr_assert(tiers_rig_round(&rig) && quire_kv_erasing(rig.kv) == 3);
    cr_assert_not(tiers_rig_round(&rig));
    fake_store_faults_of(rig.fake)->erasing = 0;
    cr_assert(tiers_rig_round(&rig));
    cr_assert_not(tiers_rig_round(&rig));
    quire_kv_flush_begin(rig.kv);
    while (quire_kv_flush_left(rig.kv) > 0) cr_assert_eq(tiers_rig_round(&rig), quire_kv_flush_left(rig.kv) == 0);
    cr_assert_not(tiers_rig_round(&rig));
    tiers_rig_close(&rig);
}
