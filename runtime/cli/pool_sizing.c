/* pool_sizing.c - see pool_sizing.h. */
#include "runtime/cli/pool_sizing.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

static const double mib = 1024.0 * 1024.0;

uint64_t qr_pool_sizing_joining(const qr_settings *settings, const qr_kv_parts *parts) {
    return parts->host_tier ? 0 : settings->host_cache;
}

static uint64_t kv_bytes(const qr_sizing *sizing) { return sizing->kv_pool_bytes + sizing->kv_bookkeeping_bytes; }

/* The pool is what the memory leaves, so what joins it is in there already. */
static quire_status resolve_rest(const quire_model *model, uint64_t memory_bytes, uint64_t joining_bytes,
                                 quire_engine_config *config, qr_sizing *sizing, quire_error *error) {
    quire_status status = qr_sizing_resolve(model, config, memory_bytes, config, sizing, error);
    if (status != QUIRE_OK || joining_bytes <= kv_bytes(sizing)) return status;
    return qr_fail(error, QUIRE_TOO_LARGE, "--host-cache", QR_NO_OFFSET, "%.1f MiB, and %.1f MiB are left for KV",
                   (double)joining_bytes / mib, (double)kv_bytes(sizing) / mib);
}

/* The pool is what it would come to, and what joins it. */
static quire_status resolve_sum(const quire_model *model, uint64_t joining_bytes, quire_engine_config *config,
                                qr_sizing *sizing, quire_error *error) {
    quire_engine_config alone = *config;
    uint64_t bytes = config->kv_memory_bytes;
    if (joining_bytes > 0 && !bytes) {
        quire_status status = qr_sizing_resolve(model, &alone, UINT64_MAX, &alone, sizing, error);
        if (status != QUIRE_OK) return status;
        bytes = kv_bytes(sizing);
    }
    if (joining_bytes > 0) {
        config->kv_block_count = 0;
        if (!qr_add_u64(bytes, joining_bytes, &config->kv_memory_bytes))
            return qr_fail(error, QUIRE_TOO_LARGE, "--host-cache", QR_NO_OFFSET, "is too large");
    }
    return qr_sizing_resolve(model, config, UINT64_MAX, config, sizing, error);
}

quire_status qr_pool_sizing_resolve(const quire_model *model, const qr_settings *settings, uint64_t memory_bytes,
                                    uint64_t joining_bytes, quire_engine_config *config, qr_sizing *sizing,
                                    quire_error *error) {
    qr_settings_engine_config(settings, config);
    bool told = memory_bytes == UINT64_MAX || settings->kv_memory || settings->kv_blocks;
    quire_status status = told ? resolve_sum(model, joining_bytes, config, sizing, error)
                               : resolve_rest(model, memory_bytes, joining_bytes, config, sizing, error);
    if (status != QUIRE_OK || sizing->total_bytes <= memory_bytes) return status;
    return qr_fail(error, QUIRE_TOO_LARGE, "kv_memory", QR_NO_OFFSET, "weights, KV and work space take %.1f MiB of %.1f MiB",
                   (double)sizing->total_bytes / mib, (double)memory_bytes / mib);
}

void qr_pool_sizing_name_source(const qr_settings *settings, uint64_t joining_bytes, quire_error *error) {
    if (strcmp(error->source, "kv_memory") == 0) {
        const char *host = joining_bytes > 0 ? "--host-cache" : "";
        const char *pool = settings->kv_blocks ? "--kv-blocks" : settings->kv_memory || !*host ? "--kv-memory" : "";
        snprintf(error->source, sizeof error->source, "%s%s%s", pool, *pool && *host ? " and " : "", host);
    }
    qr_settings_name_source(error);
}
