/* tiers.c - the lower tiers as a whole: what they cost, create and destroy, poll, statistics. */
#include "runtime/kv/tiers.h"

#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "offload/disk_store.h"
#include "runtime/kv/kv_internal.h"

/* Bytes per second before anything is measured: a SATA SSD, and a PCIe 3.0 copy in one direction with overheads. */
static const double tiers_disk_prior = 500e6, tiers_host_prior = 4e9;

uint64_t qr_kv_now_us(const quire_kv *kv) { return kv->tree.policy.now_us; }

/* ---- configuration ---- */

static bool tiers_wanted(const quire_kv_config *config) {
    return !config->cache_disabled && (config->tiers.host_bytes > 0 || config->tiers.disk_path);
}

quire_status qr_kv_tiers_config_check(const quire_kv_config *config, bool device_is_host, quire_error *error) {
    const quire_kv_tiers *t = &config->tiers;
    if (!tiers_wanted(config)) return QUIRE_OK;
    if (config->storage == QUIRE_KV_STORAGE_NONE)
        return qr_fail(error, QUIRE_INVALID, "tiers", QR_NO_OFFSET, "lower tiers need storage of the manager's own");
    if (t->host_bytes > 0 && device_is_host)
        return qr_fail(error, QUIRE_INVALID, "host_bytes", QR_NO_OFFSET,
                       "the pool is host memory already: a larger pool does what a host tier would");
    if ((unsigned)t->disk_write > QUIRE_KV_DISK_OFF)
        return qr_fail(error, QUIRE_INVALID, "disk_write", QR_NO_OFFSET, "disk_write cannot be %u", (unsigned)t->disk_write);
    return QUIRE_OK;
}

uint64_t qr_kv_payload_bytes(const quire_kv_config *config) {
    uint64_t sum = 0;
    if (config->storage == QUIRE_KV_STORAGE_NONE) return 0;
    for (uint32_t g = 0; g < config->group_count; g++)
        if (!qr_add_u64(sum, qr_layout_block_bytes(&config->groups[g], config->block_tokens), &sum)) return 0;
    return sum;
}

kv_tier_sizes qr_kv_tier_sizes(const quire_kv_config *config) {
    kv_tier_sizes sizes = {.lists_copies = config->storage == QUIRE_KV_STORAGE_NONE};
    uint64_t payload_bytes = qr_kv_payload_bytes(config);
    if (!tiers_wanted(config) || payload_bytes == 0 || payload_bytes > SIZE_MAX) return sizes;
    sizes.slot_count = qr_host_arena_slots(config->tiers.host_bytes, (size_t)payload_bytes);
    if (config->tiers.disk_path)
        sizes.record_max = qr_disk_record_max(config->tiers.disk_max_bytes, payload_bytes, config->block_tokens);
    return sizes;
}

bool qr_kv_tiers_can_be_numbered(const quire_kv_config *config, const kv_tier_sizes *sizes) {
    uint64_t nodes = (uint64_t)config->block_count * (1 + QR_TREE_GHOSTS_PER_BLOCK) + sizes->slot_count + sizes->record_max;
    return nodes + config->max_namespaces + QR_NAMESPACES_DEFAULT_DISK < UINT32_C(1) << 31;
}

quire_status qr_kv_tiers_budget_check(const quire_kv_config *config, const kv_tier_sizes *sizes, quire_error *error) {
    if (!tiers_wanted(config)) return QUIRE_OK;
    if (config->tiers.host_bytes > 0) {
        quire_status status = qr_host_arena_check(config->tiers.host_bytes, (size_t)qr_kv_payload_bytes(config), error);
        if (status != QUIRE_OK) return status;
    }
    if (qr_kv_tiers_can_be_numbered(config, sizes)) return QUIRE_OK;
    return qr_fail(error, QUIRE_INVALID, "tiers", QR_NO_OFFSET, "%u blocks, %u in host memory and %u on disk are too many",
                   config->block_count, sizes->slot_count, sizes->record_max);
}

