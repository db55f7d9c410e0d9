#include "tests/support/tier_laws.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "runtime/engine/engine_parts.h"
#include "tests/support/faulty_files.h"

enum { PROMPTS = 8, CAP_MIB = 256, PATIENCE_MS = 120000 };

#define LAW_REQUIRE(condition)                                              \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

/* Prompts, what they answer alone, a folder, and an engine that is asked. */
typedef struct law_room {
    const tier_laws *laws;
    quire_engine_config config;
    quire_token *prompts[PROMPTS];
    client_answer *alone; /* [PROMPTS] */
    engine_client client;
    qr_files *files; /* of the disk; NULL: the system's */
    char folder[64];
    int wrong;
} law_room;

/* ---- the room ---- */

/* Half of each prompt is common to all, so that blocks are shared between sequences in every tier. */
static quire_token *make_prompt(const tier_laws *laws, uint64_t seed) {
    uint32_t vocabulary = quire_model_get_info(laws->model)->vocabulary_size;
    quire_token *prompt = malloc(laws->prompt_tokens * sizeof *prompt);
    LAW_REQUIRE(prompt);
    for (uint32_t i = 0; i < laws->prompt_tokens; i++) {
        uint64_t own = i < laws->prompt_tokens / 4 ? 0 : seed * 1000003;
        prompt[i] = (quire_token)(qr_mix64(own + i) % (vocabulary - 20) + 20);
    }
    return prompt;
}

static quire_request request_of(const law_room *room, uint32_t which) {
    return (quire_request){
        .id = which,
        .prompt = room->prompts[which],
        .prompt_count = room->laws->prompt_tokens,
        .choice_count = 1,
        .max_tokens = room->laws->answer_tokens,
        .ignore_eos = true,
        .logits_digest = true,
        .sampling = {.temperature = 1, .top_p = 0.9f, .repetition_penalty = 1.1f, .seeded = true, .seed = which}};
}

/* A pool for two prompts and a half: eight do not fit. */
static quire_engine_config config_of(const tier_laws *laws) {
    uint32_t blocks = (laws->prompt_tokens + laws->answer_tokens + 15) / 16;
    return (quire_engine_config){.context_tokens = laws->prompt_tokens + laws->answer_tokens + 16,
                                 .block_tokens = 16,
                                 .kv_block_count = blocks * 5 / 2 + 2,
                                 .key_type = laws->type,
                                 .value_type = laws->type,
                                 .max_sequences = PROMPTS,
                                 .thread_count = 1,
                                 .seed = 1};
}

static void room_add(law_room *room, uint32_t which) {
    quire_request request = request_of(room, which);
    memset(&room->client.answers[which], 0, sizeof *room->client.answers);
    LAW_REQUIRE(engine_client_submit(&room->client, &request, NULL) == QUIRE_OK);
}

static void room_ask(law_room *room, uint32_t which) {
    room_add(room, which);
    engine_client_wait(&room->client);
}

