/* pool_sizing.h - how large the pool of a command's settings is: what `serve` and `run` allocate by and what `plan` prints.
 *
 * The arithmetic is qr_sizing_resolve's. Here it is decided what --host-cache adds to it: without a tier between device and
 * disk, as on the CPU, that memory joins the pool. Pure; any thread.
 */
#ifndef QR_CLI_POOL_SIZING_H
#define QR_CLI_POOL_SIZING_H

#include "runtime/cli/settings.h"
#include "runtime/engine/engine_parts.h"
#include "runtime/engine/sizing.h"

/* Of --host-cache, what joins the pool: all of it, unless the parts make a tier of it. */
uint64_t qr_pool_sizing_joining(const qr_settings *settings, const qr_kv_parts *parts);

/* memory_bytes: as of qr_sizing_resolve; what joins the pool is part of it. joining_bytes: of --host-cache; 0: none of it. On
 * success *config is resolved, its wake left empty, and takes no more than memory_bytes. Errors: as of qr_sizing_resolve; the
 * source is a field or a flag. */
QUIRE_MUST_CHECK quire_status qr_pool_sizing_resolve(const quire_model *model, const qr_settings *settings,
                                                     uint64_t memory_bytes, uint64_t joining_bytes, quire_engine_config *config,
                                                     qr_sizing *sizing, quire_error *error);

/* qr_settings_name_source, where the pool's memory is that of several flags: all that were given are named. */
void qr_pool_sizing_name_source(const qr_settings *settings, uint64_t joining_bytes, quire_error *error);
#endif