/* Bytes of every part: the order in which they lie is part of what a record must agree with. */
static uint64_t tiers_layout_fingerprint(const quire_kv *kv) {
    const quire_kv_config *config = &kv->config;
    uint64_t digest = qr_mix64((uint64_t)config->block_tokens << 32 | config->group_count);
    for (uint32_t g = 0; g < config->group_count; g++) {
        const quire_kv_group *group = &config->groups[g];
        const qr_layout *layout = &kv->layouts[g];
        digest = qr_mix64(digest ^ ((uint64_t)group->layer_count << 32 | group->kv_head_count));
        digest = qr_mix64(digest ^ ((uint64_t)group->key_dim << 32 | group->value_dim));
        digest = qr_mix64(digest ^ layout->block_bytes);
        for (uint32_t i = 0; i < layout->layer_count * layout->kv_head_count * QR_LAYOUT_PARTS; i++) {
            const qr_layout_part *part = &layout->parts[i];
            digest = qr_mix64(digest ^ part->offset_bytes);
            digest = qr_mix64(digest ^ part->size_bytes);
            digest = qr_mix64(digest ^ (uint64_t)part->type);
        }
    }
    return digest;
}

static qr_disk_config tiers_disk_config(const quire_kv_config *config) {
    const quire_kv_tiers *t = &config->tiers;
    return (qr_disk_config){.path = t->disk_path,
                            .cap_bytes = t->disk_max_bytes,
                            .free_floor_bytes = t->disk_floor_bytes,
                            .day_budget_bytes = t->disk_day_budget_bytes,
                            .payload_bytes = qr_kv_payload_bytes(config),
                            .block_tokens = config->block_tokens,
                            .fingerprint = {.weights = t->weights_fingerprint,
                                            .numerics = t->numerics_fingerprint,
                                            .adapter = t->adapter_fingerprint},
                            .may_only_read = t->disk_write == QUIRE_KV_DISK_OFF,
                            .wake = t->wake,
                            .wake_context = t->wake_context,
                            .cancelled = t->cancelled,
                            .cancelled_context = t->cancelled_context};
}

bool qr_kv_tiers_bytes(const quire_kv_config *config, uint64_t *bytes) {
    *bytes = 0;
    if (!tiers_wanted(config)) return true;
    uint64_t payload_bytes = qr_kv_payload_bytes(config);
    uint64_t slots = qr_kv_tier_sizes(config).slot_count;
    if (!qr_mul_u64(slots, payload_bytes + sizeof(qr_host_slot), bytes)) return false;
    qr_disk_config disk = tiers_disk_config(config);
    return !config->tiers.disk_path || qr_add_u64(*bytes, qr_disk_memory_bytes(&disk), bytes);
}

void qr_kv_tiers_lay_out(quire_kv *kv, const kv_tier_sizes *sizes, qr_arena *arena) {
    kv_tiers *tiers = &kv->tiers;
    uint32_t rows = kv->config.max_sequences, nodes = kv->tree.store.root_count + kv->tree.store.node_count;
    tiers->sizes = *sizes;
    tiers->present = tiers_wanted(&kv->config) || sizes->record_max > 0;
    if (!tiers->present) return;
    tiers->row_capacity = (uint32_t)qr_div_up(kv->token_capacity, kv->config.block_tokens);
    tiers->slots = qr_arena_take(arena, sizes->slot_count, sizeof *tiers->slots);
    tiers->records = qr_arena_take(arena, sizes->record_max, sizeof *tiers->records);
    tiers->of_flush = qr_arena_take(arena, sizes->record_max, sizeof *tiers->of_flush);
    tiers->loads = qr_arena_take(arena, rows, sizeof *tiers->loads);
    tiers->load_list = qr_arena_take(arena, rows, sizeof *tiers->load_list);
    tiers->load_places = qr_arena_take(arena, (uint64_t)rows * tiers->row_capacity, sizeof *tiers->load_places);
    tiers->load_nodes = qr_arena_take(arena, (uint64_t)rows * tiers->row_capacity, sizeof *tiers->load_nodes);
    if (kv->config.tiers.verify_every > 0) {
        tiers->jobs = qr_arena_take(arena, KV_VERIFY_JOBS, sizeof *tiers->jobs);
        tiers->waiting = qr_arena_take(arena, KV_VERIFY_WAITING, sizeof *tiers->waiting);
    }
    tiers->check_nodes = qr_arena_take(arena, nodes, sizeof *tiers->check_nodes);
    uint32_t marks = sizes->record_max > sizes->slot_count ? sizes->record_max : sizes->slot_count;
    tiers->check_marks = qr_arena_take(arena, marks, sizeof *tiers->check_marks);
}

