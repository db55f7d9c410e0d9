#include "runtime/kv/kv_internal.h"

#include <string.h>
#include <sys/mman.h>

#include "base/assertion.h"
#include "base/error.h"
#include "runtime/kv/kv_parts.h"

/* Bookkeeping is sparse: most of the token store and the tables is touched late or never. Huge pages would make the first
 * token of a sequence cost two megabytes. A kernel that does not know the advice has no huge pages either. */
static quire_status kv_take_region(const quire_kv_config *config, const kv_tier_sizes *sizes, qr_region *region,
                                   quire_error *error) {
    qr_arena counted = {0};
    qr_kv_lay_out(config, sizes, &counted);
    if (counted.failed || counted.used_bytes > SIZE_MAX)
        return qr_fail(error, QUIRE_NO_MEMORY, "max_sequences", QR_NO_OFFSET, "the bookkeeping is larger than memory can be");
    quire_status status = qr_region_alloc((size_t)counted.used_bytes, region, error);
    if (status == QUIRE_OK) (void)madvise(region->base, region->size_bytes, MADV_NOHUGEPAGE);
    return status;
}

static quire_status kv_take_pools(quire_kv *kv, quire_error *error) {
    quire_status status = QUIRE_OK;
    if (kv->config.storage == QUIRE_KV_STORAGE_NONE) return status;
    if (!kv->device && qr_device_cpu_create(&kv->device) != QUIRE_OK)
        return qr_fail(error, QUIRE_NO_MEMORY, "storage", QR_NO_OFFSET, "no memory for the device");
    for (uint32_t g = 0; g < kv->config.group_count && status == QUIRE_OK; g++)
        status = qr_pool_alloc_memory(&kv->pools[g], kv->device, (size_t)kv->layouts[g].block_bytes, error);
    return status;
}

/* What create works with until the object takes it over. */
typedef struct kv_making {
    const quire_kv_config *config;
    qr_kv_parts parts; /* device and store: NULL once the object has them */
    bool reachable;    /* the CPU can copy in the pool */
    kv_tier_sizes sizes;
} kv_making;

static quire_status kv_check_making(kv_making *making, quire_error *error) {
    uint64_t pool_bytes;
    const qr_kv_parts *parts = &making->parts;
    bool device_is_host = !parts->device || parts->device->ops->memory_is_host;
    quire_status status = qr_kv_config_check(making->config, error);
    if (status == QUIRE_OK) status = qr_kv_tiers_config_check(making->config, device_is_host && !parts->host_tier, error);
    if (status != QUIRE_OK) return status;
    if (!qr_kv_pool_bytes(making->config, &pool_bytes) || pool_bytes > SIZE_MAX)
        return qr_fail(error, QUIRE_NO_MEMORY, "block_count", QR_NO_OFFSET, "%u blocks are larger than memory can be",
                       making->config->block_count);
    making->reachable = device_is_host || parts->host_tier;
    return status;
}

static void kv_size_tiers(kv_making *making) {
    qr_store_stats stats;
    making->sizes = qr_kv_tier_sizes(making->config);
    making->sizes.lists_copies = making->config->storage == QUIRE_KV_STORAGE_NONE || !making->reachable;
    if (!making->parts.store || making->config->cache_disabled) return;
    making->parts.store->ops->stats(making->parts.store, &stats);
    making->sizes.record_max = stats.record_max;
}

/* The object, owner of device and store; NULL when there is no memory for it. */
static quire_kv *kv_make_object(kv_making *making, quire_error *error) {
    qr_region region = {0};
    if (kv_take_region(making->config, &making->sizes, &region, error) != QUIRE_OK) return NULL;
    qr_arena arena = {.base = region.base, .size_bytes = region.size_bytes};
    quire_kv *kv = qr_kv_lay_out(making->config, &making->sizes, &arena);
    QR_ASSERT(kv != NULL);
    kv->region = region;
    kv->device = making->parts.device;
    making->parts.device = NULL;
    return kv;
}