static void room_init(law_room *room, const tier_laws *laws) {
    *room = (law_room){.laws = laws, .config = config_of(laws), .folder = "/tmp/quire-tier-laws-XXXXXX"};
    LAW_REQUIRE(mkdtemp(room->folder) && (room->alone = calloc(PROMPTS, sizeof *room->alone)));
    engine_client_init(&room->client, PROMPTS);
    quire_engine_config config = room->config;
    config.cache_disabled = true;
    engine_client_open(&room->client, &config, laws->model);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        room->prompts[i] = make_prompt(laws, i + 1);
        room_ask(room, i);
        room->alone[i] = room->client.answers[i];
    }
    engine_client_close(&room->client);
    room->config.disk_cache_path = room->folder;
    room->config.disk_cache_max_bytes = (uint64_t)CAP_MIB << 20;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static int room_deinit(law_room *room) {
    engine_client_deinit(&room->client);
    nftw(room->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    for (uint32_t i = 0; i < PROMPTS; i++) free(room->prompts[i]);
    free(room->alone);
    return room->wrong;
}

static void room_open_over(law_room *room, const qr_kv_parts *parts, uint64_t host_bytes) {
    quire_engine_config config = room->config;
    quire_error error;
    config.wake = engine_client_wake;
    config.wake_context = &room->client;
    quire_status status = qr_engine_create_over(&config, parts, host_bytes, room->laws->model, &room->client.engine, &error);
    if (status != QUIRE_OK) fprintf(stderr, "%s: %s\n", error.source, error.text);
    LAW_REQUIRE(status == QUIRE_OK);
}

static void room_open(law_room *room) { room_open_over(room, &(qr_kv_parts){.files = room->files}, 0); }

/* ---- what is compared ---- */

static void room_compare(law_room *room, const char *what, uint32_t which) {
    const client_choice *a = &room->client.answers[which].choices[0], *b = &room->alone[which].choices[0];
    uint32_t at = 0;
    while (at < a->count && at < b->count && a->digests[at] == b->digests[at]) at++;
    bool equal = a->count == b->count && at == a->count && a->finish == b->finish &&
                 memcmp(a->tokens, b->tokens, a->count * sizeof *a->tokens) == 0;
    if (!equal) fprintf(stderr, "%s: prompt %u differs at token %u of %u (%u)\n", what, which, at, b->count, a->count);
    room->wrong += !equal;
}

static void room_expect(law_room *room, const char *what, bool holds) {
    if (!holds) fprintf(stderr, "%s\n", what);
    room->wrong += !holds;
}

static const quire_kv_match *room_match(const law_room *room, uint32_t which) { return &room->client.answers[which].end.match; }

/* Asks each, one after the other; returns the tokens that came from the host tier and from disk. */
static void room_ask_all(law_room *room, const char *what, uint64_t *host_tokens, uint64_t *disk_tokens) {
    *host_tokens = *disk_tokens = 0;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        room_ask(room, i);
        room_compare(room, what, i);
        *host_tokens += room_match(room, i)->host_tokens;
        *disk_tokens += room_match(room, i)->disk_tokens;
    }
}

static quire_kv_tiers_stats room_tiers(law_room *room) {
    quire_engine_stats stats;
    quire_engine_get_stats(room->client.engine, &stats);
    return stats.tiers;
}

/* What the figures say about a disk that was not used. */
static void room_explain(law_room *room, const char *what) {
    quire_kv_tiers_stats tiers = room_tiers(room);
    const quire_kv_tier_stats *disk = &tiers.tiers[QUIRE_KV_TIER_DISK];
    fprintf(stderr, "%s: the disk gave too little back: %u blocks on it, %llu loaded at %.0f bytes/s, refused:", what,
            disk->block_count, (unsigned long long)disk->loaded_blocks_total, disk->load_bytes_per_second);
    for (int i = 0; i < QUIRE_KV_REFUSED_COUNT; i++)
        fprintf(stderr, " %s %llu", quire_kv_refusal_name((quire_kv_refusal)i),
                (unsigned long long)tiers.refused_blocks_total[i]);
    fprintf(stderr, "; last miss: %s\n", quire_kv_miss_name(room_match(room, PROMPTS - 1)->miss));
}

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static void room_flush(law_room *room) {
    quire_engine_stats stats;
    quire_engine_get_stats(room->client.engine, &stats);
    uint64_t before = stats.flushes_total;
    quire_engine_flush(room->client.engine);
    for (int ms = 0; stats.flushes_total == before || stats.flush_left > 0; ms++) {
        LAW_REQUIRE(ms < PATIENCE_MS);
        nap();
        quire_engine_get_stats(room->client.engine, &stats);
    }
}

/* Whether to load is a matter of measured speeds, and those of a busy machine move. So what must happen at some time is waited
 * for in passes; what was measured is forgotten by an engine that ends, which is why there is another one now and then. */
enum { PASSES = 24, PASSES_OF_ENGINE = 4 };

static bool room_tries_anew(int pass, bool happened) { return !happened && pass % PASSES_OF_ENGINE == 0; }

static void room_reopen(law_room *room) {
    room_flush(room);
    engine_client_close(&room->client);
    room_open(room);
}

static void room_expect_disk(law_room *room, const char *what) {
    uint64_t host, disk, all = 0;
    for (int pass = 1; pass <= PASSES && all < room->laws->prompt_tokens; pass++, all += disk) {
        room_ask_all(room, what, &host, &disk);
        if (room_tries_anew(pass, disk > 0)) room_reopen(room);
    }
    if (all < room->laws->prompt_tokens) room_explain(room, what);
    room->wrong += all < room->laws->prompt_tokens;
}

/* The first pass over a cold pool, all of it written. */
static void room_fill(law_room *room) {
    uint64_t host, disk;
    room_ask_all(room, "cold", &host, &disk);
    room_flush(room);
    room_expect(room, "cold answers came from a tier", host == 0);
}

/* ---- the laws ---- */

