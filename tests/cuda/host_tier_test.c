/* host_tier_test.c - the KV manager and its lower tiers over device_cuda on the emulated runtime: the random life of
 * tests/prop/kv/tiers_model.h, whose every byte is checked after every operation.
 *
 * On the emulated runtime a copy runs when an event of its stream is asked for, and no sooner; with EMU_STREAMS=eager it runs
 * at once, with random in any call. A block that is given away before its copy out is done, or read before its copy in is,
 * shows as wrong bytes.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/cuda/device_cuda.h"
#include "tests/prop/kv/kv_model.h"
#include "tests/prop/kv/tiers_model.h"

enum { STEPS = 60000 };

static qr_device *make_device(void) {
    qr_device *device;
    quire_error error;
    cr_assert_eq(qr_device_cuda_create(0, &device, &error), QUIRE_OK, "%s", error.text);
    return device;
}

static tiers_options small_options(uint64_t seed) {
    tiers_options o = {.config = tiers_model_config(2), .make_device = make_device, .seed = model_seed(seed)};
    o.config.groups[1].layer_count = 300;
    return o;
}

static void run(const tiers_options *options) {
    tiers_model *m = malloc(sizeof *m);
    tiers_model_create(m, options);
    tiers_model_live(m, STEPS);
    /* A run that never comes to the interesting cases proves nothing. */
    const tiers_counts *c = &m->counts;
    cr_assert(c->taken > STEPS / 60 && c->host > STEPS / 500 && c->abandoned > 10 && c->copied > 10);
    cr_assert(!options->has_store || c->disk > STEPS / 500);
    tiers_model_destroy(m);
    free(m);
}

Test(cuda_host_tier, blocks_leave_for_host_memory_and_come_back_by_dma) {
    tiers_options o = small_options(301);
    o.host_slots = 20;
    run(&o);
}

Test(cuda_host_tier, a_store_below_it_reads_and_writes_pinned_memory) {
    tiers_options o = small_options(302);
    o.host_slots = 8;
    o.has_store = o.faults = o.restarts = true;
    o.record_max = 40;
    run(&o);
}

Test(cuda_host_tier, written_at_eviction_and_verified) {
    tiers_options o = small_options(303);
    o.host_slots = 8;
    o.has_store = true;
    o.record_max = 24;
    o.config.tiers.disk_write = QUIRE_KV_DISK_EVICT;
    o.config.tiers.verify_every = 3;
    run(&o);
}
