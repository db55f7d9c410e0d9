/* store_model.c - operations, and what the store says about them. See store_model.h. */
#include "tests/prop/offload/store_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "offload/segment_file.h"

_Noreturn void model_fail(const store_model *m, const char *file, int line, const char *what) {
    (void)fprintf(stderr, "%s:%d: %s\nseed %llu, step %llu, folder %s\n", file, line, what, (unsigned long long)m->options.seed,
                  (unsigned long long)m->steps, m->folder);
    abort();
}

static model_node *nodes_of(store_model *m) { return m->nodes[m->model]; }

static model_record *record_of(store_model *m, qr_record_id id) {
    MODEL_ASSERT(m, id < m->record_max);
    return &m->records[id];
}

/* The instant of a kill is over, whether or not the model has noticed: calls fail, and nothing that they say counts. */
static bool is_over(store_model *m) { return m->ended || faulty_files_stopped(m->faulty); }

/* ---- a node goes ---- */

static void node_gone(store_model *m, model_node *node, bool freed) {
    record_of(m, node->record)->state = freed ? RECORD_FREE : RECORD_GONE;
    node->state = NODE_ABSENT;
    node->record = QR_RECORD_NONE;
    node->sealing = node->sealed = false;
}

static void drop_one(store_model *m, uint32_t index, bool erase) {
    model_node *node = &nodes_of(m)[index];
    if (node->state == NODE_ABSENT) return;
    m->store->ops->drop(m->store, node->record, erase);
    node_gone(m, node, false);
    node->erasing = erase;
    node->erased = false;
    m->coverage.dropped++;
}

/* What hangs on these nodes too, children first or parents first. Parents have the lower numbers. */
static void drop_marked(store_model *m, bool mark[MODEL_NODES], bool erase) {
    bool backwards = qr_random_below(&m->random, 2);
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        uint32_t parent = nodes_of(m)[i].parent;
        if (parent != UINT32_MAX && mark[parent]) mark[i] = true;
    }
    for (uint32_t k = 0; k < MODEL_NODES; k++) {
        uint32_t i = backwards ? MODEL_NODES - 1 - k : k;
        if (mark[i]) drop_one(m, i, erase);
    }
}

static void drop_tree(store_model *m, uint32_t index, bool erase) {
    bool mark[MODEL_NODES] = {false};
    mark[index] = true;
    drop_marked(m, mark, erase);
}

/* ---- events ---- */

static void on_put_done(store_model *m, const qr_store_event *event) {
    model_record *record = record_of(m, event->record);
    MODEL_ASSERT(m, record->state == RECORD_PUTTING);
    uint32_t index = record->node;
    model_node *node = &nodes_of(m)[index];
    MODEL_ASSERT(m, event->owner == MODEL_OWNER_BASE + index && node->state == NODE_PUTTING);
    if (event->status == QUIRE_OK) {
        record->state = RECORD_LIVE;
        node->state = NODE_LIVE;
        m->coverage.puts++;
        return;
    }
    /* NOT_FOUND: the parent's space was needed before this one was written. */
    MODEL_ASSERT(m, event->status == QUIRE_NOT_FOUND || m->options.faults || is_over(m));
    m->coverage.put_orphaned += event->status == QUIRE_NOT_FOUND;
    m->coverage.put_failed += event->status != QUIRE_NOT_FOUND;
    node_gone(m, node, true);
    drop_tree(m, index, false);
}

