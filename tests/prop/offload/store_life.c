/* store_life.c - how the model's store ends and begins again. See store_model.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/prop/offload/store_model.h"

static void on_wake(void *context) { (void)sem_post(&((store_model *)context)->woken); }

static const qr_fingerprint fingerprints[2] = {{11, 22, 33, 44}, {11, 22, 34, 44}};

void model_set_faults(store_model *m, bool on) {
    faults none = {.seed = m->options.seed};
    m->faulted = on && m->options.faults;
    faulty_files_set(m->faulty, on ? &m->faults : &none);
}

/* ---- the index ---- */

static bool is_node(const store_model *m, uint32_t index, const qr_record_info *info) {
    char key[48];
    if (index >= MODEL_NODES) return false;
    const model_node *node = &m->nodes[0][index];
    model_key(m, node->space, key);
    return info->depth == node->depth && memcmp(info->tokens, node->tokens, sizeof node->tokens) == 0 &&
           info->namespace_bytes == strlen(key) && memcmp(info->namespace_key, key, strlen(key)) == 0;
}

static void found_foreign(store_model *m, const qr_record_info *info, qr_record_id record) {
    uint32_t index = (uint32_t)info->tokens[1];
    MODEL_ASSERT(m, m->options.foreign && record == QR_RECORD_NONE);
    MODEL_ASSERT(m, is_node(m, index, info) && m->nodes[!m->model][index].on_disk);
    m->coverage.found_foreign++;
}

static uint32_t on_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner, bool foreign) {
    store_model *m = context;
    if (foreign) {
        found_foreign(m, info, record);
        return QR_OWNER_NONE;
    }
    uint32_t index = (uint32_t)info->tokens[1];
    MODEL_ASSERT(m, is_node(m, index, info));
    model_node *node = &m->nodes[m->model][index];
    MODEL_ASSERT(m, node->on_disk && !node->erased);
    if (node->parent == UINT32_MAX) MODEL_ASSERT(m, parent_owner == QR_OWNER_NONE && info->parent == QR_RECORD_NONE);
    else
        MODEL_ASSERT(m, parent_owner == MODEL_OWNER_BASE + node->parent &&
                            info->parent == m->nodes[m->model][node->parent].record);
    MODEL_ASSERT(m, record < m->record_max && m->records[record].state == RECORD_FREE);
    m->coverage.duplicates += node->found;
    if (node->found) return QR_OWNER_NONE;
    node->found = true;
    node->refused = qr_random_below(&m->random, 50) == 0;
    if (node->refused) return QR_OWNER_NONE;
    m->records[record] = (model_record){RECORD_LIVE, index, 0, false};
    node->state = NODE_LIVE;
    node->record = record;
    m->coverage.found++;
    return MODEL_OWNER_BASE + index;
}

static void check_found(store_model *m) {
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        model_node *node = &m->nodes[m->model][i];
        bool hangs = node->parent == UINT32_MAX || !m->nodes[m->model][node->parent].refused;
        if (!hangs) node->refused = true;
        if (node->must && hangs) MODEL_ASSERT(m, node->found);
        node->must = false;
    }
}

/* ---- beginning ---- */

void model_open(store_model *m) {
    quire_error error;
    m->config.fingerprint = fingerprints[m->model];
    model_set_faults(m, false);
    if (qr_disk_open(&m->config, &m->store, &error) != QUIRE_OK) model_fail(m, __FILE__, __LINE__, error.text);
    memset(m->records, 0, m->record_max * sizeof *m->records);
    m->held_count = m->gets_under_way = 0;
    m->seal_under_way = m->ended = false;
    for (uint32_t i = 0; i < MODEL_NODES; i++) m->nodes[m->model][i].found = m->nodes[m->model][i].refused = false;
    m->store->ops->index(m->store, on_found, m);
    check_found(m);
    model_check_cap(m);
    model_set_faults(m, true);
}

/* ---- ending ---- */

/* Goes on until the instant is over, or it does not come. */
static void run_to_the_end(store_model *m) {
    faulty_files_stop_after(m->faulty, 1 + qr_random_below(&m->random, 60));
    for (int calls = 0; calls < 400 && !faulty_files_stopped(m->faulty); calls++) model_random_call(m);
    faulty_files_stop_after(m->faulty, 0);
    m->ended = true;
}

/* False: the store is not at rest. While a disk fails it may never be, for erasures are tried again and puts that were dropped
 * still need room; and what it loses from now on nobody hears of. Mostly the disk fails only in the close itself, then. */