/* ---- create ---- */

static void tiers_init_movers(quire_kv *kv) {
    for (uint32_t g = 0; g < kv->config.group_count && kv->tiers.payload_bytes > 0; g++) {
        const qr_pool *pool = &kv->pools[g];
        kv->tiers.movers[g] = (qr_block_mover){.device = kv->device,
                                               .pool = pool->memory,
                                               .block_bytes = pool->block_bytes,
                                               .block_count = pool->block_count,
                                               .streams = {QR_BLOCK_COPY, QR_BLOCK_GATHER, QR_BLOCK_SCATTER}};
        if (g > 0) kv->tiers.offsets[g] = kv->tiers.offsets[g - 1] + kv->pools[g - 1].block_bytes;
    }
}

static quire_status tiers_open_disk(quire_kv *kv, qr_files *files, quire_error *error) {
    qr_disk_config disk = tiers_disk_config(&kv->config);
    disk.fingerprint.layout = tiers_layout_fingerprint(kv);
    disk.files = files;
    return qr_disk_open(&disk, &kv->tiers.store, error);
}

static quire_status tiers_check_store(const quire_kv *kv, quire_error *error) {
    qr_store_stats stats;
    kv->tiers.store->ops->stats(kv->tiers.store, &stats);
    if (stats.payload_bytes != kv->tiers.payload_bytes)
        return qr_fail(error, QUIRE_INVALID, "store", QR_NO_OFFSET, "payloads of %llu bytes, not %llu",
                       (unsigned long long)stats.payload_bytes, (unsigned long long)kv->tiers.payload_bytes);
    if (stats.record_max > kv->tiers.sizes.record_max)
        return qr_fail(error, QUIRE_CORRUPT, "store", QR_NO_OFFSET, "may hold %u records, and %u were planned",
                       stats.record_max, kv->tiers.sizes.record_max);
    return QUIRE_OK;
}

static quire_status tiers_register_buffers(quire_kv *kv, quire_error *error) {
    void *base;
    size_t size_bytes;
    if (kv->tiers.payload_bytes == 0) return QUIRE_OK;
    kv->tiers.store->ops->buffers(kv->tiers.store, &base, &size_bytes);
    quire_status status = kv->device->ops->host_register(kv->device, base, size_bytes, error);
    if (status == QUIRE_OK) kv->tiers.store_buffers = base;
    return status;
}

static quire_status tiers_take_scratch(quire_kv *kv, quire_error *error) {
    kv_tiers *tiers = &kv->tiers;
    if (!tiers->jobs || tiers->payload_bytes == 0 || kv->device->ops->memory_is_host) return QUIRE_OK;
    quire_status status = qr_region_alloc((size_t)tiers->payload_bytes, &tiers->scratch_region, error);
    if (status != QUIRE_OK) return status;
    status = kv->device->ops->host_register(kv->device, tiers->scratch_region.base, tiers->scratch_region.size_bytes, error);
    if (status == QUIRE_OK) tiers->scratch = tiers->scratch_region.base;
    return status;
}

static quire_status tiers_take_host(quire_kv *kv, quire_error *error) {
    kv_tiers *tiers = &kv->tiers;
    if (kv->config.tiers.host_bytes == 0) return QUIRE_OK;
    quire_status status =
        qr_host_arena_init(&tiers->host, kv->device, kv->config.tiers.host_bytes, (size_t)tiers->payload_bytes, error);
    tiers->has_host = status == QUIRE_OK;
    return status;
}

