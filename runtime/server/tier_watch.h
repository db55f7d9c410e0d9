/* tier_watch.h - says in the log when something below the pool goes wrong: requests never fail for it, so nobody else would.
 *
 * Files, offsets and counts by kind, never what was read or written. Thread: the loop's.
 */
#ifndef QR_SERVER_TIER_WATCH_H
#define QR_SERVER_TIER_WATCH_H

#include "base/log.h"
#include <quire/engine.h>

typedef enum qr_tier_trouble {
    QR_TROUBLE_DAMAGED,    /* records that did not prove themselves */
    QR_TROUBLE_ERRORS,     /* reads, writes and syncs that failed */
    QR_TROUBLE_MISMATCHES, /* blocks that were recomputed and differed from what was stored */
    QR_TROUBLE_UNWRITABLE, /* blocks that were not stored because the tier cannot be written */
    QR_TROUBLE_COUNT
} qr_tier_trouble;

/* Zero-initialised. */
typedef struct qr_tier_watch {
    uint64_t seen[QR_TROUBLE_COUNT];
    uint64_t troubles_seen;
} qr_tier_watch;

/* A line, a warning, for each of the latest troubles since the last look, QUIRE_KV_TROUBLES at most: which file, where, what.
 * Then one line if any count has risen: by how much each has, and how many troubles had no line of their own. How often it is
 * called is how often there are so many lines at most. */
void qr_tier_watch_look(qr_tier_watch *watch, const quire_kv_tiers_stats *tiers, const qr_log *log);
#endif