static bool come_to_rest(store_model *m, model_end end) {
    bool pauses = end == END_CLOSE && m->faulted, rests = !pauses || qr_random_below(&m->random, 4) > 0;
    model_release_held(m);
    if (pauses && rests) model_set_faults(m, false);
    model_drain(m);
    if (pauses && rests) model_set_faults(m, true);
    model_release_held(m);
    return rests;
}

/* What must be there when the store is opened again. */
static void set_must(store_model *m, model_end end, bool power, bool rested) {
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        model_node *node = &m->nodes[m->model][i];
        bool live = rested && node->state == NODE_LIVE && !m->options.corrupting;
        bool lasting = end == END_CLOSE ? !m->options.faults || node->sealed : node->sealed;
        node->must = live && (!power || lasting);
    }
}

static void forget_session(store_model *m) {
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        model_node *node = &m->nodes[m->model][i];
        node->state = NODE_ABSENT;
        node->record = QR_RECORD_NONE;
        node->sealing = node->erasing = m->nodes[!m->model][i].erasing = false;
        node->sealed = false;
    }
}

/* Another process of another model has the folder for a while: what is found again after it may be less. */
static void switch_model(store_model *m) {
    for (uint32_t i = 0; i < MODEL_NODES; i++) m->nodes[m->model][i].must = false;
    m->model = !m->model;
}

void model_restart(store_model *m, model_end end) {
    bool power = end == END_POWER || (end == END_CLOSE && m->options.power && qr_random_below(&m->random, 2));
    if (end != END_CLOSE) run_to_the_end(m);
    bool rested = come_to_rest(m, end);
    set_must(m, end, power, rested);
    m->store->ops->close(m->store);
    m->coverage.closes += end == END_CLOSE;
    m->coverage.kills += end == END_KILL;
    m->coverage.cuts += power;
    if (power) {
        faulty_files_stop_after(m->faulty, 0);
        faulty_files_power_cut(m->faulty, qr_random_u64(&m->random));
    }
    faulty_files_revive(m->faulty);
    model_check_cap(m);
    forget_session(m);
    if (m->options.foreign && qr_random_below(&m->random, 3) == 0) switch_model(m);
    model_open(m);
}

/* ---- the whole ---- */

static void config_init(store_model *m) {
    uint64_t payload = m->options.payload_pages * 4096ull;
    m->config = (qr_disk_config){.path = m->folder,
                                 .cap_bytes = m->options.cap_factor * qr_disk_cap_min_bytes(payload, MODEL_TOKENS),
                                 .free_floor_bytes = 4096,
                                 .payload_bytes = payload,
                                 .block_tokens = MODEL_TOKENS,
                                 .write_buffers = 6,
                                 .read_buffers = 6,
                                 .reader_count = 2,
                                 .retry_us_max = 2000,
                                 .files = faulty_files_table(m->faulty),
                                 .wake = on_wake,
                                 .wake_context = m};
}

void model_create(store_model *m, const model_options *options) {
    memset(m, 0, sizeof *m);
    m->options = *options;
    m->random = (qr_random){options->seed};
    (void)snprintf(m->folder, sizeof m->folder, "/dev/shm/quire-store-XXXXXX");
    MODEL_ASSERT(m, mkdtemp(m->folder) != NULL);
    MODEL_ASSERT(m, sem_init(&m->woken, 0, 0) == 0);
    MODEL_ASSERT(m, faults_parse(options->faults ? options->faults : "", &m->faults, NULL) == QUIRE_OK);
    m->faults.seed = options->seed;
    m->faulty = faulty_files_create(qr_files_system(), &m->faults, options->kills || options->power);
    MODEL_ASSERT(m, m->faulty != NULL);
    model_grow_forest(m);
    config_init(m);
    m->record_max = qr_disk_record_max(m->config.cap_bytes, m->config.payload_bytes, MODEL_TOKENS);
    m->records = calloc(m->record_max, sizeof *m->records);
    MODEL_ASSERT(m, m->records != NULL);
    model_open(m);
}

void model_destroy(store_model *m) {
    char command[160];
    model_settle(m);
    m->store->ops->close(m->store);
    model_check_cap(m);
    faulty_files_destroy(m->faulty);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", m->folder);
    MODEL_ASSERT(m, system(command) == 0);
    (void)sem_destroy(&m->woken);
    free(m->records);
}
