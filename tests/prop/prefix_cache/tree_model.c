#include "tests/prop/prefix_cache/tree_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists and searches ---- */

static int list_find(const model_list *list, int item) {
    int i = 0;
    while (i < list->count && list->items[i] != item) i++;
    return i;
}

static void list_insert(model_list *list, int place, int item) {
    memmove(list->items + place + 1, list->items + place, (size_t)(list->count - place) * sizeof *list->items);
    list->items[place] = item;
    list->count++;
}

static bool list_remove(model_list *list, int item) {
    int place = list_find(list, item);
    if (place == list->count) return false;
    list->count--;
    memmove(list->items + place, list->items + place + 1, (size_t)(list->count - place) * sizeof *list->items);
    return true;
}

static bool listed(const model *m, int node) { return list_find(&m->unsaved, node) < m->unsaved.count; }

static int find_child(const model *m, uint32_t root, int parent, const quire_token *label) {
    for (int i = 0; i < MODEL_NODES; i++) {
        const model_node *node = &m->nodes[i];
        if (node->state != QR_NODE_FREE && node->root == root && node->parent == parent &&
            memcmp(node->label, label, sizeof node->label) == 0)
            return i;
    }
    return MODEL_NONE;
}

static int find_id(const model *m, qr_node_id id) {
    for (int i = 0; i < MODEL_NODES; i++)
        if (m->nodes[i].state != QR_NODE_FREE && m->nodes[i].id == id) return i;
    return MODEL_NONE;
}

static bool has_child(const model *m, int parent, qr_node_state state) {
    for (int i = 0; i < MODEL_NODES; i++)
        if (m->nodes[i].state == state && m->nodes[i].parent == parent) return true;
    return false;
}

static uint32_t count_state(const model *m, qr_node_state state) {
    uint32_t count = 0;
    for (int i = 0; i < MODEL_NODES; i++) count += m->nodes[i].state == state;
    return count;
}

static uint32_t count_held(const model *m) { return count_state(m, QR_NODE_GHOST) - (uint32_t)m->ages.count; }

static bool is_in(const model *m, int node, int top) {
    while (node != MODEL_NONE && node != top) node = m->nodes[node].parent;
    return node == top;
}

static qr_node_id id_of(const model *m, uint32_t root, int node) { return node == MODEL_NONE ? root : m->nodes[node].id; }

static uint32_t below(model *m, uint32_t bound) { return qr_random_below(&m->random, bound); }

/* A random place for which `wanted` is true, or MODEL_NONE. */
static int pick(model *m, bool (*wanted)(const model *m, int node)) {
    int found[MODEL_NODES], count = 0;
    for (int i = 0; i < MODEL_NODES; i++)
        if (m->nodes[i].state != QR_NODE_FREE && wanted(m, i)) found[count++] = i;
    return count ? found[below(m, (uint32_t)count)] : MODEL_NONE;
}

static bool is_resident(const model *m, int node) { return m->nodes[node].state == QR_NODE_RESIDENT; }
static bool is_stored(const model *m, int node) { return m->nodes[node].state == QR_NODE_STORED; }
static bool is_ghost(const model *m, int node) { return m->nodes[node].state == QR_NODE_GHOST; }
static bool is_here(const model *m, int node) { return is_resident(m, node) || is_stored(m, node); }

static bool has_copies(const model *m, int node) {
    return m->nodes[node].host != QR_COPY_NONE || m->nodes[node].record != QR_COPY_NONE;
}

static void random_label(model *m, quire_token label[MODEL_WORDS]) {
    for (int i = 0; i < MODEL_WORDS; i++) label[i] = (quire_token)below(m, 2);
}

/* Walks down at random over nodes that are `wanted`; the last, or MODEL_NONE. */
static int walk(model *m, uint32_t root, bool (*wanted)(const model *m, int node)) {
    int at = MODEL_NONE;
    for (uint32_t depth = below(m, MODEL_DEPTH); depth > 0; depth--) {
        quire_token label[MODEL_WORDS];
        random_label(m, label);
        int child = find_child(m, root, at, label);
        if (child == MODEL_NONE || !wanted(m, child)) break;
        at = child;
    }
    return at;
}

