/* quire_engine_create: an engine from a model and a configuration. Assembles the parts that engine.c runs. */
#include <quire/engine.h>

#include <inttypes.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/engine/engine_internal.h"
#include "runtime/engine/sizing.h"

enum { NUMERICS_VERSION = 1 }; /* of docs/NUMERICS.md: rises when the bits of an answer change */

static uint64_t system_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) seed = qr_mix64(qr_clock_ns());
    return seed;
}

/* On the CPU every instruction set gives the same bits, so the path is not part of it. */
static uint64_t numerics_fingerprint(const quire_model *model, const quire_engine_config *config) {
    uint64_t hash = qr_mix64(quire_model_get_info(model)->fingerprint);
    hash = qr_mix64(hash ^ NUMERICS_VERSION);
    return qr_mix64(hash ^ ((uint64_t)config->key_type << 8 | (uint64_t)config->value_type));
}

static void describe(const quire_model *model, const quire_engine_config *config, const qr_sizing *sizing,
                     qr_engine_parts *parts) {
    parts->block_tokens = config->block_tokens;
    parts->wake = config->wake;
    parts->wake_context = config->wake_context;
    parts->kv_bytes_per_token = sizing->kv_token_bytes;
    parts->weight_bytes = sizing->weight_bytes;
    parts->work_bytes = sizing->work_bytes;
    parts->saturated = qr_backend_cpu_saturated;
    parts->numerics_fingerprint = numerics_fingerprint(model, config);
}

/* Pages of the pool are touched as it fills, so a pool that memory cannot hold would be accepted now and killed later. */
static quire_status memory_check(const qr_sizing *sizing, quire_error *error) {
    uint64_t wanted = sizing->total_bytes - sizing->weight_bytes, available = qr_memory_available_bytes();
    if (available == 0 || wanted <= available) return QUIRE_OK;
    return qr_fail(error, QUIRE_TOO_LARGE, "kv_memory", QR_NO_OFFSET,
                   "%" PRIu32 " blocks with their bookkeeping and work space take %.1f MiB, and %.1f MiB are available here",
                   sizing->block_count, (double)wanted / (1024.0 * 1024.0), (double)available / (1024.0 * 1024.0));
}

quire_status quire_engine_create(const quire_engine_config *config, quire_model *model, quire_engine **engine,
                                 quire_error *error) {
    quire_engine_config resolved;
    qr_sizing sizing;
    qr_engine_layout layout;
    qr_engine_parts parts = {0};
    *engine = NULL;
    if (quire_model_get_info(model)->fingerprint == 0) {
        return qr_fail(error, QUIRE_INVALID, "model", QR_NO_OFFSET, "the model was opened without its weights");
    }
    quire_status status = qr_sizing_resolve(model, config, UINT64_MAX, &resolved, &sizing, error);
    if (status == QUIRE_OK) status = memory_check(&sizing, error);
    if (status != QUIRE_OK) return status;
    if (resolved.seed == 0) resolved.seed = system_seed();
    qr_sizing_layout(model, &resolved, &layout);
    describe(model, &resolved, &sizing, &parts);
    parts.scheduler = layout.scheduler;
    status = qr_compute_pool_create(layout.thread_count, QR_COMPUTE_SPIN_NS, &parts.pool, error);
    if (status == QUIRE_OK) status = quire_kv_create(&layout.kv, &parts.kv, error);
    if (status == QUIRE_OK) {
        status = qr_backend_cpu_create(model, &layout.backend, parts.kv, parts.pool, &parts.backend, error);
    }
    if (status != QUIRE_OK) {
        quire_kv_destroy(parts.kv);
        qr_compute_pool_destroy(parts.pool);
        return status;
    }
    parts.cpu_path = qr_backend_cpu_path(parts.backend);
    return qr_engine_start(&parts, engine, error);
}