static quire_status tiers_take_store(quire_kv *kv, qr_files *files, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (!kv->tiers.store && kv->config.tiers.disk_path) status = tiers_open_disk(kv, files, error);
    if (status != QUIRE_OK || !kv->tiers.store) return status;
    status = tiers_check_store(kv, error);
    if (status == QUIRE_OK) status = tiers_register_buffers(kv, error);
    return status;
}

quire_status qr_kv_tiers_create(quire_kv *kv, qr_store *store, qr_files *files, quire_error *error) {
    kv_tiers *tiers = &kv->tiers;
    uint64_t ids_only = quire_kv_token_bytes(&kv->config) * kv->config.block_tokens;
    tiers->gone_record = QR_RECORD_NONE;
    tiers->payload_bytes = qr_kv_payload_bytes(&kv->config);
    tiers->rate_bytes = tiers->payload_bytes ? tiers->payload_bytes : ids_only ? ids_only : 1;
    tiers->rates[QUIRE_KV_TIER_HOST].prior = tiers_host_prior;
    tiers->rates[QUIRE_KV_TIER_DISK].prior = tiers_disk_prior;
    if (!tiers->present) {
        if (store) store->ops->close(store);
        return QUIRE_OK;
    }
    tiers->store = store;
    tiers_init_movers(kv);
    quire_status status = tiers_take_host(kv, error);
    if (status == QUIRE_OK) status = tiers_take_store(kv, files, error);
    if (status == QUIRE_OK) status = tiers_take_scratch(kv, error);
    if (status == QUIRE_OK && tiers->store) qr_kv_restore(kv);
    return status;
}

/* Nothing may be under way when memory goes. */
void qr_kv_tiers_destroy(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    qr_kv_transfers_drain(kv);
    qr_kv_verify_end(kv);
    if (tiers->scratch) kv->device->ops->host_unregister(kv->device, tiers->scratch);
    qr_region_free(&tiers->scratch_region);
    if (tiers->store_buffers) kv->device->ops->host_unregister(kv->device, tiers->store_buffers);
    if (tiers->store) tiers->store->ops->close(tiers->store);
    qr_host_arena_deinit(&tiers->host);
}

/* ---- troubles ---- */

static void trouble_keep(kv_tiers *tiers, quire_kv_trouble_kind kind, const qr_store_trouble *found) {
    quire_kv_trouble *kept = &tiers->troubles[tiers->trouble_total++ % QUIRE_KV_TROUBLES];
    _Static_assert(sizeof kept->file == sizeof found->file && sizeof kept->what == sizeof found->what, "copied as they are");
    *kept = (quire_kv_trouble){.kind = kind, .offset = found->offset, .unix_ms = found->wall_ms};
    memcpy(kept->file, found->file, sizeof kept->file);
    memcpy(kept->what, found->what, sizeof kept->what);
}

void qr_kv_note_trouble(quire_kv *kv, quire_kv_trouble_kind kind, bool in_store, uint32_t record, const char *what) {
    const qr_store *store = kv->tiers.store;
    qr_store_trouble found;
    if (record == QR_RECORD_NONE || !store->ops->where(store, record, &found))
        found = (qr_store_trouble){.offset = UINT64_MAX, .wall_ms = qr_clock_wall_ms(), .file = {in_store ? '?' : 0}};
    (void)snprintf(found.what, sizeof found.what, "%s", what);
    trouble_keep(&kv->tiers, kind, &found);
}

static void trouble_told(quire_kv *kv, const qr_store_event *event) {
    bool damaged = event->trouble->kind == QR_STORE_TROUBLE_DAMAGED;
    uint64_t missed = event->tag < QUIRE_KV_TROUBLES ? event->tag : QUIRE_KV_TROUBLES;
    kv->tiers.trouble_total += event->tag - missed;
    while (missed-- > 0) /* nobody knows more of them */
        kv->tiers.troubles[kv->tiers.trouble_total++ % QUIRE_KV_TROUBLES] = (quire_kv_trouble){0};
    trouble_keep(&kv->tiers, damaged ? QUIRE_KV_TROUBLE_DAMAGED : QUIRE_KV_TROUBLE_ERROR, event->trouble);
    kv->tiers.changed = true;
}

