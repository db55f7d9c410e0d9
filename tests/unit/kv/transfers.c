/* Copies under way: what they hold, how many there may be, and what is left of their bytes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/kv/kv_internal.h"
#include "tests/unit/kv/tiers_rig.h"

enum { PROMPT = 10 * RIG_BLOCK, OTHER = 4 * RIG_BLOCK, LONG = 200 * RIG_BLOCK };

static quire_token prompt[PROMPT], other[OTHER];

/* Copies that take up to so many polls. Every one of them asks the device once or more. */
static tiers_rig rig_make_slow(uint32_t delay) {
    tiers_rig rig = tiers_rig_make();
    rig.device_sim = true;
    rig.device = (qr_device_sim_config){.seed = 4, .delay_polls_max = delay};
    rig_count_up(prompt, PROMPT, 1);
    rig_count_up(other, OTHER, 1000);
    return rig;
}

static void rounds(tiers_rig *rig, int count) {
    while (count-- > 0) tiers_rig_round(rig);
}

static bool all_zero(const unsigned char *bytes, size_t count) {
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

static void expect_clean_pools(const tiers_rig *rig) {
    for (uint32_t g = 0; g < rig->config.group_count; g++) {
        size_t stride;
        const unsigned char *pool = quire_kv_pool_base(rig->kv, g, &stride);
        for (uint32_t block = 0; block < rig->config.block_count; block++)
            cr_assert(all_zero(pool + block * stride, stride), "group %u, block %u", g, block);
    }
}

/* ---- bytes ---- */

/* As a device whose memory the CPU can reach, and whose copies take their time all the same. */
static void reach_pools(const tiers_rig *rig) {
    static qr_device_ops reachable;
    reachable = *rig->kv->device->ops;
    reachable.memory_is_host = true;
    rig->kv->device->ops = &reachable;
}

/* A block that only a copy keeps when its namespace is forgotten: on its way to host memory, and to the store. */
Test(kv_transfers, what_is_forgotten_on_its_way_out_is_overwritten_in_the_pool) {
    for (int store = 0; store < 2; store++) {
        tiers_rig rig = rig_make_slow(50);
        rig.no_store = !store;
        rig.host_slots = store ? 0 : 16;
        tiers_rig_open(&rig);
        reach_pools(&rig);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        if (store) tiers_rig_round(&rig);
        else cr_assert_eq(quire_kv_evict(rig.kv, 6), 6);
        cr_assert_gt(rig.kv->tiers.gathers.count, 0);
        cr_assert_lt(quire_kv_forget_all(rig.kv, true), 10, "some are still being copied");
        tiers_rig_settle(&rig);
        expect_clean_pools(&rig);
        tiers_rig_close(&rig);
    }
}

/* The sequence that loads lets go of its blocks while bytes are still coming. */
Test(kv_transfers, what_is_forgotten_on_its_way_in_is_overwritten_when_it_has_come) {
    tiers_rig rig = rig_make_slow(50);
    quire_seq_id seq;
    rig.no_store = true;
    rig.host_slots = 16;
    tiers_rig_open(&rig);
    reach_pools(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 10);
    tiers_rig_settle(&rig);
    for (uint32_t g = 0; g < 2; g++) { /* evicted and not forgotten: nobody has promised anything of these */
        size_t stride;
        unsigned char *pool = quire_kv_pool_base(rig.kv, g, &stride);
        memset(pool, 0, stride * rig.config.block_count);
    }
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_gt(rig.kv->tiers.scatters.count, 0);
    quire_kv_forget_all(rig.kv, true);
    rig_close(rig.kv, seq);
    cr_assert_gt(rig.kv->tiers.scatters.count, 0);
    tiers_rig_settle(&rig);
    expect_clean_pools(&rig);
    tiers_rig_close(&rig);
}

/* ---- how many ---- */

static tiers_rig rig_open_wide(quire_token *words, bool store) {
    tiers_rig rig = rig_make_slow(20);
    rig.no_store = !store;
    rig.host_slots = store ? 0 : 200;
    rig.config.block_count = 200;
    rig.config.max_sequence_tokens = LONG;
    rig.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    rig.store.record_max = 400;
    rig.store.read_buffers = rig.store.write_buffers = 200;
    rig_count_up(words, LONG, 1);
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, words, LONG);
    return rig;
}

