/* kv_disk_tier.c - a prefix that outlives its process, with Quire's KV manager inside another engine.
 *
 * With a folder it runs one prompt over the cache in it: the first run computes the prompt and what it computed is written to
 * disk, the next run loads it and computes only what is left. Without one it does both, each in a process of its own, and
 * checks the outcome. The engine is a stand-in: the K and V of a token are numbers that depend on the token and its position
 * (kv_prefix_reuse.c says more about that side).
 *
 *   cc kv_disk_tier.c $(pkg-config --cflags --libs quire-kv) -o kv_disk_tier
 *   ./kv_disk_tier ~/.cache/example && ./kv_disk_tier ~/.cache/example
 */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <quire/kv.h>

enum { BLOCK_TOKENS = 16, HEAD_DIM = 8, PROMPT_TOKENS = 90, STORED_TOKENS = PROMPT_TOKENS / BLOCK_TOKENS * BLOCK_TOKENS };

static void must(quire_status status, const char *what) {
    if (status == QUIRE_OK) return;
    fprintf(stderr, "%s: %s\n", what, quire_status_message(status));
    exit(1);
}

static quire_kv *create_manager(const char *folder) {
    quire_kv_config config = {
        .block_tokens = BLOCK_TOKENS,
        .group_count = 1,
        .groups = {{.layer_count = 1,
                    .kv_head_count = 1,
                    .key_dim = HEAD_DIM,
                    .value_dim = HEAD_DIM,
                    .key_type = QUIRE_KV_F32,
                    .value_type = QUIRE_KV_F32}},
        .block_count = 64,
        .max_sequences = 8,
        .max_sequence_tokens = 512,
        .storage = QUIRE_KV_STORAGE_HOST,
        /* The fingerprints say what the bytes of a block depend on besides the tokens: with other weights or another kernel
         * nothing that lies in the folder is a hit. */
        .tiers = {.disk_path = folder, .disk_max_bytes = 64 << 20, .weights_fingerprint = 1, .numerics_fingerprint = 1},
    };
    quire_kv *kv;
    quire_error error;
    if (quire_kv_create(&config, &kv, &error) != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", error.source, error.text);
        exit(1);
    }
    return kv;
}

/* The first key element of a position; a real engine fills all of them. */
static float *key_of(quire_kv *kv, quire_seq_id seq, uint32_t position) {
    size_t stride;
    uint32_t count;
    char *base = quire_kv_pool_base(kv, 0, &stride);
    const quire_block_id *table = quire_kv_seq_table(kv, seq, 0, &count);
    char *block = base + table[position / BLOCK_TOKENS] * stride;
    return (float *)(void *)(block + quire_kv_part_offset(kv, 0, 0, 0, QUIRE_KV_KEYS)) + position % BLOCK_TOKENS;
}

/* One turn of the manager's work, which never waits. A busy engine calls quire_kv_poll between its steps instead; one that
 * sleeps is woken by quire_kv_tiers.wake. */
static void turn(quire_kv *kv) {
    if (!quire_kv_poll(kv)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* What lies on disk behind the attached tokens, loaded into the blocks that the sequence has reserved. Here the engine waits;
 * it could compute from the front meanwhile (quire_kv_load_computing). */
static uint32_t load_stored(quire_kv *kv, quire_seq_id seq, const quire_token *tokens, uint32_t count) {
    quire_kv_load load;
    quire_kv_load_state state;
    uint32_t gained = 0;
    must(quire_kv_load_plan(kv, seq, tokens, count, count - 1, &load), "plan");
    if (load.begin_block == load.end_block) return 0;
    must(quire_kv_load_begin(kv, seq, tokens, &load, false), "load");
    do {
        turn(kv);
        gained += quire_kv_load_take(kv, seq);
        quire_kv_load_get_state(kv, seq, &state);
    } while (state.active);
    return gained;
}

/* Returns the tokens that came from disk. */
static uint32_t run_prompt(const char *folder) {
    quire_kv *kv = create_manager(folder);
    quire_seq_id seq;
    quire_kv_match match;
    quire_token tokens[PROMPT_TOKENS];
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++) tokens[i] = (quire_token)(1000 + i);

    must(quire_kv_seq_open(kv, 0, &seq), "open");
    must(quire_kv_seq_attach(kv, seq, tokens, PROMPT_TOKENS, PROMPT_TOKENS - 1, &match), "attach");
    must(quire_kv_seq_reserve(kv, seq, PROMPT_TOKENS), "reserve");
    uint32_t loaded = load_stored(kv, seq, tokens, PROMPT_TOKENS), have = match.token_count + loaded;
    for (uint32_t i = have; i < PROMPT_TOKENS; i++) *key_of(kv, seq, i) = (float)tokens[i] + 0.5f * (float)i;
    must(quire_kv_seq_commit(kv, seq, tokens + have, PROMPT_TOKENS - have), "commit");
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++)
        if (*key_of(kv, seq, i) != (float)tokens[i] + 0.5f * (float)i) must(QUIRE_CORRUPT, "loaded bytes differ");
    must(quire_kv_seq_close(kv, seq), "close");

    /* Blocks are written as they complete; a flush writes the rest and says when it is there. */
    quire_kv_flush_begin(kv);
    while (quire_kv_flush_left(kv)) turn(kv);
    quire_kv_flush_end(kv);
    printf("%u tokens: %u from disk, %u computed\n", PROMPT_TOKENS, loaded, PROMPT_TOKENS - have);
    quire_kv_destroy(kv);
    return loaded;
}

/* In a process of its own; true when that many tokens came from disk. */
static int run_process(const char *folder, uint32_t from_disk) {
    int status = 1;
    pid_t child = fork();
    if (child == 0) exit(run_prompt(folder) == from_disk ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/quire-example-XXXXXX";
    if (argc > 1) {
        run_prompt(argv[1]);
        return 0;
    }
    if (!mkdtemp(folder)) return 1;
    int ok = run_process(folder, 0) && run_process(folder, STORED_TOKENS);
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    return ok ? 0 : 1;
}