static qr_kv_parts simulated_device(uint64_t seed) {
    qr_kv_parts parts = {.host_tier = true};
    qr_device_sim_config sim = {.seed = seed, .delay_polls_max = 12, .reorder = true};
    LAW_REQUIRE(qr_device_sim_create(&sim, &parts.device) == QUIRE_OK);
    return parts;
}

static void room_open_simulated(law_room *room, uint64_t host_bytes) {
    qr_kv_parts parts = simulated_device(1);
    room_open_over(room, &parts, host_bytes);
}

static uint64_t host_bytes_for(const law_room *room, uint32_t prompts) {
    quire_engine_stats stats;
    quire_engine_get_stats(room->client.engine, &stats);
    return stats.kv.pool_bytes / stats.kv.block_total * prompts * (room->laws->prompt_tokens / 16 + 1);
}

/* Bytes of host memory for so many prompts. */
static uint64_t measure_host(law_room *room, uint32_t prompts) {
    quire_engine_config saved = room->config;
    room->config.disk_cache_path = NULL;
    room_open(room);
    uint64_t bytes = host_bytes_for(room, prompts);
    engine_client_close(&room->client);
    room->config = saved;
    return bytes;
}

int tier_laws_host(const tier_laws *laws) {
    law_room room;
    uint64_t host, disk, all = 0;
    room_init(&room, laws);
    room.config.disk_cache_path = NULL;
    uint64_t host_bytes = measure_host(&room, PROMPTS);
    room_open_simulated(&room, host_bytes);
    for (int pass = 1; pass <= PASSES && all < laws->prompt_tokens; pass++, all += host) {
        room_ask_all(&room, "host", &host, &disk);
        if (!room_tries_anew(pass, host > 0)) continue;
        engine_client_close(&room.client);
        room_open_simulated(&room, host_bytes);
    }
    room_expect(&room, "the host tier gave nothing back", all >= laws->prompt_tokens);
    engine_client_check_idle(&room.client);
    return room_deinit(&room);
}

int tier_laws_disk(const tier_laws *laws) {
    law_room room;
    room_init(&room, laws);
    room_open(&room);
    room_fill(&room);
    room_expect_disk(&room, "disk");
    room_flush(&room);
    engine_client_check_idle(&room.client);
    engine_client_close(&room.client);
    room_open(&room);
    room_ask(&room, 0);
    room_compare(&room, "first after the restart", 0);
    room_expect_disk(&room, "restarted");
    room_expect(&room, "the index did not come back", room_tiers(&room).index_records > 0);
    engine_client_check_idle(&room.client);
    return room_deinit(&room);
}

int tier_laws_abandoned(const tier_laws *laws) {
    law_room room;
    uint64_t host, disk;
    faults none = {0}, slow = {.delay_us = 300000};
    faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
    room_init(&room, laws);
    room.files = faulty_files_table(files);
    room_open(&room);
    room_fill(&room);
    room_expect_disk(&room, "measured");
    faulty_files_set(files, &slow);
    room_ask_all(&room, "abandoned", &host, &disk);
    quire_kv_tiers_stats tiers = room_tiers(&room);
    room_expect(&room, "no load was given up", tiers.refused_blocks_total[QUIRE_KV_REFUSED_ABANDONED] > 0);
    faulty_files_set(files, &none);
    room_ask_all(&room, "after", &host, &disk);
    engine_client_check_idle(&room.client);
    engine_client_close(&room.client);
    faulty_files_destroy(files);
    return room_deinit(&room);
}

/* Overwrites a part of every file of the folder, as a bad cable would. */
static int spoil_entry(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)walk;
    if (kind != FTW_F || status->st_size < 1 << 16) return 0;
    FILE *file = fopen(path, "r+");
    LAW_REQUIRE(file);
    for (uint64_t at = 0; at < (uint64_t)status->st_size; at += 1 << 15) {
        LAW_REQUIRE(fseek(file, (long)(at + qr_mix64(at) % 4096), SEEK_SET) == 0);
        fputc((int)(qr_mix64(at) & 255), file);
    }
    return fclose(file);
}

static bool room_saw_damage(law_room *room) {
    quire_kv_tier_stats disk = room_tiers(room).tiers[QUIRE_KV_TIER_DISK];
    return disk.damaged_total + disk.error_total > 0;
}

