/* backend_sim.h - a backend without a model: a cost model under a virtual clock, and tokens that prove the bookkeeping.
 *
 * It keeps a fake KV: per pool block and slot one 64-bit word that stands for the token there, its position and everything
 * before it. A row writes its own word and then reads the words of all positions up to its own *through the block table of
 * the step*. What it draws is a hash of what it read, so a wrong table, a block shared or reused too early, a missed copy,
 * a token committed but never computed or a wrong history for the penalties all change the answer. Steps run when their
 * result is due, in order, as on a device; a failed step leaves garbage in every word that it should have written.
 *
 * It says nothing about quality or about real time. Thread: the scheduler's.
 */
#ifndef QR_ENGINE_BACKEND_SIM_H
#define QR_ENGINE_BACKEND_SIM_H

#include "runtime/engine/backend.h"

typedef struct qr_sim_config {
    qr_backend_limits limits;
    uint32_t block_count, block_tokens;
    /* Where the fake KV is: block b at memory + b * block_stride, borrowed (a KV manager's pool: then its tiers carry the words
     * away and back); NULL: the backend's own. */
    void *memory;
    size_t block_stride;
    const quire_token *end_tokens; /* [end_token_count], copied */
    uint32_t end_token_count;
    double step_us, row_us, position_us; /* cost of a step, of a row, of a position that a row attends to */
    /* Faults, all off at 0. Drawn from fault_seed, so a run can be replayed. */
    double fail_rate;       /* of steps: result status IO */
    double bad_logits_rate; /* of draws */
    uint64_t fault_seed;
} qr_sim_config;

QUIRE_MUST_CHECK quire_status qr_backend_sim_create(const qr_sim_config *config, qr_backend **backend);

/* The virtual clock starts at 0; poll with wait moves it to the end of the oldest step. */
uint64_t qr_backend_sim_now_us(const qr_backend *backend);
void qr_backend_sim_advance(qr_backend *backend, uint64_t us);
/* When the oldest step's result is due; UINT64_MAX: no step is under way. */
uint64_t qr_backend_sim_due_us(const qr_backend *backend);
/* The next `count` steps that run fail. */
void qr_backend_sim_fail_next(qr_backend *backend, uint32_t count);
/* The next `count` draws give logits that cannot be sampled. */
void qr_backend_sim_spoil_next(qr_backend *backend, uint32_t count);

typedef struct qr_sim_counts {
    uint64_t rows, steps, draws, scores, copies, failed_steps;
} qr_sim_counts;
void qr_backend_sim_get_counts(const qr_backend *backend, qr_sim_counts *counts);
#endif