static quire_status kv_fill(quire_kv *kv, kv_making *making, quire_error *error) {
    bool sized = qr_kv_pool_bytes(&kv->config, &kv->pool_bytes);
    QR_ASSERT(sized);
    qr_kv_sequences_init(kv);
    quire_status status = kv_take_pools(kv, error);
    if (status != QUIRE_OK) return status;
    qr_store *store = making->parts.store;
    making->parts.store = NULL;
    status = qr_kv_tiers_create(kv, store, making->parts.files, error);
    kv->config.tiers.disk_path = NULL; /* the caller's */
    return status;
}

static quire_status kv_create(kv_making *making, quire_kv **kv, quire_error *error) {
    quire_status status = kv_check_making(making, error);
    if (status != QUIRE_OK) return status;
    kv_size_tiers(making);
    status = qr_kv_tiers_budget_check(making->config, &making->sizes, error);
    if (status != QUIRE_OK) return status;
    quire_kv *made = kv_make_object(making, error);
    if (!made) return QUIRE_NO_MEMORY;
    status = kv_fill(made, making, error);
    if (status == QUIRE_OK) *kv = made;
    else quire_kv_destroy(made);
    return status;
}

quire_status qr_kv_create_from(const quire_kv_config *config, const qr_kv_parts *parts, quire_kv **kv, quire_error *error) {
    kv_making making = {.config = config, .parts = *parts};
    *kv = NULL;
    quire_status status = kv_create(&making, kv, error);
    if (making.parts.store) making.parts.store->ops->close(making.parts.store);
    if (making.parts.device) making.parts.device->ops->destroy(making.parts.device);
    return status;
}

quire_status quire_kv_create(const quire_kv_config *config, quire_kv **kv, quire_error *error) {
    return qr_kv_create_from(config, &(qr_kv_parts){0}, kv, error);
}

void quire_kv_destroy(quire_kv *kv) {
    if (!kv) return;
    qr_kv_tiers_destroy(kv);
    for (uint32_t g = 0; g < kv->config.group_count; g++) qr_pool_deinit(&kv->pools[g]);
    if (kv->device) kv->device->ops->destroy(kv->device);
    qr_region region = kv->region;
    qr_region_free(&region);
}

void quire_kv_set_time(quire_kv *kv, uint64_t now_us) { qr_tree_set_time(&kv->tree, now_us); }

/* ---- blocks ---- */

/* Blocks that nobody uses, the ones whose last copy is under way included. */
static uint32_t kv_reclaimable(const quire_kv *kv, uint32_t wanted) {
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        const qr_pool *pool = &kv->pools[g];
        uint32_t count = pool->state_count[QR_BLOCK_FREE] + pool->state_count[QR_BLOCK_CACHED];
        if (count < least) least = count;
    }
    return least < wanted && quire_kv_busy(kv) ? least + qr_kv_leaving(kv) : least;
}

static bool kv_evict_plain(quire_kv *kv, qr_node_id victim) {
    qr_tree_evict(&kv->tree, victim);
    return true;
}

bool qr_kv_evict_one(quire_kv *kv) {
    quire_block_id blocks[QUIRE_KV_GROUPS_MAX];
    qr_node_id victim = qr_tree_victim(&kv->tree);
    if (victim == QR_NODE_NONE) return false;
    memcpy(blocks, qr_tree_blocks(&kv->tree, victim), kv->config.group_count * sizeof *blocks);
    if (!(kv->tiers.present ? qr_kv_spill(kv, victim) : kv_evict_plain(kv, victim))) return false;
    for (uint32_t g = 0; g < kv->config.group_count; g++) (void)qr_pool_unkeep(&kv->pools[g], blocks[g]);
    kv->counters.evicted_blocks++;
    return true;
}

bool qr_kv_make_room(quire_kv *kv, uint32_t count) {
    if (kv_reclaimable(kv, count) < count) return false;
    while (kv->pools[0].state_count[QR_BLOCK_FREE] < count) {
        uint32_t coming = quire_kv_busy(kv) ? qr_kv_leaving(kv) : 0;
        if (kv->pools[0].state_count[QR_BLOCK_FREE] + coming >= count || !qr_kv_evict_one(kv)) return false;
    }
    return true;
}

