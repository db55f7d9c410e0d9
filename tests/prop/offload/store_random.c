/* Random operations on the disk store against a naive model (store_model.h): 100,000 in all. Replay with QUIRE_SEED; seeds of
 * the calm runs replay exactly, those of the others as far as the scheduler does the same again: what fails is drawn by kind of
 * call and its number. QUIRE_STEPS makes runs
 * longer or shorter. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/prop/offload/store_model.h"

static uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void show(const model_coverage *c) {
    if (!getenv("QUIRE_VERBOSE")) return;
    fprintf(stderr,
            "puts %llu (%llu failed) gets %llu (%llu failed, %llu gone) lost %llu dropped %llu erased %llu seals %llu\n"
            "closes %llu kills %llu cuts %llu found %llu (%llu foreign, %llu twice) scans %llu; refused:",
            (unsigned long long)c->puts, (unsigned long long)c->put_failed, (unsigned long long)c->gets,
            (unsigned long long)c->get_failed, (unsigned long long)c->get_gone, (unsigned long long)c->lost,
            (unsigned long long)c->dropped, (unsigned long long)c->erased, (unsigned long long)c->seals,
            (unsigned long long)c->closes, (unsigned long long)c->kills, (unsigned long long)c->cuts,
            (unsigned long long)c->found, (unsigned long long)c->found_foreign, (unsigned long long)c->duplicates,
            (unsigned long long)c->scans);
    for (int i = 0; i < QR_STORE_REFUSAL_COUNT; i++) fprintf(stderr, " %llu", (unsigned long long)c->refused[i]);
    fprintf(stderr, "\n");
}

static model_coverage run(model_options options, uint64_t steps) {
    store_model *m = malloc(sizeof *m);
    cr_assert_not_null(m);
    options.seed = from_environment("QUIRE_SEED", options.seed);
    steps = from_environment("QUIRE_STEPS", steps);
    model_create(m, &options);
    for (uint64_t i = 0; i < steps; i++) model_step(m);
    model_destroy(m);
    model_coverage coverage = m->coverage;
    free(m);
    show(&coverage);
    cr_assert(coverage.puts > steps / 20 && coverage.gets > steps / 20, "a run that does nothing proves nothing");
    return coverage;
}

Test(prop_offload, a_calm_store) {
    model_options options = {.seed = 201, .payload_pages = 1, .cap_factor = 3, .calm = true, .erases = true};
    model_coverage c = run(options, 15000);
    cr_assert(c.lost && c.dropped && c.erased && c.seals && c.closes && c.found && c.scans);
    cr_assert(c.put_failed == 0 && c.get_failed == 0);
}

Test(prop_offload, a_busy_store) {
    model_options options = {.seed = 202, .payload_pages = 2, .cap_factor = 4, .erases = true};
    model_coverage c = run(options, 25000);
    cr_assert(c.lost && c.erased && c.get_gone && c.seals && c.closes && c.found);
    cr_assert(c.put_failed == 0 && c.get_failed == 0);
}

Test(prop_offload, the_smallest_store) {
    model_options options = {.seed = 203, .payload_pages = 1, .cap_factor = 1, .erases = true, .kills = true};
    model_coverage c = run(options, 10000);
    cr_assert(c.lost && c.kills && c.found);
}

Test(prop_offload, kills_at_any_instant) {
    model_options options = {.seed = 204, .payload_pages = 1, .cap_factor = 4, .erases = true, .kills = true};
    model_coverage c = run(options, 15000);
    cr_assert(c.kills && c.found && c.lost && c.erased);
}

Test(prop_offload, power_cuts_at_any_instant) {
    model_options options = {.seed = 205, .payload_pages = 1, .cap_factor = 4, .erases = true, .kills = true, .power = true};
    model_coverage c = run(options, 15000);
    cr_assert(c.cuts && c.kills && c.seals && c.found && c.lost);
}

Test(prop_offload, a_disk_that_fails_and_fills) {
    model_options options = {.seed = 206,
                             .payload_pages = 1,
                             .cap_factor = 4,
                             .faults = "eio_read=0.01,eio_write=0.01,eio_sync=0.02,eio_open=0.02,eio_remove=0.1,eio_punch=0.1,"
                                       "nospace_allocate=0.2,nospace_write=0.01",
                             .erases = true,
                             .kills = true,
                             .power = true};
    model_coverage c = run(options, 60000);
    cr_assert(c.put_failed && c.get_failed && c.cuts && c.erased && c.found && c.lost && c.seals);
}

Test(prop_offload, a_disk_that_changes_bits) {
    model_options options = {.seed = 207,
                             .payload_pages = 1,
                             .cap_factor = 4,
                             .faults = "flip_read=0.05,flip_write=0.03",
                             .corrupting = true,
                             .kills = true};
    model_coverage c = run(options, 40000);
    cr_assert(c.get_failed && c.found);
}

Test(prop_offload, a_folder_of_two_models) {
    model_options options = {
        .seed = 208, .payload_pages = 1, .cap_factor = 4, .foreign = true, .erases = true, .kills = true, .power = true};
    model_coverage c = run(options, 10000);
    cr_assert(c.found_foreign && c.found && c.lost && c.erased);
}
