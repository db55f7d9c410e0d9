/* world.h - the scheduler, the KV manager and the simulated backend joined under a virtual clock, for tests.
 *
 * Every step checks the invariants of scheduler and KV manager. Every request's events are recorded and must keep their
 * order; world_solo runs one request alone in an empty house, which is what its answer must equal in any company.
 *
 * With `tiered` the words of the simulated backend lie in the KV manager's pool, whose blocks go to a host tier of a simulated
 * device and to a store with a speed and failures, and come back: a wrong block that comes back changes the answer. Where
 * nothing can run, time goes on to what is due next; that there is such a thing while requests are left is asserted. */
#ifndef QR_TESTS_SIM_WORLD_H
#define QR_TESTS_SIM_WORLD_H

#include "base/device.h"
#include "base/random.h"
#include "runtime/engine/backend_sim.h"
#include "runtime/engine/scheduler.h"
#include "tests/support/fake_store.h"

enum { WORLD_VOCABULARY = 97, WORLD_END_TOKEN = 3, WORLD_ANSWER_MAX = 512, WORLD_CHOICES = 4 };

typedef struct world_options {
    uint32_t block_tokens, block_count, context_tokens, max_sequences, max_waiting, steps_in_flight, step_us;
    uint32_t rows_max; /* 0: 256 */
    bool cache_disabled, unchecked;
    double fail_rate, bad_logits_rate;
    uint64_t fault_seed;
    /* Lower tiers. Blocks are of at least 16 tokens then. */
    bool tiered;
    fake_store_config store; /* block_tokens and payload_bytes are filled in; record_max 0: no store */
    fake_store_faults faults;
    quire_kv_disk_write write;
    uint32_t verify_every;
    uint32_t host_blocks; /* 0: no host tier */
    qr_device_sim_config device;
} world_options;

typedef struct world_choice {
    quire_token tokens[WORLD_ANSWER_MAX];
    uint64_t digests[WORLD_ANSWER_MAX];
    uint32_t count;
    quire_finish finish;
    bool done;
} world_choice;

typedef struct world_record {
    uint64_t id;
    uint32_t started, done, choices_done, progress, prompt_scores;
    uint64_t scores_hash;
    uint64_t started_us, first_token_us, done_us, added_us;
    quire_event last; /* DONE */
    quire_kv_match match;
    world_choice choices[WORLD_CHOICES];
} world_record;

typedef struct world {
    world_options options;
    quire_kv *kv;
    qr_backend *backend;
    qr_scheduler *scheduler;
    qr_scheduler_config config;
    fake_store *store;     /* NULL: none */
    world_record *records; /* [record_count], by id */
    uint32_t record_count;
    uint64_t steps, jobs_freed;
    uint64_t waits;    /* for the tiers, where nothing could run */
    uint64_t alarm_us; /* no such wait goes on beyond this; 0: any may */
} world;

world_options world_defaults(void);
world *world_create(const world_options *options, uint32_t record_count);
/* Asserts that the house is empty: idle, no block used, every job given back. */
void world_destroy(world *w);
uint64_t world_now(const world *w);
/* Validates and adds; the request's id is the index of its record. */
quire_status world_add(world *w, const quire_request *request);
/* Plans and runs one step (or two in flight) to its end. False: nothing to run. */
bool world_step(world *w);
/* Lets the tiers work without requests, for so much virtual time. */
void world_rest(world *w, uint64_t us);
quire_kv_tiers_stats world_tiers(const world *w);
/* Steps until nothing is left. Fails the test when that takes more than max_steps. */
void world_drain(world *w, uint64_t max_steps);
quire_engine_stats world_stats(const world *w);
quire_kv_stats world_kv_stats(const world *w);

/* Greedy, seeded by its id, nothing special. The prompt is borrowed. */
quire_request world_request(uint64_t id, const quire_token *prompt, uint32_t prompt_count, uint32_t max_tokens);
/* A prompt of random tokens. */
void world_prompt(uint64_t seed, quire_token *prompt, uint32_t count);

/* Runs the request alone in an empty, roomy house without faults, timeout or cancellation. */
void world_solo(const world_options *options, const quire_request *request, world_record *record);
/* The record's choices are what the solo run gave; those that were cut short, its beginning. */
void world_assert_equal(const world_record *record, const world_record *solo, uint32_t choices);
#endif
