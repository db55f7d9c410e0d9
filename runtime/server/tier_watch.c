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

static const char *event_of(quire_kv_trouble_kind kind) {
    switch (kind) {
    case QUIRE_KV_TROUBLE_DAMAGED: return "tier_damaged";
    case QUIRE_KV_TROUBLE_MISMATCH: return "tier_verify_mismatch";
    case QUIRE_KV_TROUBLE_ERROR: break;
    }
    return "tier_error";
}

static void log_trouble(const qr_log *log, const quire_kv_trouble *trouble) {
    const char *file = trouble->file[0] ? trouble->file : trouble->kind == QUIRE_KV_TROUBLE_ERROR ? "." : "(host memory)";
    int64_t offset = trouble->offset <= INT64_MAX ? (int64_t)trouble->offset : -1;
    qr_log_warn(log, event_of(trouble->kind), QR_STR("file", file), QR_INT("offset", offset), QR_STR("what", trouble->what),
                QR_INT("unix_ms", trouble->unix_ms));
}

/* Returns how many have no line. */
static uint64_t log_troubles(qr_tier_watch *watch, const quire_kv_tiers_stats *tiers, const qr_log *log) {
    uint64_t total = tiers->troubles_total, fresh = total - watch->troubles_seen;
    uint64_t shown = fresh < QUIRE_KV_TROUBLES ? fresh : QUIRE_KV_TROUBLES, silent = fresh - shown;
    for (uint64_t n = total - shown; n < total; n++) {
        const quire_kv_trouble *trouble = &tiers->troubles[n % QUIRE_KV_TROUBLES];
        if (trouble->what[0]) log_trouble(log, trouble);
        else silent++; /* the store kept nothing of it */
    }
    watch->troubles_seen = total;
    return silent;
}

void qr_tier_watch_look(qr_tier_watch *watch, const quire_kv_tiers_stats *tiers, const qr_log *log) {
    uint64_t now[QR_TROUBLE_COUNT], risen[QR_TROUBLE_COUNT], sum = 0;
    uint64_t silent = log_troubles(watch, tiers, log);
    count(tiers, now);
    for (int i = 0; i < QR_TROUBLE_COUNT; i++) {
        risen[i] = now[i] > watch->seen[i] ? now[i] - watch->seen[i] : 0;
        watch->seen[i] = now[i];
        sum += risen[i];
    }
    if (sum > 0 || silent > 0)
        qr_log_warn(log, "tier_trouble", QR_INT("damaged", risen[QR_TROUBLE_DAMAGED]),
                    QR_INT("errors", risen[QR_TROUBLE_ERRORS]), QR_INT("verify_mismatches", risen[QR_TROUBLE_MISMATCHES]),
                    QR_INT("unwritable_blocks", risen[QR_TROUBLE_UNWRITABLE]), QR_INT("suppressed", silent));
}
