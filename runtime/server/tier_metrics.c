/* tier_metrics.c - see tier_metrics.h. One table per kind of figure: a row is a metric, its samples are the tiers. */
#include "runtime/server/tier_metrics.h"

#include "runtime/server/metrics_page.h"

#include <inttypes.h>
#include <stddef.h>

static const quire_kv_tier below[] = {QUIRE_KV_TIER_HOST, QUIRE_KV_TIER_DISK};
enum { BELOW_COUNT = sizeof below / sizeof *below };

#define AT(field) offsetof(quire_kv_tier_stats, field)

/* ---- one sample per tier ---- */

typedef struct tier_row {
    const char *name, *type;
    size_t offset; /* of a uint64_t */
    const char *help;
} tier_row;

static const tier_row tier_rows[] = {
    {"quire_tier_capacity_bytes", "gauge", AT(total_bytes), "Bytes that a tier may take."},
    {"quire_tier_used_bytes", "gauge", AT(used_bytes), "Bytes that a tier takes now."},
    {"quire_tier_written_bytes_total", "counter", AT(written_bytes_total), "Bytes written to the medium, headers and all."},
    {"quire_tier_evicted_blocks_total", "counter", AT(evicted_blocks_total), "Blocks given up because space was needed."},
    {"quire_tier_damaged_total", "counter", AT(damaged_total), "Records that did not prove themselves; each was a miss."},
    {"quire_tier_errors_total", "counter", AT(error_total), "Reads and writes that failed; each was a miss or not stored."},
    {"quire_tier_write_budget_bytes", "gauge", AT(budget_bytes), "Bytes that may be written today; 0 without a budget."},
    {"quire_tier_write_budget_left_bytes", "gauge", AT(budget_left_bytes), "What is left of today's budget."},
};

static uint64_t figure(const quire_kv_tier_stats *tier, size_t offset) {
    return *(const uint64_t *)(const void *)((const char *)tier + offset);
}

static void write_tier_rows(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    for (size_t i = 0; i < sizeof tier_rows / sizeof *tier_rows; i++) {
        const tier_row *row = &tier_rows[i];
        qr_page_head(page, row->name, row->type, row->help);
        for (int t = 0; t < BELOW_COUNT; t++)
            qr_bytes_format(page, "%s{tier=\"%s\"} %" PRIu64 "\n", row->name, quire_kv_tier_name(below[t]),
                            figure(&tiers->tiers[below[t]], row->offset));
    }
}

static void write_blocks(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    qr_page_head(page, "quire_tier_blocks", "gauge", "Blocks that have a copy in a tier.");
    for (int t = 0; t < BELOW_COUNT; t++)
        qr_bytes_format(page, "quire_tier_blocks{tier=\"%s\"} %" PRIu32 "\n", quire_kv_tier_name(below[t]),
                        tiers->tiers[below[t]].block_count);
}

/* ---- one sample per tier and direction ---- */

static void direction_samples(qr_bytes *page, const char *name, quire_kv_tier tier, uint64_t load, uint64_t store) {
    qr_bytes_format(page, "%s{tier=\"%s\",direction=\"load\"} %" PRIu64 "\n", name, quire_kv_tier_name(tier), load);
    qr_bytes_format(page, "%s{tier=\"%s\",direction=\"store\"} %" PRIu64 "\n", name, quire_kv_tier_name(tier), store);
}