/* Out and in again, through host memory: more blocks than there may be copies. */
Test(kv_transfers, a_crowd_of_copies_goes_in_turns) {
    static quire_token words[LONG];
    tiers_rig rig = rig_open_wide(words, false);
    quire_seq_id seq;
    cr_assert_eq(quire_kv_evict(rig.kv, 200), KV_TRANSFERS);
    cr_assert_eq(rig.kv->tiers.gathers.count, KV_TRANSFERS);
    cr_assert_eq(quire_kv_evict(rig.kv, 1), 0);
    for (int i = 0; i < 100 && rig_stats(rig.kv).block_free < 200; i++) {
        tiers_rig_round(&rig);
        quire_kv_evict(rig.kv, 200);
    }
    cr_assert_eq(rig_match(rig.kv, 0, words, LONG).stored_tokens, LONG);
    tiers_rig_load(&rig, 0, words, LONG, false, &seq);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.scatters.count, KV_HOST_LOADS_PER_POLL, "the owner's thread has other things to do");
    cr_assert_eq(quire_kv_poll_after_us(rig.kv), 0);
    uint32_t most = 0;
    for (int i = 0; i < 20; i++) {
        tiers_rig_round(&rig);
        if (rig.kv->tiers.scatters.count > most) most = rig.kv->tiers.scatters.count;
    }
    cr_assert(most > KV_HOST_LOADS_PER_POLL && most <= KV_TRANSFERS, "%u", most);
    cr_assert_eq(tiers_rig_finish(&rig, seq, words, LONG, 0), LONG);
    tiers_rig_check_bytes(&rig, seq);
    rig_close(rig.kv, seq);
    tiers_rig_close(&rig);
}

/* Who needs blocks counts those that copies under way will give back, and only those: neither a sequence's own, which are being
 * written, nor what is evicted as well. */
Test(kv_transfers, only_blocks_that_nobody_else_has_are_about_to_be_free) {
    tiers_rig rig = rig_make_slow(50);
    quire_seq_id a, b;
    rig.no_store = false;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, other, OTHER);
    tiers_rig_settle(&rig);
    tiers_rig_start(&rig, 0, prompt, PROMPT, &a);
    tiers_rig_round(&rig);
    cr_assert_gt(rig.kv->tiers.gathers.count, 2);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &b), QUIRE_OK);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, b, 5 * RIG_BLOCK), QUIRE_OK); /* 2 are free, 4 are cached and written */
    cr_assert_eq(rig_stats(rig.kv).block_cached, 1);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, b, 7 * RIG_BLOCK), QUIRE_NO_BLOCKS);
    cr_assert_eq(rig_stats(rig.kv).block_cached, 1, "nothing is given up for what cannot be had");
    rig_close(rig.kv, a);
    rig_close(rig.kv, b);
    tiers_rig_settle(&rig);
    tiers_rig_close(&rig);
}