/* ---- what changes states ---- */

static void touched(model *m, int node) { m->nodes[node].touched = ++m->clock; }

static void push_ghost(model *m, int node, qr_ghost_cause cause) {
    model_node *n = &m->nodes[node];
    n->state = QR_NODE_GHOST;
    n->cause = cause;
    n->host = n->record = QR_COPY_NONE;
    if (n->lock_count > 0) return;
    list_insert(&m->ages, list_find(&m->ages, n->parent), node); /* right before its parent, else as the last */
}

static int new_node(model *m, uint32_t root, int parent, const quire_token *label) {
    int place = 0;
    while (place < MODEL_NODES && m->nodes[place].state != QR_NODE_FREE) place++;
    if (place == MODEL_NODES) {
        place = m->ages.items[0];
        cr_assert_gt(m->ages.count, 0);
        for (int i = 0; i < MODEL_NODES; i++)
            cr_assert(m->nodes[i].state == QR_NODE_FREE || m->nodes[i].parent != place, "the oldest ghost has a child");
        list_remove(&m->ages, place);
        m->drops++;
    }
    m->nodes[place] = (model_node){.parent = parent,
                                   .root = root,
                                   .depth = parent == MODEL_NONE ? 1 : m->nodes[parent].depth + 1,
                                   .host = QR_COPY_NONE,
                                   .record = QR_COPY_NONE};
    memcpy(m->nodes[place].label, label, sizeof m->nodes[place].label);
    return place;
}

static void lock_up(model *m, int tip) {
    for (; tip != MODEL_NONE; tip = m->nodes[tip].parent) {
        qr_tree_lock(&m->tree, m->nodes[tip].id);
        m->nodes[tip].lock_count++;
    }
}

static void unlock_up(model *m, int tip) {
    for (; tip != MODEL_NONE; tip = m->nodes[tip].parent) {
        model_node *node = &m->nodes[tip];
        qr_tree_unlock(&m->tree, node->id);
        if (--node->lock_count > 0) continue;
        touched(m, tip);
        if (node->state == QR_NODE_GHOST) push_ghost(m, tip, node->cause);
    }
}

static int free_user(const model *m) {
    int user = 0;
    while (user < MODEL_USERS && m->users[user] != MODEL_NONE) user++;
    return user;
}

/* ---- create, compare ---- */

model *model_create(quire_kv_policy policy, uint64_t seed) {
    model *m = calloc(1, sizeof *m);
    qr_tree_config config = {.root_count = MODEL_ROOTS,
                             .block_count = MODEL_BLOCKS,
                             .ghost_count = MODEL_GHOSTS,
                             .stored_count = MODEL_STORED,
                             .host_count = MODEL_SLOTS,
                             .label_words = MODEL_WORDS,
                             .group_count = 1,
                             .policy = policy,
                             .seed = seed};
    qr_arena arena = {0};
    qr_tree_init(&m->tree, &config, &arena);
    m->memory = aligned_alloc(QR_ARENA_ALIGNMENT, arena.used_bytes);
    memset(m->memory, 0, arena.used_bytes);
    arena = (qr_arena){.base = m->memory, .size_bytes = arena.used_bytes};
    qr_tree_init(&m->tree, &config, &arena);
    m->random = (qr_random){seed};
    m->policy = policy;
    for (int i = 0; i < MODEL_USERS; i++) m->users[i] = MODEL_NONE;
    return m;
}

void model_destroy(model *m) {
    free(m->memory);
    free(m);
}

