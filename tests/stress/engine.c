/* engine stress: the real thread on the simulated backend. An owner submits, cancels, stops choices, forgets, checks and now
 * and then stops polling; two more threads read the statistics. Every request must get exactly one DONE, and destroying in the
 * middle of everything must neither hang nor lose memory. Once more with a cache on disk, whose threads write, read and wake
 * the engine meanwhile, and which the next engine finds again. Run under ThreadSanitizer and AddressSanitizer. */
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "runtime/engine/backend_sim.h"
#include "runtime/engine/engine_internal.h"
#include "tests/support/engine_client.h"

enum { VOCABULARY = 97, BLOCKS = 40, BLOCK_TOKENS = 16, CONTEXT = 256, SEQUENCES = 8, WAITING = 32, READERS = 2 };

static void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "failed: %s\n", what);
    abort();
}

/* folder: of the disk tier; NULL: none. */
static qr_engine_parts make_parts(engine_client *client, uint32_t in_flight, const char *folder) {
    static const quire_token end_tokens[1] = {3};
    quire_kv_config kv = {.block_tokens = BLOCK_TOKENS,
                          .group_count = 1,
                          .groups = {{1, 1, 16, 16, QUIRE_KV_F16, QUIRE_KV_F16}},
                          .block_count = BLOCKS,
                          .max_sequences = SEQUENCES,
                          .max_sequence_tokens = CONTEXT,
                          .storage = QUIRE_KV_STORAGE_NONE};
    qr_sim_config sim = {.limits = {.rows_max = 200,
                                    .samples_max = SEQUENCES + 16,
                                    .sequences_max = SEQUENCES,
                                    .steps_in_flight = in_flight,
                                    .vocabulary_size = VOCABULARY},
                         .block_count = BLOCKS,
                         .block_tokens = BLOCK_TOKENS,
                         .end_tokens = end_tokens,
                         .end_token_count = 1,
                         .step_us = 100,
                         .row_us = 10,
                         .fail_rate = 0.002,
                         .fault_seed = in_flight};
    qr_engine_parts parts = {
        .block_tokens = BLOCK_TOKENS, .wake = engine_client_wake, .wake_context = client, .cpu_path = "sim"};
    parts.scheduler = (qr_scheduler_config){.context_tokens = CONTEXT,
                                            .max_sequences = SEQUENCES,
                                            .max_waiting = WAITING,
                                            .step_us = 2000,
                                            .seed = 1,
                                            .end_tokens = end_tokens,
                                            .end_token_count = 1,
                                            .limits = sim.limits};
    if (folder) {
        require(qr_engine_inbox_create(&parts.scheduler, &parts.inbox) == QUIRE_OK, "inbox");
        kv.storage = QUIRE_KV_STORAGE_HOST;
        kv.tiers = (quire_kv_tiers){.disk_path = folder,
                                    .disk_max_bytes = 8 << 20,
                                    .verify_every = 16,
                                    .wake = qr_engine_wake_inbox,
                                    .wake_context = parts.inbox};
    }
    quire_error error;
    quire_status status = quire_kv_create(&kv, &parts.kv, &error);
    require(status == QUIRE_OK, status == QUIRE_OK ? "" : error.text);
    if (folder) sim.memory = quire_kv_pool_base(parts.kv, 0, &sim.block_stride);
    require(qr_backend_sim_create(&sim, &parts.backend) == QUIRE_OK, "backend");
    return parts;
}

typedef struct reader {
    quire_engine *engine;
    _Atomic bool over;
    uint64_t reads;
} reader;

