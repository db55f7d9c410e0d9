/* bench_load.h - multi-turn sessions against one OpenAI-compatible endpoint, measured from the client's side.
 *
 * All sessions of a round run at once behind one shared system prompt; each sends its turns one after another with its
 * whole history. One thread drives every connection (curl's multi interface), so the client costs little on a machine
 * that it shares with the server. The system prompt begins with the round's own marker: each round starts cold.
 */
#ifndef QR_CLI_BENCH_LOAD_H
#define QR_CLI_BENCH_LOAD_H

#include <stdint.h>
#include <sys/types.h>

#include "runtime/cli/bench_series.h"
#include <quire/status.h>

typedef struct qr_bench_target {
    const char *name;
    const char *url;         /* base address; "http://localhost" with a socket */
    const char *socket_path; /* or NULL */
    const char *model;
    const char *api_key; /* or NULL */
    pid_t pid;           /* of the server, 0 = find it */
} qr_bench_target;

typedef struct qr_bench_shape {
    uint32_t session_count, turn_count;
    uint32_t system_tokens, user_tokens; /* about: one short word is about one token */
    uint32_t max_tokens;
    uint32_t think_ms;  /* pause of a session between an answer and its next turn */
    uint32_t timeout_s; /* of one request */
    bool ignore_eos;    /* replies run to max_tokens, so that both sides do the same work */
    uint64_t seed;
} qr_bench_shape;

typedef struct qr_bench_result {
    qr_series first_ttft_ms, later_ttft_ms; /* time to first token: turn 1, turns 2.. */
    qr_series inter_token_ms;               /* between text chunks of one answer */
    qr_series request_ms;
    uint64_t requests, failures;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    bool cached_known;
    double wall_s; /* of all rounds */
    char first_failure[256];
} qr_bench_result;

/* Adds one round to *result. Errors: NO_MEMORY, IO (curl could not start); failed requests are counted, not errors. */
QUIRE_MUST_CHECK quire_status qr_bench_round(const qr_bench_target *target, const qr_bench_shape *shape, uint32_t round,
                                             qr_bench_result *result, quire_error *error);
void qr_bench_result_deinit(qr_bench_result *result);
#endif