/* At least two passes: what was damaged once is asked for again. */
static void room_expect_damage(law_room *room, const char *what) {
    uint64_t host, disk;
    bool seen = false;
    for (int pass = 1; pass <= PASSES && (pass <= 2 || !seen); pass++) {
        room_ask_all(room, what, &host, &disk);
        seen = room_saw_damage(room);
        if (room_tries_anew(pass, seen)) room_reopen(room);
    }
    room_expect(room, "nothing was damaged", seen);
}

int tier_laws_damaged(const tier_laws *laws) {
    law_room room;
    uint64_t host, disk;
    faults none = {0}, bad = {.seed = 3, .flip_read = {.rate = 0.2}, .eio_read = {.rate = 0.1}};
    faulty_files *files = faulty_files_create(qr_files_system(), &none, false);
    room_init(&room, laws);
    room.files = faulty_files_table(files);
    room_open(&room);
    room_fill(&room);
    room_expect_disk(&room, "measured");
    faulty_files_set(files, &bad);
    room_expect_damage(&room, "flipped bits");
    faulty_files_set(files, &none);
    room_flush(&room);
    engine_client_close(&room.client);
    LAW_REQUIRE(nftw(room.folder, spoil_entry, 8, FTW_PHYS) == 0);
    room_open(&room);
    room_ask_all(&room, "spoilt files", &host, &disk);
    room_ask_all(&room, "spoilt files again", &host, &disk);
    engine_client_check_idle(&room.client);
    engine_client_close(&room.client);
    faulty_files_destroy(files);
    return room_deinit(&room);
}

int tier_laws_verified(const tier_laws *laws) {
    law_room room;
    uint64_t host, disk;
    room_init(&room, laws);
    room.config.verify_every = 1;
    room_open(&room);
    room_fill(&room);
    room_ask_all(&room, "verified", &host, &disk);
    room_expect(&room, "a verified request loaded", disk == 0);
    room_expect(&room, "no reason was given", room_match(&room, PROMPTS - 1)->miss == QUIRE_KV_MISS_VERIFYING);
    quire_engine_stats stats = {.kv.block_used = 1};
    for (int ms = 0; stats.kv.block_used > 0; ms++) { /* those that are compared */
        LAW_REQUIRE(ms < PATIENCE_MS);
        nap();
        quire_engine_get_stats(room.client.engine, &stats);
    }
    room_expect(&room, "nothing was verified", stats.tiers.verified_blocks_total > 0);
    room_expect(&room, "a block differs from its recomputation", room_tiers(&room).verify_mismatches_total == 0);
    engine_client_check_idle(&room.client);
    return room_deinit(&room);
}

int tier_laws_other_model(const tier_laws *laws, quire_model *other) {
    law_room mine, theirs;
    const tier_laws others = {other, laws->type, laws->prompt_tokens, laws->answer_tokens, 0};
    uint64_t host, disk;
    room_init(&mine, laws);
    room_init(&theirs, &others);
    room_open(&mine);
    room_fill(&mine);
    engine_client_close(&mine.client);
    theirs.config.disk_cache_path = mine.folder;
    room_open(&theirs);
    room_ask_all(&theirs, "another model", &host, &disk);
    room_expect(&theirs, "another model's records were used", disk == 0);
    engine_client_close(&theirs.client);
    mine.config.block_tokens = 32;
    room_open(&mine);
    room_ask_all(&mine, "another block size", &host, &disk);
    room_expect(&mine, "records of another block size were used", disk == 0);
    engine_client_close(&mine.client);
    mine.config.block_tokens = 16;
    room_open(&mine);
    room_expect_disk(&mine, "back again");
    int wrong = room_deinit(&theirs);
    return wrong + room_deinit(&mine);
}

int tier_laws_isolation(const tier_laws *laws) {
    law_room room;
    uint64_t host = 0, disk = 0;
    room_init(&room, laws);
    uint64_t host_bytes = measure_host(&room, 3);
    qr_kv_parts parts = simulated_device(7);
    room_open_over(&room, &parts, host_bytes);
    for (uint32_t round = 0; round < laws->rounds; round++) {
        for (uint32_t i = 0; i < PROMPTS; i++) room_add(&room, (i * 3 + round) % PROMPTS);
        engine_client_wait(&room.client);
        for (uint32_t i = 0; i < PROMPTS; i++) {
            room_compare(&room, "in company", i);
            host += room_match(&room, i)->host_tokens;
            disk += room_match(&room, i)->disk_tokens;
        }
    }
    room_expect(&room, "the host tier was not used", host > 0);
    room_expect(&room, "the disk was not used", disk > 0);
    engine_client_check_idle(&room.client);
    return room_deinit(&room);
}