static void compare_node(const model *m, int place) {
    const model_node *n = &m->nodes[place];
    const qr_node *node = &m->tree.store.nodes[n->id];
    if (n->state == QR_NODE_FREE) return;
    if (qr_tree_find(&m->tree, id_of(m, n->root, n->parent), n->label) != n->id) cr_assert_fail("node %u not found", n->id);
    if (node->state != n->state) cr_assert_fail("node %u is in state %u, not %u", n->id, node->state, n->state);
    if (qr_tree_host(&m->tree, n->id) != n->host || qr_tree_record(&m->tree, n->id) != n->record)
        cr_assert_fail("node %u has other copies", n->id);
    if (node->lock_count != n->lock_count || node->depth != n->depth) cr_assert_fail("node %u: locks or depth", n->id);
    if (n->state == QR_NODE_GHOST && qr_tree_cause(&m->tree, n->id) != n->cause) cr_assert_fail("node %u: cause", n->id);
    if (qr_tree_is_unsaved(&m->tree, n->id) != listed(m, place)) cr_assert_fail("node %u: wrongly listed or not", n->id);
    if (m->policy == QUIRE_KV_LRU && node->touched != n->touched) cr_assert_fail("node %u: touched", n->id);
    if (qr_tree_seen_twice(&m->tree, n->id) != (n->touch_count > 1)) cr_assert_fail("node %u: seen twice", n->id);
}

static void compare_lists(const model *m) {
    qr_node_id id = m->tree.oldest_ghost;
    for (int i = 0; i < m->ages.count; i++, id = m->tree.store.nodes[id].next)
        if (id != m->nodes[m->ages.items[i]].id) cr_assert_fail("ghost %d in the order of dropping is %u", i, id);
    if (id != QR_NODE_NONE) cr_assert_fail("a ghost too many");
    id = qr_tree_first_unsaved(&m->tree);
    for (int i = 0; i < m->unsaved.count; i++, id = qr_tree_next_unsaved(&m->tree, id))
        if (id != m->nodes[m->unsaved.items[i]].id) cr_assert_fail("unsaved node %d is %u", i, id);
    if (id != QR_NODE_NONE) cr_assert_fail("an unsaved node too many");
}

void model_compare(model *m) {
    quire_error error = {0};
    if (qr_tree_check(&m->tree, &error) != QUIRE_OK) cr_assert_fail("%s", error.text);
    for (int i = 0; i < MODEL_NODES; i++) compare_node(m, i);
    compare_lists(m);
    if (m->tree.resident_count != count_state(m, QR_NODE_RESIDENT) || m->tree.stored_count != count_state(m, QR_NODE_STORED) ||
        m->tree.ghost_count != count_state(m, QR_NODE_GHOST) || m->tree.held_count != count_held(m))
        cr_assert_fail("other counts");
    if (count_held(m) > m->held_max) m->held_max = count_held(m);
}

/* ---- using ---- */

static void touch(model *m, int node) {
    qr_tree_touch(&m->tree, m->nodes[node].id);
    m->nodes[node].touch_count++;
    touched(m, node);
}

static bool room_for_stored(const model *m) { return count_state(m, QR_NODE_STORED) + count_held(m) < MODEL_STORED; }

void model_insert(model *m) {
    uint32_t root = below(m, MODEL_ROOTS);
    int user = free_user(m), parent = walk(m, root, is_resident);
    quire_token label[MODEL_WORDS];
    random_label(m, label);
    int place = find_child(m, root, parent, label);
    const quire_block_id block = below(m, 1000);
    if (user == MODEL_USERS || (place != MODEL_NONE && is_resident(m, place))) return;
    lock_up(m, parent);
    qr_node_id id = qr_tree_insert(&m->tree, id_of(m, root, parent), label, &block);
    cr_assert_eq(id == QR_NODE_NONE, count_state(m, QR_NODE_RESIDENT) == MODEL_BLOCKS);
    if (id == QR_NODE_NONE) {
        unlock_up(m, parent);
        return;
    }
    if (place == MODEL_NONE) place = new_node(m, root, parent, label);
    else cr_assert_eq(m->nodes[place].id, id);
    if (m->nodes[place].state == QR_NODE_GHOST) list_remove(&m->ages, place);
    m->nodes[place].id = id;
    m->nodes[place].state = QR_NODE_RESIDENT;
    m->nodes[place].lock_count++;
    m->nodes[place].touch_count++;
    touched(m, place);
    if (m->nodes[place].record == QR_COPY_NONE) list_insert(&m->unsaved, m->unsaved.count, place);
    cr_assert_eq(*qr_tree_blocks(&m->tree, id), block);
    m->users[user] = place;
}