void qr_kv_take_blocks(quire_kv *kv, quire_block_id blocks[QUIRE_KV_GROUPS_MAX]) {
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        blocks[g] = qr_pool_alloc(&kv->pools[g]);
        QR_ASSERT(blocks[g] != QUIRE_BLOCK_NONE);
    }
}

bool qr_kv_can_copy(const quire_kv *kv) {
    return kv->copy_capacity == 0 || kv->copy_capacity - kv->copy_count >= kv->config.group_count;
}

void qr_kv_copy_blocks(quire_kv *kv, const quire_block_id *from, const quire_block_id *to) {
    QR_ASSERT(qr_kv_can_copy(kv));
    for (uint32_t g = 0; g < kv->config.group_count; g++) {
        qr_pool *pool = &kv->pools[g];
        qr_pool_copied(pool, to[g], from[g]);
        if (kv->copy_capacity == 0) memcpy(qr_pool_address(pool, to[g]), qr_pool_address(pool, from[g]), pool->block_bytes);
        else kv->copies[kv->copy_count++] = (quire_kv_copy){g, from[g], to[g]};
    }
    kv->counters.copied_blocks++;
}

/* Somebody copies on from what it brings. */
static bool copy_is_read(const quire_kv *kv, uint32_t place) {
    const quire_kv_copy *copy = &kv->copies[place];
    for (uint32_t i = place + 1; i < kv->copy_count; i++)
        if (kv->copies[i].group == copy->group && kv->copies[i].from == copy->to) return true;
    return false;
}

void qr_kv_forget_copies(quire_kv *kv) {
    for (uint32_t i = kv->copy_count; i-- > 0;) {
        const quire_kv_copy *copy = &kv->copies[i];
        if (qr_pool_state(&kv->pools[copy->group], copy->to) != QR_BLOCK_FREE || copy_is_read(kv, i)) continue;
        kv->copy_count--;
        memmove(kv->copies + i, kv->copies + i + 1, (kv->copy_count - i) * sizeof *copy);
    }
}

size_t quire_kv_take_copies(quire_kv *kv, quire_kv_copy *out, size_t max) {
    size_t count = kv->copy_count < max ? kv->copy_count : max;
    if (count == 0) return 0;
    memcpy(out, kv->copies, count * sizeof *out);
    memmove(kv->copies, kv->copies + count, (kv->copy_count - count) * sizeof *out);
    kv->copy_count -= (uint32_t)count;
    return count;
}

void *quire_kv_pool_base(const quire_kv *kv, uint32_t group, size_t *stride_bytes) {
    bool known = group < kv->config.group_count;
    if (stride_bytes) *stride_bytes = known ? kv->pools[group].block_bytes : 0;
    return known ? kv->pools[group].memory : NULL;
}

size_t quire_kv_part_offset(const quire_kv *kv, uint32_t group, uint32_t layer, uint32_t kv_head, quire_kv_part part) {
    if (group >= kv->config.group_count) return SIZE_MAX;
    const qr_layout_part *found = qr_layout_find(&kv->layouts[group], layer, kv_head, part);
    return found && found->size_bytes > 0 ? (size_t)found->offset_bytes : SIZE_MAX;
}

/* ---- namespaces ---- */

/* Nobody holds it and no sequence is in it. */
static bool kv_namespace_unused(void *owner, quire_namespace_id id) {
    const quire_kv *kv = owner;
    const qr_namespace *entry = &kv->namespaces.entries[id];
    return entry->open_count == 0 && entry->sequence_count == 0;
}

/* Unused, and nothing of it is in the pool. */
static bool kv_namespace_absent(void *owner, quire_namespace_id id) {
    const quire_kv *kv = owner;
    return kv_namespace_unused(owner, id) && kv->tree.roots[id].resident_count == 0;
}

