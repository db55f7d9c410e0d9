/* The lower tiers as a whole: what they need, what they cost, and the real store below. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/disk_store.h"
#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK };

static quire_token prompt[PROMPT];

/* ---- errors ---- */

static quire_status create(const quire_kv_config *config, const qr_kv_parts *parts, quire_error *error) {
    quire_kv *kv;
    quire_status status = qr_kv_create_from(config, parts, &kv, error);
    cr_assert_eq(status == QUIRE_OK, kv != NULL);
    quire_kv_destroy(kv);
    return status;
}

Test(kv_tiers, host_memory_below_host_memory_is_refused) {
    quire_kv_config config = rig_config();
    quire_error error;
    config.tiers.host_bytes = 1 << 20;
    cr_assert_eq(create(&config, &(qr_kv_parts){0}, &error), QUIRE_INVALID);
    cr_assert(strstr(error.text, "larger pool"));
    cr_assert_eq(create(&config, &(qr_kv_parts){.host_tier = true}, &error), QUIRE_OK);
}

Test(kv_tiers, a_host_budget_that_cannot_be_met_is_refused_with_the_numbers) {
    quire_kv_config config = rig_config();
    quire_error error;
    config.tiers.host_bytes = 100;
    cr_assert_eq(create(&config, &(qr_kv_parts){.host_tier = true}, &error), QUIRE_INVALID);
    cr_assert(strstr(error.text, "100") && strstr(error.text, "4096"));
    config.tiers.host_bytes = UINT64_C(1) << 42;
    cr_assert_eq(create(&config, &(qr_kv_parts){.host_tier = true}, &error), QUIRE_NO_MEMORY);
    unsigned long long wanted = 0, available = 0, physical = (unsigned long long)sysconf(_SC_PHYS_PAGES) * 4096;
    int numbers = sscanf(error.text, "a budget of %llu bytes cannot be met: %llu can be had", &wanted, &available);
    cr_assert(numbers == 2 && wanted == UINT64_C(1) << 42 && available > 0 && available <= physical, "%s", error.text);
    cr_assert(strstr(error.text, "cgroup") && strstr(error.text, "ulimit -v"), "%s", error.text);
}

Test(kv_tiers, a_store_of_other_payloads_is_refused_and_closed) {
    quire_kv_config config = rig_config();
    quire_error error;
    fake_store_config store = {.payload_bytes = 8192, .block_tokens = RIG_BLOCK, .record_max = 4};
    fake_store *fake = fake_store_create(&store);
    cr_assert_eq(create(&config, &(qr_kv_parts){.store = fake_store_open(fake)}, &error), QUIRE_INVALID);
    config.block_count = 0;
    cr_assert_eq(create(&config, &(qr_kv_parts){.store = fake_store_open(fake)}, &error), QUIRE_INVALID);
    fake_store_destroy(fake); /* closed both times */
}

Test(kv_tiers, without_storage_or_a_cache_there_are_none) {
    quire_kv_config config = rig_config();
    quire_error error;
    config.tiers.disk_path = "/nonexistent/quire";
    config.storage = QUIRE_KV_STORAGE_NONE;
    cr_assert_eq(create(&config, &(qr_kv_parts){0}, &error), QUIRE_INVALID);
    cr_assert(strstr(error.text, "storage of the manager's own"), "%s", error.text);
    config.cache_disabled = true;
    cr_assert_eq(create(&config, &(qr_kv_parts){0}, &error), QUIRE_OK);
}

Test(kv_tiers, an_unknown_policy_is_refused) {
    quire_kv_config config = rig_config();
    quire_error error;
    config.tiers.host_bytes = 1 << 20;
    config.tiers.disk_write = QUIRE_KV_DISK_OFF;
    cr_assert_eq(create(&config, &(qr_kv_parts){.host_tier = true}, &error), QUIRE_OK);
    config.tiers.disk_write = (quire_kv_disk_write)(QUIRE_KV_DISK_OFF + 1);
    cr_assert_eq(create(&config, &(qr_kv_parts){.host_tier = true}, &error), QUIRE_INVALID);
    cr_assert_str_eq(error.source, "disk_write");
}

