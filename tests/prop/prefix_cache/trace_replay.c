#include "tests/prop/prefix_cache/trace_replay.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefix_cache/tree.h"

/* ---- traces ---- */

static void *grow(void *array, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return array;
    *capacity = *capacity ? *capacity * 2 : 1024;
    return realloc(array, *capacity * size);
}

void trace_add_request(trace *t, uint64_t time_us) {
    t->requests = grow(t->requests, t->request_count, &t->request_capacity, sizeof *t->requests);
    t->requests[t->request_count++] = (trace_request){.time_us = time_us, .first = t->key_count};
}

void trace_add_key(trace *t, uint64_t key) {
    t->keys = grow(t->keys, t->key_count, &t->key_capacity, sizeof *t->keys);
    t->keys[t->key_count++] = key;
    t->requests[t->request_count - 1].count++;
}

void trace_free(trace *t) {
    free(t->requests);
    free(t->keys);
    *t = (trace){0};
}

static uint64_t number_after(const char *line, const char *name) {
    const char *at = strstr(line, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void trace_add_line(trace *t, const char *line, uint32_t block_tokens) {
    uint64_t whole = number_after(line, "\"input_length\":") / block_tokens;
    const char *at = strchr(strstr(line, "\"hash_ids\":"), '[');
    trace_add_request(t, number_after(line, "\"timestamp\":") * 1000);
    for (uint64_t i = 0; i < whole && at && *at != ']'; i++) {
        char *end;
        uint64_t key = strtoull(at + 1, &end, 10);
        if (end == at + 1) break;
        trace_add_key(t, key);
        at = end;
    }
}

bool trace_load(trace *t, const char *path, uint32_t block_tokens) {
    char command[1024], *line = NULL;
    size_t capacity = 0;
    snprintf(command, sizeof command, "gzip -dc '%s' 2>/dev/null", path);
    FILE *file = popen(command, "r");
    *t = (trace){0};
    if (!file) return false;
    while (getline(&line, &capacity, file) > 0) trace_add_line(t, line, block_tokens);
    free(line);
    return pclose(file) == 0 && t->request_count > 0;
}

/* ---- replay ---- */

typedef struct replay {
    qr_tree tree;
    uint32_t capacity;
    qr_node_id tip; /* end of the running request's locked path */
} replay;

static uint64_t replay_hits(replay *r, const quire_token *words, uint32_t count) {
    qr_tree_match match;
    qr_tree_find_prefix(&r->tree, 0, words, (uint64_t)count * 2, &match);
    for (qr_node_id id = match.node; id != 0; id = qr_tree_parent(&r->tree, id)) {
        qr_tree_lock(&r->tree, id);
        qr_tree_touch(&r->tree, id);
    }
    r->tip = match.node;
    return match.block_count;
}

static void replay_insert(replay *r, const quire_token *words, uint32_t from, uint32_t count) {
    const quire_block_id no_block = 0;
    for (uint32_t i = from; i < count; i++) {
        if (r->tree.resident_count == r->capacity) {
            qr_node_id victim = qr_tree_victim(&r->tree);
            if (victim == QR_NODE_NONE) return;
            qr_tree_evict(&r->tree, victim);
        }
        r->tip = qr_tree_insert(&r->tree, r->tip, words + (size_t)i * 2, &no_block);
    }
}

static uint64_t replay_request(replay *r, const trace *t, const trace_request *request) {
    const quire_token *words = (const quire_token *)(const void *)(t->keys + request->first);
    qr_tree_set_time(&r->tree, request->time_us);
    uint64_t hits = replay_hits(r, words, request->count);
    replay_insert(r, words, (uint32_t)hits, request->count);
    qr_tree_mark_end(&r->tree, r->tip);
    for (; r->tip != 0; r->tip = qr_tree_parent(&r->tree, r->tip)) qr_tree_unlock(&r->tree, r->tip);
    return hits;
}

uint64_t trace_replay(const trace *t, quire_kv_policy policy, uint32_t capacity, uint32_t check_every) {
    replay *r = malloc(sizeof *r);
    qr_tree_config config = {.root_count = 1,
                             .block_count = capacity,
                             .ghost_count = capacity * QR_TREE_GHOSTS_PER_BLOCK,
                             .label_words = 2,
                             .group_count = 1,
                             .policy = policy,
                             .seed = 1};
    qr_arena arena = {0};
    uint64_t hits = 0;
    qr_tree_init(&r->tree, &config, &arena);
    void *memory = calloc(1, arena.used_bytes + QR_ARENA_ALIGNMENT);
    arena = (qr_arena){
        .base = (unsigned char *)(((uintptr_t)memory + QR_ARENA_ALIGNMENT - 1) & ~(uintptr_t)(QR_ARENA_ALIGNMENT - 1)),
        .size_bytes = arena.used_bytes};
    qr_tree_init(&r->tree, &config, &arena);
    r->capacity = capacity;
    for (size_t i = 0; i < t->request_count; i++) {
        quire_error error;
        hits += replay_request(r, t, &t->requests[i]);
        if (check_every && i % check_every == 0)
            if (qr_tree_check(&r->tree, &error) != QUIRE_OK) cr_assert_fail("request %zu: %s", i, error.text);
    }
    free(memory);
    free(r);
    return hits;
}