Test(kv_transfers, blocks_of_a_load_that_ended_are_waited_for_before_others_are_evicted) {
    tiers_rig rig = rig_make_slow(50);
    quire_seq_id a, b;
    rig.no_store = true;
    rig.host_slots = 16;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 10);
    tiers_rig_settle(&rig);
    tiers_rig_run(&rig, 0, other, OTHER);
    tiers_rig_load(&rig, 0, prompt, PROMPT, false, &a);
    tiers_rig_round(&rig);
    cr_assert_eq(rig.kv->tiers.scatters.count, 10);
    rig_close(rig.kv, a);
    cr_assert_eq(quire_kv_seq_open(rig.kv, 0, &b), QUIRE_OK);
    for (uint32_t wanted = 5; wanted <= 12; wanted += 7) { /* 2 are free, and 10 will be */
        cr_assert_eq(quire_kv_seq_reserve(rig.kv, b, wanted * RIG_BLOCK), QUIRE_NO_BLOCKS);
        cr_assert(quire_kv_busy(rig.kv) && rig_stats(rig.kv).block_cached == 4);
    }
    tiers_rig_settle(&rig);
    cr_assert_eq(quire_kv_seq_reserve(rig.kv, b, 12 * RIG_BLOCK), QUIRE_OK);
    cr_assert_eq(rig_stats(rig.kv).block_cached, 4);
    rig_close(rig.kv, b);
    tiers_rig_close(&rig);
}

/* Whoever waits for blocks hears of them. */
Test(kv_transfers, a_poll_says_when_blocks_became_free) {
    tiers_rig rig = rig_make_slow(60);
    rig.no_store = true;
    rig.host_slots = 16;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 10);
    cr_assert_eq(rig_stats(rig.kv).block_free, 6);
    while (quire_kv_busy(rig.kv)) {
        uint32_t before = rig_stats(rig.kv).block_free;
        bool changed = tiers_rig_round(&rig);
        cr_assert_eq(changed, rig_stats(rig.kv).block_free > before);
    }
    cr_assert_eq(rig_stats(rig.kv).block_free, 16);
    tiers_rig_close(&rig);
}

/* ---- the device ---- */

/* A load begins to read a slot that is still being filled: the copies go over different streams. */
Test(kv_transfers, a_slot_is_read_when_it_is_filled) {
    for (uint64_t seed = 1; seed < 30; seed++) {
        tiers_rig rig = rig_make_slow(30);
        quire_seq_id seq;
        rig.no_store = true;
        rig.host_slots = 16;
        rig.device.seed = seed;
        rig.device.reorder = true;
        rig.config.block_count = 32;
        tiers_rig_open(&rig);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        quire_kv_evict(rig.kv, 10);
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), PROMPT);
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}

/* What the device is told when the manager goes, as a driver would see it: nothing that is registered or allocated may go while
 * a copy uses it, and what was registered is given back. */
static struct {
    const qr_device_ops *ops;
    const void *unregistered[4];
    uint32_t unregistered_count, busy_count;
} watched;

static void watch_for_copies(qr_device *device) {
    for (int stream = 0; stream < QR_DEVICE_STREAMS_MAX; stream++)
        watched.busy_count += !watched.ops->poll(device, watched.ops->event(device, stream));
}
static void watched_unregister(qr_device *device, void *memory) {
    watch_for_copies(device);
    cr_assert_lt(watched.unregistered_count, 4);
    watched.unregistered[watched.unregistered_count++] = memory;
    watched.ops->host_unregister(device, memory);
}
static void watched_free(qr_device *device, void *memory) {
    watch_for_copies(device);
    watched.ops->free(device, memory);
}

static bool was_unregistered(const void *memory) {
    for (uint32_t i = 0; i < watched.unregistered_count; i++)
        if (watched.unregistered[i] == memory) return true;
    return false;
}

Test(kv_transfers, nothing_goes_before_its_copies_are_done_and_all_is_given_back) {
    static qr_device_ops watching;
    tiers_rig rig = rig_make_slow(5000);
    rig.host_slots = 16;
    rig.config.tiers.verify_every = 2;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    quire_kv_evict(rig.kv, 6);
    tiers_rig_round(&rig);
    cr_assert_gt(rig.kv->tiers.gathers.count, 2);
    const void *slots = rig.kv->tiers.host.region.base, *buffers = rig.kv->tiers.store_buffers,
               *scratch = rig.kv->tiers.scratch;
    cr_assert(slots && buffers && scratch);
    watched.ops = rig.kv->device->ops;
    watching = *watched.ops;
    watching.host_unregister = watched_unregister;
    watching.free = watched_free;
    rig.kv->device->ops = &watching;
    quire_kv_destroy(rig.kv);
    cr_assert_eq(watched.busy_count, 0);
    cr_assert(was_unregistered(slots) && was_unregistered(buffers) && was_unregistered(scratch));
    fake_store_destroy(rig.fake);
}

