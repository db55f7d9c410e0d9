/* engine_parts.h - quire_engine_create over other parts below the pool than its own: for tests and for the command that they
 * break on purpose.
 *
 * A device whose memory counts as its own gives the engine a host tier; files that fail give it a bad disk. The CPU computes
 * on the memory of any device whose memory the host can read. What is counted, refused and answered is the same code.
 */
#ifndef QR_ENGINE_PARTS_H
#define QR_ENGINE_PARTS_H

#include <quire/engine.h>

#include "runtime/kv/kv_parts.h"

/* Device and store of `parts` are taken, also on failure; files are borrowed until destroy. host_bytes: of the host tier, with
 * parts->host_tier; else 0. Errors as of quire_engine_create. */
QUIRE_MUST_CHECK quire_status qr_engine_create_over(const quire_engine_config *config, const qr_kv_parts *parts,
                                                    uint64_t host_bytes, quire_model *model, quire_engine **engine,
                                                    quire_error *error);
#endif
