/* tier_watch.c - see tier_watch.h. */
#include "runtime/server/tier_watch.h"

#include <string.h>

static void count(const quire_kv_tiers_stats *tiers, uint64_t counts[QR_TROUBLE_COUNT]) {
    memset(counts, 0, QR_TROUBLE_COUNT * sizeof *counts);
    for (int tier = QUIRE_KV_TIER_HOST; tier < QUIRE_KV_TIER_COUNT; tier++) {
        counts[QR_TROUBLE_DAMAGED] += tiers->tiers[tier].damaged_total;
        counts[QR_TROUBLE_ERRORS] += tiers->tiers[tier].error_total;
    }
    counts[QR_TROUBLE_MISMATCHES] = tiers->verify_mismatches_total;
    counts[QR_TROUBLE_UNWRITABLE] = tiers->refused_blocks_total[QUIRE_KV_REFUSED_BROKEN];
}

void qr_tier_watch_look(qr_tier_watch *watch, const quire_kv_tiers_stats *tiers, const qr_log *log) {
    uint64_t now[QR_TROUBLE_COUNT], risen[QR_TROUBLE_COUNT], sum = 0;
    count(tiers, now);
    for (int i = 0; i < QR_TROUBLE_COUNT; i++) {
        risen[i] = now[i] > watch->seen[i] ? now[i] - watch->seen[i] : 0;
        watch->seen[i] = now[i];
        sum += risen[i];
    }
    if (sum > 0)
        qr_log_warn(log, "tier_trouble", QR_INT("damaged", risen[QR_TROUBLE_DAMAGED]),
                    QR_INT("errors", risen[QR_TROUBLE_ERRORS]), QR_INT("verify_mismatches", risen[QR_TROUBLE_MISMATCHES]),
                    QR_INT("unwritable_blocks", risen[QR_TROUBLE_UNWRITABLE]));
}