/* It is handed over, whether or not there is a use for it. */
Test(kv_tiers, without_a_cache_a_store_is_closed) {
    quire_kv_config config = rig_config();
    quire_error error;
    fake_store_config store = {.payload_bytes = 8192, .block_tokens = RIG_BLOCK, .record_max = 4};
    fake_store *fake = fake_store_create(&store);
    config.cache_disabled = true;
    cr_assert_eq(create(&config, &(qr_kv_parts){.store = fake_store_open(fake)}, &error), QUIRE_OK);
    fake_store_destroy(fake);
}

Test(kv_tiers, a_manager_without_tiers_answers_all_the_same) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_kv_load load;
    quire_kv_load_state state;
    quire_seq_id seq;
    rig_count_up(prompt, PROMPT, 1);
    rig_start(kv, 0, prompt, 20, 20, &seq);
    cr_assert(!quire_kv_poll(kv) && !quire_kv_busy(kv) && quire_kv_poll_after_us(kv) == UINT64_MAX);
    cr_assert_eq(quire_kv_load_plan(kv, seq, prompt, 20, 20, &load), QUIRE_OK);
    cr_assert_eq(load.begin_block, load.end_block);
    quire_kv_load_get_state(kv, seq, &state);
    cr_assert(!state.active && state.front_tokens == 32);
    cr_assert_eq(quire_kv_load_take(kv, seq), 0);
    quire_kv_load_abandon(kv, seq);
    quire_kv_flush_begin(kv);
    cr_assert(quire_kv_flush_left(kv) == 0 && quire_kv_erasing(kv) == 0 && !quire_kv_verify_next(kv));
    rig_close(kv, seq);
    rig_destroy(kv);
}

/* ---- the real store ---- */

static char folder[64];

static quire_kv_config disk_config(void) {
    quire_kv_config config = rig_config();
    config.block_count = 16;
    config.groups[0].layer_count = 2;
    config.tiers.disk_path = folder;
    config.tiers.disk_max_bytes = 4 << 20;
    config.tiers.disk_floor_bytes = 1;
    return config;
}

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/quire-kv-XXXXXX");
    cr_assert(mkdtemp(folder));
    rig_count_up(prompt, PROMPT, 1);
}

static void remove_folder(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static tiers_rig disk_rig(const quire_kv_config *config) {
    tiers_rig rig = {.config = *config, .no_store = true, .now_us = 1000000};
    rig.kv = rig_create(config);
    return rig;
}

/* Threads of the store do it: as long as it takes, a minute at most. */
static void wait_for(tiers_rig *rig, bool (*done)(const tiers_rig *rig)) {
    for (int i = 0; i < 60000 && !done(rig); i++) {
        tiers_rig_round(rig);
        usleep(1000);
    }
    cr_assert(done(rig));
}

/* And the manager has heard of it. */
static bool all_is_written(const tiers_rig *rig) {
    return tiers_rig_stats(rig).tiers[QUIRE_KV_TIER_DISK].stored_blocks_total == 10;
}
static bool flushed(const tiers_rig *rig) { return quire_kv_flush_left(rig->kv) == 0; }

static void load_all(tiers_rig *rig) {
    quire_seq_id seq;
    uint32_t taken = 0;
    tiers_rig_load(rig, 0, prompt, PROMPT, false, &seq);
    for (int i = 0; i < 60000 && tiers_rig_state(rig, seq).active; i++) {
        tiers_rig_round(rig);
        taken += quire_kv_load_take(rig->kv, seq);
        usleep(100);
    }
    cr_assert_eq(taken, PROMPT);
    tiers_rig_check_bytes(rig, seq);
    rig_close(rig->kv, seq);
}

Test(kv_tiers, a_folder_on_disk_outlives_the_manager) {
    make_folder();
    quire_kv_config config = disk_config();
    tiers_rig rig = disk_rig(&config);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    wait_for(&rig, all_is_written);
    quire_kv_evict(rig.kv, 100);
    load_all(&rig);
    quire_kv_flush_begin(rig.kv);
    wait_for(&rig, flushed);
    rig_destroy(rig.kv);
    rig = disk_rig(&config);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, PROMPT);
    cr_assert_eq(tiers_rig_stats(&rig).index_records, 10);
    load_all(&rig);
    rig_destroy(rig.kv);
    remove_folder();
}

