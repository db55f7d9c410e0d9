/* pool_sizing.c - see pool_sizing.h. */
#include "runtime/cli/pool_sizing.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

/* What the pool takes without the memory that joins it: asked for, or what it would come to. */
static quire_status pool_bytes(const quire_model *model, const qr_settings *settings, uint64_t memory_bytes, uint64_t *bytes,
                               quire_error *error) {
    quire_engine_config config;
    qr_sizing sizing;
    *bytes = settings->kv_memory;
    if (settings->kv_memory) return QUIRE_OK;
    qr_settings_engine_config(settings, &config);
    quire_status status = qr_sizing_resolve(model, &config, memory_bytes, &config, &sizing, error);
    if (status == QUIRE_OK) *bytes = sizing.kv_pool_bytes + sizing.kv_bookkeeping_bytes;
    return status;
}

quire_status qr_pool_sizing_resolve(const quire_model *model, const qr_settings *settings, uint64_t memory_bytes,
                                    uint64_t joining_bytes, quire_engine_config *config, qr_sizing *sizing,
                                    quire_error *error) {
    uint64_t bytes;
    qr_settings_engine_config(settings, config);
    if (joining_bytes == 0) return qr_sizing_resolve(model, config, memory_bytes, config, sizing, error);
    quire_status status = pool_bytes(model, settings, memory_bytes, &bytes, error);
    if (status != QUIRE_OK) return status;
    if (!qr_add_u64(bytes, joining_bytes, &bytes))
        return qr_fail(error, QUIRE_TOO_LARGE, "--host-cache", QR_NO_OFFSET, "is too large");
    config->kv_block_count = 0;
    config->kv_memory_bytes = bytes;
    return qr_sizing_resolve(model, config, UINT64_MAX, config, sizing, error);
}

void qr_pool_sizing_name_source(const qr_settings *settings, uint64_t joining_bytes, quire_error *error) {
    if (joining_bytes > 0 && strcmp(error->source, "kv_memory") == 0) {
        const char *first = settings->kv_memory ? "--kv-memory and " : settings->kv_blocks ? "--kv-blocks and " : "";
        snprintf(error->source, sizeof error->source, "%s--host-cache", first);
    }
    qr_settings_name_source(error);
}