/* ---- going on ---- */

static void tiers_take_event(quire_kv *kv, const qr_store_event *event) {
    switch (event->kind) {
    case QR_STORE_PUT_DONE: qr_kv_write_done(kv, event); break;
    case QR_STORE_GET_DONE: qr_kv_read_done(kv, event); break;
    case QR_STORE_LOST: qr_kv_record_lost(kv, event); break;
    case QR_STORE_SEALED:
        qr_kv_flush_sealed(kv, event->status);
        kv->tiers.changed = true;
        break;
    case QR_STORE_TROUBLE: trouble_told(kv, event); break;
    }
}

/* A store's figures cost more than all the rest of a poll that finds nothing to do. */
static void tiers_look_at_space(quire_kv *kv) {
    qr_store_stats stats;
    kv->tiers.store->ops->stats(kv->tiers.store, &stats);
    kv->tiers.space_short = stats.space_short;
    kv->tiers.looked_us = qr_kv_now_us(kv);
}

static void tiers_poll_store(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    qr_store_event event;
    if (!tiers->store) return;
    while (tiers->store->ops->poll(tiers->store, qr_kv_now_us(kv), &event)) tiers_take_event(kv, &event);
    if (qr_kv_now_us(kv) - tiers->looked_us >= KV_LOOK_US) tiers_look_at_space(kv);
    uint32_t erasing = tiers->store->ops->erasing(tiers->store);
    if (erasing != tiers->erasing) tiers->changed = true; /* whoever waits for it looks at figures */
    tiers->erasing = erasing;
}

bool quire_kv_poll(quire_kv *kv) {
    kv_tiers *tiers = &kv->tiers;
    if (!tiers->present) return qr_kv_erasing_poll(kv);
    tiers->more = false;
    qr_kv_transfers_poll(kv);
    tiers->changed |= qr_kv_erasing_poll(kv); /* before anybody copies into the scratch again */
    qr_kv_wait_poll(kv);
    tiers_poll_store(kv);
    qr_kv_loads_poll(kv);
    qr_kv_verify_poll(kv);
    if (tiers->store) qr_kv_writes_poll(kv);
    bool changed = tiers->changed;
    tiers->changed = false;
    return changed;
}

static bool tiers_copy(const quire_kv *kv) { return kv->tiers.gathers.count + kv->tiers.scatters.count > 0; }

bool quire_kv_busy(const quire_kv *kv) { return tiers_copy(kv) || kv->tiers.waits; }

uint64_t quire_kv_poll_after_us(const quire_kv *kv) {
    bool at_once = kv->tiers.more || tiers_copy(kv) || qr_kv_erasing_left(kv) > 0;
    return at_once ? 0 : qr_kv_wait_left_us(kv);
}

void quire_kv_set_idle(quire_kv *kv, bool idle) {
    if (idle && !kv->tiers.idle) kv->tiers.idle_looks = kv->tree.unsaved_count;
    kv->tiers.idle = idle;
}

uint32_t quire_kv_erasing(const quire_kv *kv) {
    const qr_store *store = kv->tiers.store;
    return qr_kv_erasing_left(kv) + (store ? store->ops->erasing(store) : 0);
}

void quire_kv_count_refusal(quire_kv *kv, quire_kv_refusal refusal, uint32_t blocks) {
    if ((unsigned)refusal < QUIRE_KV_REFUSED_COUNT) kv->tiers.refused[refusal] += blocks;
    if (refusal == QUIRE_KV_REFUSED_SLOWER) kv->tiers.slower = true;
}

/* ---- statistics ---- */

static void stats_count(quire_kv_tier_stats *stats, const kv_tiers *tiers, quire_kv_tier tier) {
    const kv_tier_counters *counters = &tiers->counters[tier];
    stats->loaded_blocks_total = counters->loaded_blocks;
    stats->loaded_bytes_total = counters->loaded_blocks * tiers->payload_bytes;
    stats->stored_blocks_total = counters->stored_blocks;
    stats->stored_bytes_total = counters->stored_blocks * tiers->payload_bytes;
    stats->load_seconds_total = (double)counters->load_us * 1e-6;
    stats->store_seconds_total = (double)counters->store_us * 1e-6;
    stats->load_bytes_per_second = tiers->rates[tier].bytes_per_second;
    stats->hit_tokens_total = counters->hit_tokens;
    stats->evicted_blocks_total = counters->evicted_blocks;
}