Test(kv_tiers, another_layout_model_or_arithmetic_is_a_miss_and_is_left_alone) {
    make_folder();
    quire_kv_config config = disk_config(), changed[3] = {config, config, config};
    tiers_rig rig = disk_rig(&config);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    wait_for(&rig, all_is_written);
    rig_destroy(rig.kv);
    changed[0].tiers.weights_fingerprint = 1;
    changed[1].tiers.numerics_fingerprint = 1;
    changed[2].groups[0].key_type = changed[2].groups[0].value_type = QUIRE_KV_F16; /* as large, padded */
    for (int i = 0; i < 3; i++) {
        rig = disk_rig(&changed[i]);
        quire_kv_match match = rig_match(rig.kv, 0, prompt, PROMPT);
        cr_assert(match.stored_tokens == 0 && match.miss == QUIRE_KV_MISS_FINGERPRINT);
        rig_destroy(rig.kv);
    }
    rig = disk_rig(&config);
    load_all(&rig);
    rig_destroy(rig.kv);
    remove_folder();
}

/* Of the same size and in the same places, and other bytes all the same. */
Test(kv_tiers, another_type_of_the_same_size_is_another_layout) {
    make_folder();
    quire_kv_config config = disk_config();
    for (int i = 0; i < 2; i++) {
        config.groups[0].key_type = config.groups[0].value_type = i ? QUIRE_KV_BF16 : QUIRE_KV_F16;
        quire_kv *kv = rig_create(&config);
        quire_kv_match match = rig_match(kv, 0, prompt, PROMPT);
        cr_assert(match.stored_tokens == 0 && match.miss == (i ? QUIRE_KV_MISS_FINGERPRINT : QUIRE_KV_MISS_NEVER_STORED));
        tiers_rig rig = {.config = config, .no_store = true, .kv = kv, .now_us = 1000000};
        if (i == 0) {
            rig_run(kv, 0, prompt, PROMPT, PROMPT);
            wait_for(&rig, all_is_written);
        }
        rig_destroy(kv);
    }
    remove_folder();
}

Test(kv_tiers, a_folder_in_use_is_refused) {
    make_folder();
    quire_kv_config config = disk_config();
    quire_kv *kv = rig_create(&config);
    quire_error error;
    cr_assert_eq(create(&config, &(qr_kv_parts){0}, &error), QUIRE_BUSY);
    cr_assert(strstr(error.source, folder) || strstr(error.text, folder));
    rig_destroy(kv);
    config.tiers.disk_max_bytes = 4096;
    cr_assert_eq(create(&config, &(qr_kv_parts){0}, &error), QUIRE_INVALID);
    remove_folder();
}

/* ---- what it costs ---- */

Test(kv_tiers, more_blocks_below_than_can_be_numbered_are_refused) {
    quire_kv_config config = rig_config();
    kv_tier_sizes sizes[] = {{.slot_count = UINT32_MAX, .record_max = 2}, {.slot_count = 1, .record_max = UINT32_MAX}};
    for (int i = 0; i < 2; i++) {
        qr_arena arena = {0};
        cr_assert(qr_kv_lay_out(&config, &sizes[i], &arena) == NULL && arena.failed);
        cr_assert_not(qr_kv_tiers_can_be_numbered(&config, &sizes[i]));
    }
}