static quire_status refuse_copy(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    (void)device, (void)stream, (void)to, (void)from, (void)size_bytes;
    return QUIRE_IO;
}

/* The second group's copy is refused when the first one's has begun: the slot may be written to until that is over. */
static int refuse_every_other;
static quire_status (*copy_really)(qr_device *, int, void *, const void *, size_t);
static quire_status refuse_second_copy(qr_device *device, int stream, void *to, const void *from, size_t size_bytes) {
    return ++refuse_every_other % 2 ? copy_really(device, stream, to, from, size_bytes) : QUIRE_IO;
}

static void refuse_copies_by(tiers_rig *rig, quire_status (*copy)(qr_device *, int, void *, const void *, size_t)) {
    static qr_device_ops refusing;
    refusing = *rig->kv->device->ops;
    copy_really = refusing.copy_async;
    refusing.copy_async = copy;
    rig->kv->device->ops = &refusing;
}

Test(kv_transfers, half_a_copy_holds_its_slot_until_it_is_over) {
    tiers_rig rig = rig_make_slow(50);
    rig.no_store = true;
    rig.host_slots = 4;
    tiers_rig_open(&rig);
    tiers_rig_run(&rig, 0, prompt, PROMPT);
    refuse_copies_by(&rig, refuse_second_copy);
    cr_assert_eq(quire_kv_evict(rig.kv, 3), 3);
    cr_assert_eq(rig_match(rig.kv, 0, prompt, PROMPT).stored_tokens, 0);
    cr_assert_eq(tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_HOST].block_count, 3);
    tiers_rig_settle(&rig);
    quire_kv_tier_stats host = tiers_rig_stats(&rig).tiers[QUIRE_KV_TIER_HOST];
    cr_assert(host.block_count == 0 && host.stored_blocks_total == 0);
    tiers_rig_close(&rig);
}

/* A block that is on disk and cannot be copied to the device is none that a load takes. */
Test(kv_transfers, a_refused_copy_ends_a_load_there) {
    for (int host = 0; host < 2; host++) {
        tiers_rig rig = rig_make_slow(3);
        quire_seq_id seq;
        rig.no_store = host;
        rig.host_slots = host ? 16 : 0;
        tiers_rig_open(&rig);
        tiers_rig_run(&rig, 0, prompt, PROMPT);
        tiers_rig_settle(&rig);
        quire_kv_evict(rig.kv, 100);
        tiers_rig_settle(&rig);
        tiers_rig_load(&rig, 0, prompt, PROMPT, false, &seq);
        refuse_copies_by(&rig, refuse_copy);
        cr_assert_eq(tiers_rig_finish(&rig, seq, prompt, PROMPT, 0), 0);
        quire_kv_load_state state = tiers_rig_state(&rig, seq);
        quire_kv_tiers_stats stats = tiers_rig_stats(&rig);
        cr_assert(state.failed && state.cause == QUIRE_KV_MISS_DAMAGED && state.host_tokens + state.disk_tokens == 0);
        quire_kv_tier tier = host ? QUIRE_KV_TIER_HOST : QUIRE_KV_TIER_DISK;
        cr_assert_eq(stats.tiers[tier].loaded_blocks_total, 0);
        if (host) cr_assert_eq(stats.tiers[tier].load_bytes_per_second, 0, "nothing was learnt");
        rounds(&rig, 3);
        rig_close(rig.kv, seq);
        tiers_rig_close(&rig);
    }
}
