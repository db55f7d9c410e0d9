/* trace_replay.h - replays recorded traffic, as opaque block keys, on the prefix tree.
 *
 * One request at a time: its hit is the unbroken leading run of resident blocks; then all its blocks are touched or
 * inserted, and blocks of the running request are never victims. Only whole blocks of a prompt count.
 */
#ifndef QR_TESTS_TRACE_REPLAY_H
#define QR_TESTS_TRACE_REPLAY_H

#include <quire/types.h>

typedef struct trace_request {
    uint64_t time_us;
    size_t first; /* in keys */
    uint32_t count;
} trace_request;

typedef struct trace {
    trace_request *requests;
    uint64_t *keys;
    size_t request_count, request_capacity, key_count, key_capacity;
} trace;

void trace_add_request(trace *t, uint64_t time_us);
void trace_add_key(trace *t, uint64_t key); /* to the last request */
void trace_free(trace *t);
/* Reads a Mooncake file ({"timestamp" ms, "input_length", "hash_ids"} a line, gzip). False when it cannot be read. */
bool trace_load(trace *t, const char *path, uint32_t block_tokens);

/* Hits in blocks. Checks the tree's invariants every `check_every` requests (0 = never). */
uint64_t trace_replay(const trace *t, quire_kv_policy policy, uint32_t capacity, uint32_t check_every);
#endif