static void *read_stats(void *argument) {
    reader *r = argument;
    uint64_t tokens = 0, flushes = 0;
    for (; !atomic_load(&r->over); r->reads++) {
        quire_engine_stats stats;
        quire_engine_get_stats(r->engine, &stats);
        require(stats.kv.block_free + stats.kv.block_cached + stats.kv.block_used == stats.kv.block_total, "a torn snapshot");
        require(stats.generated_tokens_total >= tokens, "a counter fell");
        require(stats.running <= SEQUENCES && stats.waiting <= WAITING, "impossible counts");
        require(stats.flushes_total >= flushes && stats.loading <= SEQUENCES, "impossible tiers");
        tokens = stats.generated_tokens_total;
        flushes = stats.flushes_total;
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    return NULL;
}

static quire_request make_request(qr_random *r, uint64_t id, quire_token *prompt) {
    uint32_t count = 1 + qr_random_below(r, 100), family = qr_random_below(r, 4);
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (quire_token)(4 + (family * 31 + i * (i < 40 ? 7 : id)) % (VOCABULARY - 4));
    return (quire_request){.id = id,
                           .prompt = prompt,
                           .prompt_count = count,
                           .namespace_key = "salt",
                           .namespace_bytes = qr_random_below(r, 2) ? 4 : 0,
                           .choice_count = 1 + qr_random_below(r, 3),
                           .max_tokens = qr_random_below(r, 60),
                           .top_logprobs = -1,
                           .timeout_us = qr_random_below(r, 20) == 0 ? 1 + qr_random_below(r, 3000) : 0,
                           .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
}

static void disturb(engine_client *client, qr_random *r, uint64_t next) {
    uint64_t recent = next == 0 ? 0 : next - 1 - qr_random_below(r, next < 20 ? (uint32_t)next : 20);
    switch (qr_random_below(r, 24)) {
    case 0:
    case 1: quire_engine_cancel(client->engine, recent); break;
    case 2: quire_engine_stop_choice(client->engine, recent, qr_random_below(r, 3)); break;
    case 3: quire_engine_forget(client->engine, "salt", 4); break;
    case 4:
        if (qr_random_below(r, 8) == 0) quire_engine_forget(client->engine, NULL, 0);
        break;
    case 5:
        if (qr_random_below(r, 4) == 0) require(quire_engine_check(client->engine, NULL) == QUIRE_OK, "check");
        break;
    case 7: quire_engine_flush(client->engine); break;
    case 8: quire_engine_stop_flush(client->engine); break;
    case 6: nanosleep(&(struct timespec){0, 2000000}, NULL); break; /* a slow client */
    default: break;
    }
}

static void submit_all(engine_client *client, qr_random *r, uint64_t count) {
    quire_token prompt[128];
    for (uint64_t id = 0; id < count;) {
        quire_request request = make_request(r, id, prompt);
        quire_status status = engine_client_submit(client, &request, NULL);
        require(status == QUIRE_OK || status == QUIRE_QUEUE_FULL, "submit");
        if (status == QUIRE_OK) id++;
        disturb(client, r, id);
        if (status == QUIRE_QUEUE_FULL || qr_random_below(r, 3) == 0) engine_client_poll(client, status == QUIRE_OK ? 0 : 100);
    }
}

static void run(uint32_t in_flight, uint64_t count, bool leave_early, const char *folder) {
    engine_client client;
    reader readers[READERS];
    pthread_t threads[READERS];
    qr_random r = {in_flight * 100 + count};
    engine_client_init(&client, (uint32_t)count);
    qr_engine_parts parts = make_parts(&client, in_flight, folder);
    require(qr_engine_start(&parts, &client.engine, NULL) == QUIRE_OK, "start");
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){.engine = client.engine};
        require(pthread_create(&threads[i], NULL, read_stats, &readers[i]) == 0, "thread");
    }
    submit_all(&client, &r, count);
    if (!leave_early) engine_client_check_idle(&client);
    for (int i = 0; i < READERS; i++) {
        atomic_store(&readers[i].over, true);
        pthread_join(threads[i], NULL);
    }
    for (uint64_t id = 0; id < count && !leave_early; id++) require(client.answers[id].done, "a DONE for everybody");
    engine_client_deinit(&client);
}

/* Nobody polls: the engine must stop at its full outbox, still answer checks, lose nothing, and go on when somebody does. */
static void run_deaf(bool leave_early) {
    enum { DEAF = 200 };
    engine_client client;
    qr_random r = {5};
    quire_token prompt[128];
    uint64_t id = 0;
    engine_client_init(&client, DEAF);
    qr_engine_parts parts = make_parts(&client, 2, NULL);
    require(qr_engine_start(&parts, &client.engine, NULL) == QUIRE_OK, "start");
    for (int tries = 0; tries < 400 && id < DEAF; tries++) {
        quire_request request = make_request(&r, id, prompt);
        request.max_tokens = 100;
        if (engine_client_submit(&client, &request, NULL) == QUIRE_OK) id++;
        else nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    require(id < DEAF, "an owner that does not poll is refused in the end");
    for (int tries = 0; !atomic_load(&client.engine->starved); tries++) {
        require(tries < 5000, "its outbox never fills");
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    require(quire_engine_check(client.engine, NULL) == QUIRE_OK, "check of a starved engine");
    if (!leave_early) engine_client_check_idle(&client);
    engine_client_deinit(&client);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

/* Again and again over one folder, left in the middle or at the end. */
static void run_with_disk(uint64_t count) {
    char folder[] = "/tmp/quire-stress-engine-XXXXXX";
    require(mkdtemp(folder) != NULL, "a folder");
    for (uint32_t in_flight = 1; in_flight <= 2; in_flight++) {
        run(in_flight, count, false, folder);
        for (uint64_t early = 1; early < 60; early += 7) run(in_flight, early, true, folder);
        run(in_flight, count / 2, false, folder);
    }
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 600;
    for (uint32_t in_flight = 1; in_flight <= 2; in_flight++) {
        run(in_flight, count, false, NULL);
        for (uint64_t early = 1; early < 40; early += 3) run(in_flight, early, true, NULL);
    }
    run_with_disk(count);
    run_deaf(false);
    run_deaf(true);
    return 0;
}