void model_lock_path(model *m) {
    int user = free_user(m), tip = pick(m, is_here);
    if (user == MODEL_USERS || tip == MODEL_NONE) return;
    lock_up(m, tip);
    m->users[user] = tip;
}

void model_unlock_path(model *m) {
    uint32_t user = below(m, MODEL_USERS);
    if (m->users[user] == MODEL_NONE) return;
    unlock_up(m, m->users[user]);
    m->users[user] = MODEL_NONE;
}

void model_touch(model *m) {
    int tip = m->users[below(m, MODEL_USERS)];
    if (tip == MODEL_NONE) return;
    for (int node = tip; node != MODEL_NONE; node = m->nodes[node].parent) touch(m, node);
    qr_tree_mark_end(&m->tree, m->nodes[tip].id);
}

void model_pin(model *m) {
    int node = pick(m, is_resident);
    if (node != MODEL_NONE) qr_tree_pin(&m->tree, m->nodes[node].id, below(m, 3), 1 + below(m, 2000));
}

void model_set_time(model *m) { qr_tree_set_time(&m->tree, m->now_us += below(m, 100)); }

/* ---- looking ---- */

/* Follows nodes in `state` by these labels; how many. */
static uint32_t model_follow(const model *m, uint32_t root, int *at, const quire_token *words, uint32_t blocks,
                             qr_node_state state) {
    uint32_t count = 0;
    for (; count < blocks; count++) {
        int child = find_child(m, root, *at, words + count * MODEL_WORDS);
        if (child == MODEL_NONE || m->nodes[child].state != state) break;
        *at = child;
    }
    return count;
}

void model_look(model *m) {
    quire_token words[MODEL_DEPTH * MODEL_WORDS];
    uint32_t known[MODEL_ROOTS];
    qr_node_id last;
    for (int i = 0; i < MODEL_DEPTH; i++) random_label(m, words + (size_t)i * MODEL_WORDS);
    for (uint32_t root = 0; root < MODEL_ROOTS; root++) {
        qr_tree_match match;
        int at = MODEL_NONE;
        qr_tree_find_prefix(&m->tree, root, words, MODEL_DEPTH * MODEL_WORDS, &match);
        uint32_t resident = model_follow(m, root, &at, words, MODEL_DEPTH, QR_NODE_RESIDENT);
        cr_assert(match.block_count == resident && match.node == id_of(m, root, at));
        const quire_token *rest = words + (size_t)resident * MODEL_WORDS;
        uint32_t stored = model_follow(m, root, &at, rest, MODEL_DEPTH - resident, QR_NODE_STORED);
        cr_assert_eq(qr_tree_find_stored(&m->tree, match.node, rest, MODEL_DEPTH - resident, &last), stored);
        cr_assert_eq(last, id_of(m, root, at));
        known[root] = resident + stored;
    }
    for (uint32_t blocks = 1; blocks <= MODEL_DEPTH; blocks++)
        cr_assert_eq(qr_tree_found_elsewhere(&m->tree, 0, words, blocks), known[1] >= blocks);
}

/* ---- down the tiers ---- */

static bool is_leaf(const model *m, int node) {
    return is_resident(m, node) && m->nodes[node].lock_count == 0 && !has_child(m, node, QR_NODE_RESIDENT);
}

/* The tree's victim is a leaf; with LRU and without pins the one used longest ago. */
static int take_victim(model *m) {
    bool pins = m->tree.pin_count > 0;
    qr_node_id id = qr_tree_victim(&m->tree);
    if (id == QR_NODE_NONE) cr_assert_eq(pick(m, is_leaf), MODEL_NONE);
    if (id == QR_NODE_NONE) return MODEL_NONE;
    int victim = find_id(m, id);
    cr_assert(is_leaf(m, victim));
    for (int i = 0; i < MODEL_NODES && m->policy == QUIRE_KV_LRU && !pins; i++)
        if (is_leaf(m, i)) cr_assert_leq(m->nodes[victim].touched, m->nodes[i].touched);
    return victim;
}