/* Nor in any tier. */
static bool kv_namespace_idle(void *owner, quire_namespace_id id) {
    const quire_kv *kv = owner;
    return kv_namespace_absent(owner, id) && kv->tree.roots[id].stored_count == 0;
}

/* Takes an unused namespace out of use; what is cached or stored of it and its ghosts go with it. */
static void kv_namespace_drop(quire_kv *kv, quire_namespace_id id) {
    uint64_t dropped = kv->tiers.dropped_count;
    kv->counters.evicted_blocks += quire_kv_forget_namespace(kv, id, false);
    kv->tiers.counters[QUIRE_KV_TIER_DISK].evicted_blocks += kv->tiers.dropped_count - dropped;
    qr_namespaces_remove(&kv->namespaces, id);
}

void qr_kv_namespace_let_go(quire_kv *kv, quire_namespace_id id) {
    if (id > 0 && kv->namespaces.entries[id].forgotten && kv_namespace_unused(kv, id)) kv_namespace_drop(kv, id);
}

static void kv_namespaces_make_room(quire_kv *kv, size_t key_bytes, qr_namespace_idle *may_go) {
    for (quire_namespace_id id = 1; id < kv->namespaces.count && !qr_namespaces_fits(&kv->namespaces, key_bytes); id++)
        if (qr_namespaces_in_use(&kv->namespaces, id) && may_go(kv, id)) kv_namespace_drop(kv, id);
}

/* A place for a new key of so many bytes: idle namespaces give way for it, then those that are only stored, then those that
 * are only cached, the longest known first. Otherwise as many keys as there are places, each with a block somewhere, would
 * keep all others out. KV_INDEX_NONE when every namespace is used. */
static quire_namespace_id kv_namespace_place(quire_kv *kv, size_t key_bytes) {
    qr_namespace_idle *const may_go[] = {kv_namespace_idle, kv_namespace_absent, kv_namespace_unused};
    quire_namespace_id place = KV_INDEX_NONE;
    if (key_bytes > (size_t)kv->namespaces.chunk_count * QR_NAMESPACE_CHUNK_BYTES) return KV_INDEX_NONE;
    for (int i = 0; i < 3 && place == KV_INDEX_NONE; i++) place = qr_namespaces_next_idle(&kv->namespaces, may_go[i], kv);
    if (place == KV_INDEX_NONE) return place;
    if (qr_namespaces_in_use(&kv->namespaces, place)) kv_namespace_drop(kv, place);
    for (int i = 0; i < 3; i++) kv_namespaces_make_room(kv, key_bytes, may_go[i]);
    return qr_namespaces_fits(&kv->namespaces, key_bytes) ? place : KV_INDEX_NONE;
}

quire_status quire_kv_namespace_open(quire_kv *kv, const void *key, size_t key_bytes, quire_namespace_id *id) {
    quire_namespace_id found = qr_namespaces_find(&kv->namespaces, key, key_bytes);
    *id = 0;
    if (found == KV_INDEX_NONE) {
        found = kv_namespace_place(kv, key_bytes);
        if (found == KV_INDEX_NONE || !qr_namespaces_add(&kv->namespaces, found, key, key_bytes)) return QUIRE_NO_MEMORY;
    }
    kv->namespaces.entries[found].open_count++;
    kv->namespaces.entries[found].forgotten = false;
    *id = found;
    return QUIRE_OK;
}

bool quire_kv_namespace_find(const quire_kv *kv, const void *key, size_t key_bytes, quire_namespace_id *id) {
    quire_namespace_id found = qr_namespaces_find(&kv->namespaces, key, key_bytes);
    *id = found == KV_INDEX_NONE ? 0 : found;
    return found != KV_INDEX_NONE;
}

void quire_kv_namespace_close(quire_kv *kv, quire_namespace_id id) {
    QR_ASSERT(qr_kv_namespace_valid(kv, id) && kv->namespaces.entries[id].open_count > 0);
    kv->namespaces.entries[id].open_count--;
    qr_kv_namespace_let_go(kv, id);
}
