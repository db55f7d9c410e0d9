/* kv_parts.h - a KV manager over other parts than its own: for tests, simulators and backends with their own device.
 *
 * Thread and rules as in quire/kv.h.
 */
#ifndef QR_KV_PARTS_H
#define QR_KV_PARTS_H

#include <quire/kv.h>

#include "base/device.h"
#include "offload/files.h"
#include "offload/store.h"

typedef struct qr_kv_parts {
    qr_device *device; /* taken, also on failure; NULL: the CPU's, whose memory is the host's */
    bool host_tier;    /* the device's memory counts as its own, so that tiers.host_bytes may be set */
    qr_files *files;   /* of the disk tier, borrowed until destroy; NULL: the operating system's */
    qr_store *store;   /* taken, also on failure: instead of a folder on disk */
} qr_kv_parts;

QUIRE_MUST_CHECK quire_status qr_kv_create_from(const quire_kv_config *config, const qr_kv_parts *parts, quire_kv **kv,
                                                quire_error *error);
#endif