static bool slot_used(const model *m, uint32_t slot) {
    for (int i = 0; i < MODEL_NODES; i++)
        if (m->nodes[i].state != QR_NODE_FREE && m->nodes[i].host == slot) return true;
    return false;
}

static uint32_t free_slot(const model *m) {
    for (uint32_t slot = 0; slot < MODEL_SLOTS; slot++)
        if (!slot_used(m, slot)) return slot;
    return QR_COPY_NONE;
}

static void set_host(model *m, int node, uint32_t slot) {
    qr_tree_set_host(&m->tree, m->nodes[node].id, slot);
    m->nodes[node].host = slot;
}

static void set_record(model *m, int node, uint32_t record) {
    qr_tree_set_record(&m->tree, m->nodes[node].id, record);
    m->nodes[node].record = record;
    if (record != QR_COPY_NONE) list_remove(&m->unsaved, node);
}

void model_demote(model *m) {
    int victim = take_victim(m);
    uint32_t slot = free_slot(m);
    if (victim == MODEL_NONE) return;
    if (m->nodes[victim].host == QR_COPY_NONE && slot != QR_COPY_NONE && below(m, 2)) set_host(m, victim, slot);
    if (!has_copies(m, victim) && below(m, 4)) set_record(m, victim, m->next_record++);
    bool room = room_for_stored(m);
    cr_assert_eq(qr_tree_demote(&m->tree, m->nodes[victim].id), room);
    if (!room) return;
    list_remove(&m->unsaved, victim);
    m->nodes[victim].state = QR_NODE_STORED;
    if (!has_copies(m, victim)) set_record(m, victim, m->next_record++); /* it was about to have one */
}

void model_set_host(model *m) {
    int node = pick(m, is_here);
    if (node == MODEL_NONE) return;
    uint32_t slot = below(m, 2) ? free_slot(m) : QR_COPY_NONE;
    if (slot == QR_COPY_NONE && is_stored(m, node) && m->nodes[node].record == QR_COPY_NONE) return;
    set_host(m, node, slot);
}

void model_set_record(model *m) {
    int node = pick(m, is_here);
    if (node == MODEL_NONE) return;
    uint32_t record = below(m, 3) ? m->next_record++ : QR_COPY_NONE;
    if (record == QR_COPY_NONE && is_stored(m, node) && m->nodes[node].host == QR_COPY_NONE) return;
    set_record(m, node, record);
}

void model_insert_stored(model *m) {
    uint32_t root = below(m, MODEL_ROOTS);
    int parent = walk(m, root, is_here);
    quire_token label[MODEL_WORDS];
    random_label(m, label);
    int place = find_child(m, root, parent, label);
    bool held = place != MODEL_NONE && is_ghost(m, place) && m->nodes[place].lock_count > 0;
    bool may = (place == MODEL_NONE || is_ghost(m, place)) && (held || room_for_stored(m));
    qr_node_id id = qr_tree_insert_stored(&m->tree, id_of(m, root, parent), label, m->next_record);
    cr_assert_eq(id != QR_NODE_NONE, may);
    if (!may) return;
    if (place == MODEL_NONE) place = new_node(m, root, parent, label);
    else list_remove(&m->ages, place);
    m->nodes[place].id = id;
    m->nodes[place].state = QR_NODE_STORED;
    m->nodes[place].record = m->next_record++;
}

void model_insert_ghost(model *m) {
    quire_token labels[MODEL_DEPTH * MODEL_WORDS];
    uint32_t root = below(m, MODEL_ROOTS), depth = 1 + below(m, MODEL_DEPTH);
    qr_ghost_cause cause = (qr_ghost_cause)below(m, 3);
    for (uint32_t i = 0; i < depth; i++) random_label(m, labels + (size_t)i * MODEL_WORDS);
    qr_tree_insert_ghost(&m->tree, root, labels, depth, cause);
    int at = MODEL_NONE;
    for (uint32_t i = 0; i < depth; i++) {
        const quire_token *label = labels + (size_t)i * MODEL_WORDS;
        int child = find_child(m, root, at, label);
        if (child == MODEL_NONE) {
            if (count_state(m, QR_NODE_FREE) == 0) return;
            child = new_node(m, root, at, label);
            m->nodes[child].id = qr_tree_find(&m->tree, id_of(m, root, at), label);
            push_ghost(m, child, cause);
        }
        at = child;
    }
}

