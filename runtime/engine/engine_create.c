/* quire_engine_create: an engine from a model and a configuration. Assembles the parts that engine.c runs, and says what the
 * bits of stored blocks depend on besides their tokens. */
#include <quire/engine.h>

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/engine/engine_internal.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/engine/sizing.h"

/* Of docs/NUMERICS.md: rises when the bits of an answer change. A number for each backend: none agrees with another bit by bit.
 */
enum { NUMERICS_VERSION = 1, NUMERICS_CPU = 1 };

static uint64_t system_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) seed = qr_mix64(qr_clock_ns());
    return seed;
}

/* How this backend computes; what it computes with is said by weights and layout. On the CPU every instruction set gives the
 * same bits, so the path is not part of it. */
static uint64_t numerics_fingerprint(void) { return qr_mix64((uint64_t)NUMERICS_CPU << 32 | NUMERICS_VERSION); }

/* What the bits of an answer depend on. */
static uint64_t answer_fingerprint(const quire_model *model, const quire_engine_config *config) {
    uint64_t hash = qr_mix64(quire_model_get_info(model)->fingerprint);
    hash = qr_mix64(hash ^ numerics_fingerprint());
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
    parts->numerics_fingerprint = answer_fingerprint(model, config);
}

/* Pages of the pool are touched as it fills, so a pool that memory cannot hold would be accepted now and killed later. */
static quire_status memory_check(const qr_sizing *sizing, uint64_t host_bytes, quire_error *error) {
    uint64_t wanted = sizing->total_bytes - sizing->weight_bytes + host_bytes, available = qr_memory_available_bytes();
    if (available == 0 || wanted <= available) return QUIRE_OK;
    return qr_fail(error, QUIRE_TOO_LARGE, "kv_memory", QR_NO_OFFSET,
                   "%" PRIu32 " blocks with their bookkeeping, lower tiers and work space take %.1f MiB, and %.1f MiB are "
                   "available here",
                   sizing->block_count, (double)wanted / (1024.0 * 1024.0), (double)available / (1024.0 * 1024.0));
}

static quire_status config_resolve(const quire_model *model, const quire_engine_config *config, uint64_t host_bytes,
                                   quire_engine_config *resolved, qr_sizing *sizing, quire_error *error) {
    if (quire_model_get_info(model)->fingerprint == 0)
        return qr_fail(error, QUIRE_INVALID, "model", QR_NO_OFFSET, "the model was opened without its weights");
    quire_status status = qr_sizing_resolve(model, config, UINT64_MAX, resolved, sizing, error);
    if (status == QUIRE_OK) status = memory_check(sizing, host_bytes, error);
    if (status == QUIRE_OK && resolved->seed == 0) resolved->seed = system_seed();
    return status;
}

/* Taken parts that never reached the KV manager. */
static void lower_discard(const qr_kv_parts *lower) {
    if (lower->device) lower->device->ops->destroy(lower->device);
    if (lower->store) lower->store->ops->close(lower->store);
}

/* The store's threads wake the engine from the moment when the KV manager opens it, so the inbox is there before. */
static quire_status kv_make(const quire_model *model, qr_engine_layout *layout, const qr_kv_parts *lower,
                            qr_engine_parts *parts, quire_error *error) {
    quire_kv_tiers *tiers = &layout->kv.tiers;
    quire_status status = qr_engine_inbox_create(&layout->scheduler, &parts->inbox);
    if (status != QUIRE_OK) {
        lower_discard(lower);
        return qr_fail(error, status, "engine", QR_NO_OFFSET, "no memory for the inbox");
    }
    tiers->weights_fingerprint = quire_model_get_info(model)->fingerprint;
    tiers->numerics_fingerprint = numerics_fingerprint();
    tiers->wake = qr_engine_wake_inbox;
    tiers->wake_context = parts->inbox;
    status = qr_kv_create_from(&layout->kv, lower, &parts->kv, error);
    if (status != QUIRE_OK) qr_sizing_name_field(error);
    return status;
}

quire_status qr_engine_create_over(const quire_engine_config *config, const qr_kv_parts *lower, uint64_t host_bytes,
                                   quire_model *model, quire_engine **engine, quire_error *error) {
    quire_engine_config resolved;
    qr_sizing sizing;
    qr_engine_layout layout;
    qr_engine_parts parts = {0};
    *engine = NULL;
    quire_status status = config_resolve(model, config, host_bytes, &resolved, &sizing, error);
    if (status == QUIRE_OK) {
        qr_sizing_layout(model, &resolved, &layout);
        status = qr_compute_pool_create(layout.thread_count, QR_COMPUTE_SPIN_NS, &parts.pool, error);
    }
    if (status != QUIRE_OK) {
        lower_discard(lower);
        return status;
    }
    layout.kv.tiers.host_bytes = host_bytes;
    describe(model, &resolved, &sizing, &parts);
    parts.total_bytes = sizing.total_bytes + host_bytes;
    parts.scheduler = layout.scheduler;
    status = kv_make(model, &layout, lower, &parts, error);
    if (status == QUIRE_OK) status = qr_backend_cpu_create(model, &layout.backend, parts.kv, parts.pool, &parts.backend, error);
    if (status != QUIRE_OK) {
        qr_engine_parts_destroy(&parts);
        return status;
    }
    parts.cpu_path = qr_backend_cpu_path(parts.backend);
    return qr_engine_start(&parts, engine, error);
}

quire_status quire_engine_create(const quire_engine_config *config, quire_model *model, quire_engine **engine,
                                 quire_error *error) {
    return qr_engine_create_over(config, &(qr_kv_parts){0}, 0, model, engine, error);
}