static void on_get_done(store_model *m, const qr_store_event *event) {
    model_record *record = record_of(m, event->record);
    MODEL_ASSERT(m, record->gets > 0 && m->gets_under_way > 0);
    MODEL_ASSERT(m, event->tag == ((uint64_t)record->node << 32 | event->record));
    MODEL_ASSERT(m, (event->status == QUIRE_OK) == (event->payload != NULL));
    record->gets--;
    m->gets_under_way--;
    if (event->status == QUIRE_OK) {
        m->coverage.gets++;
        model_compare(m, record->node, event->payload);
        if (m->held_count == MODEL_HELD) m->store->ops->release(m->store, m->held[--m->held_count]);
        m->held[m->held_count++] = event->payload;
        return;
    }
    if (event->status == QUIRE_NOT_FOUND) {
        record->unfound = true; /* dropped, or LOST will say so */
        m->coverage.get_gone++;
        return;
    }
    if (event->status == QUIRE_BUSY) { /* its file could not be opened; it stays */
        MODEL_ASSERT(m, m->options.faults || is_over(m));
        m->coverage.get_failed++;
        return;
    }
    MODEL_ASSERT(m, event->status == QUIRE_IO || event->status == QUIRE_DAMAGED);
    MODEL_ASSERT(m, record->state != RECORD_LIVE || m->options.faults || is_over(m));
    m->coverage.get_failed++;
    if (record->state == RECORD_LIVE && !is_over(m)) drop_tree(m, record->node, false);
}

static void on_lost(store_model *m, const qr_store_event *event) {
    model_record *record = record_of(m, event->record);
    MODEL_ASSERT(m, record->state == RECORD_LIVE && event->owner == MODEL_OWNER_BASE + record->node);
    m->coverage.lost++;
    node_gone(m, &nodes_of(m)[record->node], false);
    drop_tree(m, record->node, false);
}

static void on_sealed(store_model *m, const qr_store_event *event) {
    MODEL_ASSERT(m, m->seal_under_way);
    MODEL_ASSERT(m, event->status == QUIRE_OK || m->options.faults || is_over(m));
    m->seal_under_way = false;
    m->coverage.seals += event->status == QUIRE_OK;
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        model_node *node = &nodes_of(m)[i];
        if (node->sealing && event->status == QUIRE_OK) node->sealed = true;
        node->sealing = false;
    }
}

/* Where it happened can be said, and what. Without faults a process that was killed has left what it had begun, and a power
 * cut files that are too short. */
static void on_trouble(store_model *m, const qr_store_event *event) {
    const qr_store_trouble *trouble = event->trouble;
    uint64_t id;
    MODEL_ASSERT(m, trouble->what[0] && trouble->wall_ms);
    MODEL_ASSERT(m, trouble->kind == QR_STORE_TROUBLE_ERROR || qr_segment_name_parse(trouble->file, &id));
    MODEL_ASSERT(m, trouble->kind == QR_STORE_TROUBLE_DAMAGED || m->options.faults || m->options.power || is_over(m));
    MODEL_ASSERT(m, event->tag == 0 || m->options.faults || is_over(m));
    m->coverage.troubles++;
}

bool model_take_event(store_model *m) {
    qr_store_event event;
    m->now_us += 1000;
    if (!m->store->ops->poll(m->store, m->now_us, &event)) return false;
    switch (event.kind) {
    case QR_STORE_PUT_DONE: on_put_done(m, &event); break;
    case QR_STORE_GET_DONE: on_get_done(m, &event); break;
    case QR_STORE_LOST: on_lost(m, &event); break;
    case QR_STORE_SEALED: on_sealed(m, &event); break;
    case QR_STORE_TROUBLE: on_trouble(m, &event); break;
    }
    return true;
}

static uint32_t count_in(store_model *m, node_state state) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_NODES; i++) count += nodes_of(m)[i].state == state;
    return count;
}

static void wait_a_little(store_model *m, long ns) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ns;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    (void)sem_timedwait(&m->woken, &until);
}

/* ---- calls ---- */

/* An absent node whose parent is there, or UINT32_MAX. */
static uint32_t choose_absent(store_model *m) {
    for (int tries = 0; tries < 24; tries++) {
        uint32_t i = qr_random_below(&m->random, MODEL_NODES), parent = nodes_of(m)[i].parent;
        if (nodes_of(m)[i].state == NODE_ABSENT && (parent == UINT32_MAX || nodes_of(m)[parent].state != NODE_ABSENT)) return i;
    }
    return UINT32_MAX;
}

static uint32_t choose_in(store_model *m, node_state state) {
    uint32_t first = qr_random_below(&m->random, MODEL_NODES);
    for (uint32_t k = 0; k < MODEL_NODES; k++)
        if (nodes_of(m)[(first + k) % MODEL_NODES].state == state) return (first + k) % MODEL_NODES;
    return UINT32_MAX;
}