/* ---- losing ---- */

typedef struct model_told {
    model *m;
    int top; /* MODEL_NONE: a namespace is forgotten */
    bool records_only;
    qr_ghost_cause cause;
    uint32_t count, block_count;
} model_told;

/* This stored node goes when `top` loses what it has. */
static bool goes(const model *m, int node, int top, bool records_only) {
    if (!is_stored(m, node)) return false;
    if (!records_only || m->nodes[node].host == QR_COPY_NONE) return true;
    return node != top && goes(m, m->nodes[node].parent, top, true);
}

static uint32_t lost_host(const model *m, int node, int top, bool records_only) {
    bool keeps = records_only && !goes(m, node, top, true);
    return keeps ? QR_COPY_NONE : m->nodes[node].host;
}

static bool must_be_told(const model *m, int node, int top, bool records_only) {
    return goes(m, node, top, records_only) || lost_host(m, node, top, records_only) != QR_COPY_NONE ||
           m->nodes[node].record != QR_COPY_NONE;
}

/* Nothing that must be told of is left below a node when it is told of; what it loses is done to the model at once. A resident
 * or kept node is told of once because it has nothing left then. */
static void told_loss(void *owner, qr_node_id id, uint32_t host, uint32_t record) {
    model_told *told = owner;
    model *m = told->m;
    int node = find_id(m, id);
    cr_assert(node != MODEL_NONE && is_here(m, node) && is_in(m, node, told->top));
    cr_assert(must_be_told(m, node, told->top, told->records_only));
    for (int i = 0; i < MODEL_NODES; i++)
        if (i != node && m->nodes[i].state != QR_NODE_FREE && is_here(m, i) && is_in(m, i, node))
            cr_assert(!must_be_told(m, i, told->top, told->records_only), "told of a parent first");
    bool ends = goes(m, node, told->top, told->records_only);
    cr_assert_eq(host, lost_host(m, node, told->top, told->records_only));
    cr_assert_eq(record, m->nodes[node].record);
    m->nodes[node].record = QR_COPY_NONE;
    if (host != QR_COPY_NONE) m->nodes[node].host = QR_COPY_NONE;
    if (ends) push_ghost(m, node, told->cause);
    told->count++;
}

/* A copy of the model, for what must be told is decided before anything is lost. */
static uint32_t count_must(const model *m, int top, bool records_only) {
    uint32_t count = 0;
    for (int i = 0; i < MODEL_NODES; i++)
        count +=
            m->nodes[i].state != QR_NODE_FREE && is_here(m, i) && is_in(m, i, top) && must_be_told(m, i, top, records_only);
    return count;
}

static void lose(model *m, int top, qr_ghost_cause cause, bool records_only) {
    model_told told = {.m = m, .top = top, .records_only = records_only, .cause = cause};
    uint32_t must = count_must(m, top, records_only);
    if (records_only) qr_tree_lose_record(&m->tree, m->nodes[top].id, cause, told_loss, &told);
    else qr_tree_lose(&m->tree, m->nodes[top].id, cause, told_loss, &told);
    cr_assert_eq(told.count, must);
    m->losses += told.count;
}

void model_lose(model *m) {
    int top = pick(m, is_here);
    if (top != MODEL_NONE) lose(m, top, (qr_ghost_cause)below(m, 3), false);
}

void model_lose_record(model *m) {
    int top = pick(m, is_here);
    if (top != MODEL_NONE) lose(m, top, (qr_ghost_cause)below(m, 3), true);
}

void model_evict(model *m) {
    int victim = take_victim(m);
    if (victim == MODEL_NONE) return;
    lose(m, victim, QR_GHOST_EVICTED, false);
    qr_tree_evict(&m->tree, m->nodes[victim].id);
    list_remove(&m->unsaved, victim);
    push_ghost(m, victim, QR_GHOST_EVICTED);
}