static void stats_device(const quire_kv *kv, quire_kv_tier_stats *stats) {
    uint32_t used = kv->config.block_count - kv->pools[0].state_count[QR_BLOCK_FREE];
    stats->present = true;
    stats->total_bytes = kv->pool_bytes;
    stats->used_bytes = used * kv->tiers.payload_bytes;
    stats->block_count = kv->tree.resident_count;
    stats->hit_tokens_total += kv->counters.hit_tokens;
    stats->evicted_blocks_total = kv->counters.evicted_blocks;
}

static void stats_host(const kv_tiers *tiers, quire_kv_tier_stats *stats) {
    uint32_t used = tiers->host.slot_count - tiers->host.free_count;
    stats->present = tiers->has_host;
    stats->total_bytes = tiers->host.slot_count * tiers->payload_bytes;
    stats->used_bytes = used * tiers->payload_bytes;
    stats->block_count = used;
    for (uint32_t i = 0; i < tiers->gathers.count; i++)
        stats->stores_queued += tiers->gathers.items[(tiers->gathers.first + i) % KV_TRANSFERS].kind == KV_TO_SLOT;
    for (uint32_t i = 0; i < tiers->scatters.count; i++)
        stats->loads_queued += tiers->scatters.items[(tiers->scatters.first + i) % KV_TRANSFERS].kind == KV_FROM_SLOT;
    stats->written_bytes_total = stats->stored_bytes_total;
}

static void stats_disk(const kv_tiers *tiers, quire_kv_tiers_stats *all) {
    quire_kv_tier_stats *stats = &all->tiers[QUIRE_KV_TIER_DISK];
    qr_store_stats store;
    tiers->store->ops->stats(tiers->store, &store);
    stats->present = true;
    stats->total_bytes = store.cap_bytes;
    stats->used_bytes = store.used_bytes;
    stats->block_count = store.record_count;
    stats->loads_queued = tiers->read_count;
    stats->stores_queued = store.writes_queued + tiers->begun_count;
    stats->store_seconds_total = (double)store.write_us_total * 1e-6;
    stats->written_bytes_total = store.device_written_bytes_total;
    stats->evicted_blocks_total += store.lost_total;
    stats->damaged_total = store.corrupt_total + tiers->damaged;
    stats->error_total = store.io_error_total;
    stats->budget_bytes = store.budget_bytes;
    stats->budget_left_bytes = store.budget_left_bytes;
    all->erased_blocks_total = store.erased_total;
    all->index_records = store.index_records_total;
    all->index_bytes = store.index_bytes_total;
    all->index_reads = store.index_reads_total;
    all->index_us = store.index_us_total;
}

void quire_kv_get_tiers_stats(const quire_kv *kv, quire_kv_tiers_stats *stats) {
    const kv_tiers *tiers = &kv->tiers;
    *stats = (quire_kv_tiers_stats){.verified_blocks_total = tiers->verified,
                                    .verify_mismatches_total = tiers->mismatches,
                                    .flush_refused = tiers->flush_refused,
                                    .flush_failed = tiers->flush_failed,
                                    .troubles_total = tiers->trouble_total};
    memcpy(stats->troubles, tiers->troubles, sizeof stats->troubles);
    for (int tier = 0; tier < QUIRE_KV_TIER_COUNT; tier++) stats_count(&stats->tiers[tier], tiers, (quire_kv_tier)tier);
    memcpy(stats->refused_blocks_total, tiers->refused, sizeof stats->refused_blocks_total);
    stats_device(kv, &stats->tiers[QUIRE_KV_TIER_DEVICE]);
    stats_host(tiers, &stats->tiers[QUIRE_KV_TIER_HOST]);
    if (tiers->store) stats_disk(tiers, stats);
}