static void write_moves(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    const struct {
        const char *name;
        size_t load, store;
        const char *help;
    } rows[] = {
        {"quire_tier_moved_blocks_total", AT(loaded_blocks_total), AT(stored_blocks_total), "Blocks moved from and to a tier."},
        {"quire_tier_moved_bytes_total", AT(loaded_bytes_total), AT(stored_bytes_total), "Bytes of blocks moved."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qr_page_head(page, rows[i].name, "counter", rows[i].help);
        for (int t = 0; t < BELOW_COUNT; t++) {
            const quire_kv_tier_stats *tier = &tiers->tiers[below[t]];
            direction_samples(page, rows[i].name, below[t], figure(tier, rows[i].load), figure(tier, rows[i].store));
        }
    }
}

static void write_queues(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    static const char name[] = "quire_tier_queued_blocks";
    qr_page_head(page, name, "gauge", "Blocks that wait to be moved or are on their way.");
    for (int t = 0; t < BELOW_COUNT; t++) {
        const quire_kv_tier_stats *tier = &tiers->tiers[below[t]];
        direction_samples(page, name, below[t], tier->loads_queued, tier->stores_queued);
    }
}

static void write_times(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    static const char name[] = "quire_tier_moved_seconds_total";
    qr_page_head(
        page, name, "counter",
        "Time that moves took, summed up: loads from request to end, stores on disk in system calls. Moves overlap, so more "
        "may pass here than by the clock.");
    for (int t = 0; t < BELOW_COUNT; t++) {
        const quire_kv_tier_stats *tier = &tiers->tiers[below[t]];
        const char *label = quire_kv_tier_name(below[t]);
        qr_bytes_format(page, "%s{tier=\"%s\",direction=\"load\"} %.12g\n", name, label, tier->load_seconds_total);
        qr_bytes_format(page, "%s{tier=\"%s\",direction=\"store\"} %.12g\n", name, label, tier->store_seconds_total);
    }
}

/* ---- derived ---- */

static double amplification(const quire_kv_tier_stats *tier) {
    return tier->stored_bytes_total ? (double)tier->written_bytes_total / (double)tier->stored_bytes_total : 0;
}

static void write_rates(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    qr_page_head(page, "quire_tier_load_bytes_per_second", "gauge", "Measured, recent; 0 before the first load.");
    for (int t = 0; t < BELOW_COUNT; t++)
        qr_bytes_format(page, "quire_tier_load_bytes_per_second{tier=\"%s\"} %.12g\n", quire_kv_tier_name(below[t]),
                        tiers->tiers[below[t]].load_bytes_per_second);
    qr_page_real(page, "quire_disk_write_amplification_ratio", "gauge", amplification(&tiers->tiers[QUIRE_KV_TIER_DISK]),
                 "Bytes written to disk per byte of blocks stored; 0 before the first.");
}

static void write_refusals(qr_bytes *page, const quire_kv_tiers_stats *tiers) {
    qr_page_head(page, "quire_tier_refused_blocks_total", "counter", "Blocks that were not stored or not loaded, by reason.");
    for (int i = 0; i < QUIRE_KV_REFUSED_COUNT; i++)
        qr_bytes_format(page, "quire_tier_refused_blocks_total{reason=\"%s\"} %" PRIu64 "\n",
                        quire_kv_refusal_name((quire_kv_refusal)i), tiers->refused_blocks_total[i]);
}

/* ---- the tiers as a whole ---- */

static void write_whole(qr_bytes *page, const quire_engine_stats *s) {
    const quire_kv_tiers_stats *t = &s->tiers;
    qr_page_integer(page, "quire_kv_verified_blocks_total", "counter", t->verified_blocks_total,
                    "Blocks that were recomputed and compared with what is stored.");
    qr_page_integer(page, "quire_kv_verify_mismatches_total", "counter", t->verify_mismatches_total,
                    "Of these, blocks that differed; their records were dropped.");
    qr_page_integer(page, "quire_tier_erased_blocks_total", "counter", t->erased_blocks_total,
                    "Forgotten blocks whose bytes were erased.");
    qr_page_integer(page, "quire_tier_erasing_blocks", "gauge", s->erasing,
                    "Records, buffers and free blocks that an erasure has still to overwrite.");
    qr_page_integer(page, "quire_flushes_total", "counter", s->flushes_total, "Flushes begun.");
    qr_page_integer(page, "quire_flush_left_blocks", "gauge", s->flush_left, "Blocks that a flush has still to write.");
    qr_page_integer(page, "quire_requests_loading", "gauge", s->loading, "Requests that wait for blocks of a lower tier.");
    qr_page_integer(page, "quire_disk_index_records", "gauge", t->index_records, "Records found on disk at the start.");
    qr_page_integer(page, "quire_disk_index_bytes", "gauge", t->index_bytes, "Bytes read for that.");
    qr_page_integer(page, "quire_disk_index_reads", "gauge", t->index_reads, "Reads for that.");
    qr_page_real(page, "quire_disk_index_seconds", "gauge", (double)t->index_us / 1e6, "Time that it took.");
}

void qr_tier_metrics_write(qr_bytes *page, const quire_engine_stats *stats) {
    write_blocks(page, &stats->tiers);
    write_tier_rows(page, &stats->tiers);
    write_moves(page, &stats->tiers);
    write_times(page, &stats->tiers);
    write_queues(page, &stats->tiers);
    write_rates(page, &stats->tiers);
    write_refusals(page, &stats->tiers);
    write_whole(page, stats);
}