static bool is_host_leaf(const model *m, int node) {
    const model_node *n = &m->nodes[node];
    return is_stored(m, node) && n->lock_count == 0 && n->host != QR_COPY_NONE &&
           (n->record != QR_COPY_NONE || !has_child(m, node, QR_NODE_STORED));
}

void model_host_victim(model *m) {
    qr_node_id id = qr_tree_host_victim(&m->tree);
    if (id == QR_NODE_NONE) cr_assert_eq(pick(m, is_host_leaf), MODEL_NONE);
    if (id == QR_NODE_NONE) return;
    int victim = find_id(m, id);
    cr_assert(is_host_leaf(m, victim));
    for (int i = 0; i < MODEL_NODES && m->policy == QUIRE_KV_LRU; i++)
        if (is_host_leaf(m, i)) cr_assert_leq(m->nodes[victim].touched, m->nodes[i].touched);
    if (m->nodes[victim].record != QR_COPY_NONE) set_host(m, victim, QR_COPY_NONE);
    else lose(m, victim, QR_GHOST_EVICTED, false);
}

/* ---- the unsaved ---- */

void model_list_unsaved(model *m) {
    int node = pick(m, is_resident);
    if (node == MODEL_NONE) return;
    if (below(m, 2)) {
        qr_tree_unlist_unsaved(&m->tree, m->nodes[node].id);
        list_remove(&m->unsaved, node);
    } else if (m->nodes[node].record == QR_COPY_NONE) {
        qr_tree_list_unsaved(&m->tree, m->nodes[node].id);
        if (!listed(m, node)) list_insert(&m->unsaved, m->unsaved.count, node);
    }
}

static bool is_hotter(const model *m, int a, int b) {
    return qr_policy_before(&m->tree.policy, &m->tree.store.nodes[m->nodes[b].id], &m->tree.store.nodes[m->nodes[a].id]);
}

/* The listed parents of a node that are not in `to` yet, the topmost first, and the node. */
static void place_with_parents(const model *m, int node, model_list *to) {
    int parent = m->nodes[node].parent;
    if (list_find(to, node) < to->count) return;
    if (parent != MODEL_NONE && listed(m, parent)) place_with_parents(m, parent, to);
    list_insert(to, to->count, node);
}

void model_sort_unsaved(model *m) {
    model_list sorted = {.count = 0}, placed = {.count = 0};
    for (int i = 0; i < m->unsaved.count; i++) {
        int place = sorted.count;
        while (place > 0 && is_hotter(m, m->unsaved.items[i], sorted.items[place - 1])) place--;
        list_insert(&sorted, place, m->unsaved.items[i]);
    }
    for (int i = 0; i < sorted.count; i++) place_with_parents(m, sorted.items[i], &placed);
    qr_tree_sort_unsaved(&m->tree);
    m->unsaved = placed;
}

/* ---- forgetting ---- */

static void told_blocks(void *owner, const quire_block_id *blocks) { ((model_told *)owner)->block_count++; }

static void told_copies(void *owner, qr_node_id id, uint32_t host, uint32_t record) {
    model_told *told = owner;
    int node = find_id(told->m, id);
    cr_assert(node != MODEL_NONE && told->m->nodes[node].host == host && told->m->nodes[node].record == record);
    told->count++;
}

void model_forget(model *m) {
    model_told told = {.m = m};
    uint32_t root = below(m, MODEL_ROOTS), resident = 0, copies = 0;
    for (int i = 0; i < MODEL_USERS; i++)
        if (m->users[i] != MODEL_NONE && m->nodes[m->users[i]].root == root) m->users[i] = MODEL_NONE;
    qr_tree_forget(&m->tree, root, told_blocks, told_copies, &told);
    for (int i = 0; i < MODEL_NODES; i++) {
        if (m->nodes[i].state == QR_NODE_FREE || m->nodes[i].root != root) continue;
        resident += is_resident(m, i);
        copies += is_stored(m, i) || (is_resident(m, i) && has_copies(m, i));
        list_remove(&m->ages, i);
        list_remove(&m->unsaved, i);
        m->nodes[i].state = QR_NODE_FREE;
    }
    cr_assert(told.block_count == resident && told.count == copies);
}