/* The largest that is allowed can be laid out, and one more is refused with the numbers. */
Test(kv_tiers, as_many_blocks_below_as_can_be_numbered_are_taken) {
    quire_kv_config config = rig_config();
    config.max_namespaces = 7;
    config.tiers.disk_path = "/nonexistent/quire";
    uint32_t taken = config.block_count * (1 + QR_TREE_GHOSTS_PER_BLOCK) + 7 + QR_NAMESPACES_DEFAULT_DISK;
    kv_tier_sizes sizes = {.slot_count = 1000, .record_max = (UINT32_C(1) << 31) - 1 - taken - 1000};
    quire_error error;
    qr_arena arena = {0};
    cr_assert_eq(qr_kv_tiers_budget_check(&config, &sizes, &error), QUIRE_OK);
    (void)qr_kv_lay_out(&config, &sizes, &arena);
    cr_assert_not(arena.failed);
    sizes.slot_count++;
    cr_assert_eq(qr_kv_tiers_budget_check(&config, &sizes, &error), QUIRE_INVALID);
    cr_assert(strstr(error.text, "64 blocks, 1001 in host memory"), "%s", error.text);
}

Test(kv_tiers, everything_that_is_taken_is_counted_before) {
    make_folder();
    quire_kv_config config = disk_config(), without = config;
    without.tiers = (quire_kv_tiers){0};
    uint64_t plain = quire_kv_memory_bytes(&without), disk = quire_kv_memory_bytes(&config);
    config.tiers.host_bytes = 1 << 20;
    uint64_t both = quire_kv_memory_bytes(&config);
    cr_assert(disk > plain + (1 << 16) && both > disk + (1 << 19) && both < disk + (1 << 21));
    uint64_t below, buffers = qr_disk_memory_bytes(&(qr_disk_config){.path = folder,
                                                                     .cap_bytes = config.tiers.disk_max_bytes,
                                                                     .payload_bytes = qr_kv_payload_bytes(&config),
                                                                     .block_tokens = config.block_tokens});
    cr_assert(qr_kv_tiers_bytes(&without, &below) && below == 0);
    cr_assert(qr_kv_tiers_bytes(&config, &below) && buffers > 0 && below > buffers + (1 << 19));
    cr_assert_geq(disk, plain + buffers);
    quire_kv *kv;
    cr_assert_eq(qr_kv_create_from(&config, &(qr_kv_parts){.host_tier = true}, &kv, NULL), QUIRE_OK);
    cr_assert_lt(rig_stats(kv).bookkeeping_bytes + rig_stats(kv).pool_bytes, both);
    rig_destroy(kv);
    remove_folder();
}

static uint64_t status_bytes(const char *field) {
    char line[128];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    cr_assert(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) kib = strtoull(line + strlen(field), NULL, 10);
    fclose(file);
    return kib * 1024;
}

/* From here on VmHWM is the peak. False where the kernel does not allow it. */
static bool reset_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return false;
    bool done = fputs("5", file) >= 0;
    return fclose(file) == 0 && done;
}

/* Buffers, tables, stacks of threads, and what reading the index takes for a moment: the first time, and when there is one. */
Test(kv_tiers, memory_never_grows_past_what_was_promised) {
    make_folder();
    quire_kv_config config = disk_config();
    config.block_count = 64;
    config.groups[0].layer_count = 500;
    config.tiers.disk_max_bytes = 64 << 20;
    uint64_t promise = quire_kv_memory_bytes(&config), slack = 512 << 10; /* of the test's own, and of libc */
    for (int life = 0; life < 2; life++) {
        uint64_t before = status_bytes("VmRSS:");
        if (!reset_peak()) continue;
        tiers_rig rig = disk_rig(&config);
        if (life == 0) {
            tiers_rig_run(&rig, 0, prompt, PROMPT);
            wait_for(&rig, all_is_written);
        }
        quire_kv_evict(rig.kv, 100);
        load_all(&rig);
        uint64_t grown = status_bytes("VmHWM:") - before;
        cr_assert_leq(grown, promise + slack, "%llu bytes, %llu were promised", (unsigned long long)grown,
                      (unsigned long long)promise);
        rig_destroy(rig.kv);
    }
    remove_folder();
}