static void call_put(store_model *m) {
    uint32_t index = choose_absent(m);
    if (index == UINT32_MAX) return;
    model_node *node = &nodes_of(m)[index];
    char key[48];
    model_key(m, node->space, key);
    qr_record_info info = {key, strlen(key), QR_RECORD_NONE, node->depth, node->tokens};
    if (node->parent != UINT32_MAX) info.parent = nodes_of(m)[node->parent].record;
    qr_record_id id = QR_RECORD_NONE;
    void *payload = NULL;
    qr_store_refusal refusal = m->store->ops->put_begin(m->store, &info, MODEL_OWNER_BASE + index, &id, &payload);
    m->coverage.refused[refusal]++;
    MODEL_ASSERT(m, refusal != QR_STORE_KEY && refusal != QR_STORE_BUDGET && refusal != QR_STORE_READ_ONLY);
    if (refusal == QR_STORE_BUSY) wait_a_little(m, 300000);
    if (refusal != QR_STORE_NONE) return;
    model_record *record = record_of(m, id);
    MODEL_ASSERT(m, record->state == RECORD_FREE || (record->state == RECORD_GONE && record->gets == 0));
    MODEL_ASSERT(m, payload && (uintptr_t)payload % 4096 == 0);
    model_fill(m, index, payload);
    if (qr_random_below(&m->random, 20) == 0) {
        m->store->ops->put_abort(m->store, id);
        return;
    }
    *record = (model_record){RECORD_PUTTING, index, 0, false};
    node->state = NODE_PUTTING;
    node->record = id;
    node->on_disk = true;
    node->erased = node->erasing = node->sealed = node->sealing = false;
    m->store->ops->put_submit(m->store, id);
}

/* A run of a chain, deepest first, as a load does. */
static void call_get(store_model *m) {
    uint32_t index = choose_in(m, NODE_LIVE);
    for (uint32_t count = 1 + qr_random_below(&m->random, 4); count && index != UINT32_MAX; count--) {
        model_node *node = &nodes_of(m)[index];
        if (node->state != NODE_LIVE) break;
        if (!m->store->ops->get(m->store, node->record, (uint64_t)index << 32 | node->record)) {
            wait_a_little(m, 300000);
            break;
        }
        record_of(m, node->record)->gets++;
        m->gets_under_way++;
        index = node->parent;
    }
    if (qr_random_below(&m->random, 8)) m->store->ops->kick(m->store);
}

static void call_drop(store_model *m, bool erase) {
    uint32_t index = choose_in(m, qr_random_below(&m->random, 4) ? NODE_LIVE : NODE_PUTTING);
    if (index != UINT32_MAX) drop_tree(m, index, erase);
}

/* All of a namespace, for real: also what was dropped from it before, and what the other model has. */
static void call_forget(store_model *m) {
    uint32_t space = qr_random_below(&m->random, MODEL_SPACES);
    bool mark[MODEL_NODES] = {false};
    char key[48];
    model_key(m, space, key);
    for (uint32_t i = 0; i < MODEL_NODES; i++) mark[i] = nodes_of(m)[i].space == space;
    drop_marked(m, mark, true);
    m->store->ops->erase_foreign(m->store, key, strlen(key));
    for (uint32_t i = 0; i < MODEL_NODES; i++)
        if (mark[i]) m->nodes[0][i].erasing = m->nodes[1][i].erasing = true;
}

static void call_touch(store_model *m) {
    uint32_t index = choose_in(m, NODE_LIVE);
    if (index != UINT32_MAX) m->store->ops->touch(m->store, nodes_of(m)[index].record);
}

static void call_seal(store_model *m) {
    if (m->seal_under_way) return;
    m->seal_under_way = true;
    for (uint32_t i = 0; i < MODEL_NODES; i++) nodes_of(m)[i].sealing = nodes_of(m)[i].state == NODE_LIVE;
    m->store->ops->seal(m->store);
}

