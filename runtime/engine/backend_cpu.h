/* backend_cpu.h - steps on this machine's processors: the forward pass over KV in host memory, then the sampler.
 *
 * Synchronous: one step in flight, computed inside poll on the compute pool, whose worker 0 is the calling thread. Rows
 * that draw are sampled in parallel, one row per piece; a draw depends on its own row only. A long step does not hold the lower
 * tiers up: between layers the KV manager is polled, so that a disk goes on reading for those who wait for it.
 *
 * Thread: the engine's. Nothing is allocated after create.
 */
#ifndef QR_ENGINE_BACKEND_CPU_H
#define QR_ENGINE_BACKEND_CPU_H

#include "base/compute_pool.h"
#include "runtime/engine/backend.h"
#include "runtime/model/model.h"

typedef struct qr_backend_cpu_config {
    qr_backend_limits limits; /* steps_in_flight is 1 */
    uint32_t tokens_max;      /* positions of one sequence */
    uint32_t block_tokens;
    quire_kv_type key_type, value_type;
    const char *cpu_path; /* NULL = the model's */
} qr_backend_cpu_config;

/* Bytes that create takes: activations, attention plan, logits, samplers. */
uint64_t qr_backend_cpu_bytes(const quire_model *model, const qr_backend_cpu_config *config, int thread_count);
/* Keeps model, kv (with host storage) and pool. */
QUIRE_MUST_CHECK quire_status qr_backend_cpu_create(const quire_model *model, const qr_backend_cpu_config *config, quire_kv *kv,
                                                    qr_compute_pool *pool, qr_backend **backend, quire_error *error);
const char *qr_backend_cpu_path(const qr_backend *backend);
uint64_t qr_backend_cpu_saturated(const qr_backend *backend); /* f16 values that saturated on their way into KV */
#endif