/* What was being erased is erased when the store says that nothing is left. */
static void note_erased(store_model *m) {
    if (m->store->ops->erasing(m->store) > 0 || is_over(m)) return;
    for (uint32_t i = 0; i < 2 * MODEL_NODES; i++) {
        model_node *node = &m->nodes[i / MODEL_NODES][i % MODEL_NODES];
        if (!node->erasing) continue;
        m->coverage.erased += node->on_disk;
        node->erasing = node->on_disk = false;
        node->erased = true;
    }
}

static void take_events(store_model *m) {
    for (uint32_t count = 1 + qr_random_below(&m->random, 8); count && model_take_event(m); count--) {}
}

void model_random_call(store_model *m) {
    uint32_t roll = qr_random_below(&m->random, 1000);
    if (roll < 420) call_put(m);
    else if (roll < 660) call_get(m);
    else if (roll < 800) take_events(m);
    else if (roll < 870) model_release_held(m);
    else if (roll < 940) call_touch(m);
    else if (roll < 955) m->store->ops->kick(m->store);
    else if (roll < 985) call_drop(m, m->options.erases && qr_random_below(&m->random, 2));
    else if (roll < 998) call_seal(m);
    else if (m->options.erases) call_forget(m);
    note_erased(m);
}

void model_release_held(store_model *m) {
    while (m->held_count) m->store->ops->release(m->store, m->held[--m->held_count]);
}

/* ---- quiet ---- */

/* All that was asked for is over. Erasing is waited for only where nothing can prevent it. */
void model_drain(store_model *m) {
    uint64_t begin_us = qr_clock_us();
    m->store->ops->kick(m->store);
    for (;;) {
        while (model_take_event(m)) model_release_held(m);
        if (!m->store->ops->busy(m->store)) break;
        bool asked = m->gets_under_way || m->seal_under_way || count_in(m, NODE_PUTTING);
        if (!asked && (m->ended || m->faulted)) break;
        wait_a_little(m, 2000000);
        m->now_us += 200000;
        MODEL_ASSERT(m, qr_clock_us() - begin_us < 20000000 && "the store never comes to rest");
    }
    while (model_take_event(m)) model_release_held(m);
    note_erased(m);
}

static void check_store(store_model *m) {
    quire_error error;
    if (m->store->ops->check(m->store, &error) != QUIRE_OK) model_fail(m, __FILE__, __LINE__, error.text);
}

void model_settle(store_model *m) {
    qr_store_stats stats;
    model_set_faults(m, false);
    model_release_held(m);
    model_drain(m);
    check_store(m);
    m->store->ops->stats(m->store, &stats);
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        const model_node *node = &nodes_of(m)[i];
        MODEL_ASSERT(m, node->state == NODE_ABSENT || !record_of(m, node->record)->unfound);
    }
    MODEL_ASSERT(m, count_in(m, NODE_PUTTING) == 0 && m->gets_under_way == 0 && !m->seal_under_way);
    MODEL_ASSERT(m, stats.record_count == count_in(m, NODE_LIVE));
    MODEL_ASSERT(m, stats.reads_queued == 0 && stats.writes_queued == 0 && stats.used_bytes <= stats.cap_bytes);
    model_check_cap(m);
    if (m->options.erases && m->store->ops->erasing(m->store) == 0) model_check_erased(m);
    model_set_faults(m, true);
}

/* ---- steps ---- */

static void random_end(store_model *m) {
    model_end ends[3] = {END_CLOSE};
    uint32_t count = 1;
    if (m->options.kills) ends[count++] = END_KILL;
    if (m->options.power) ends[count++] = END_POWER;
    model_restart(m, ends[qr_random_below(&m->random, count)]);
}

void model_step(store_model *m) {
    uint32_t roll = qr_random_below(&m->random, 1000);
    m->steps++;
    if (roll < (m->options.faults ? 3u : 1u)) random_end(m);
    else if (roll < 5) model_settle(m);
    else model_random_call(m);
    if (m->options.calm) model_drain(m);
    check_store(m);
    if (m->steps % 16 == 0) model_check_cap(m);
}
