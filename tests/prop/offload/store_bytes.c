/* store_bytes.c - what the nodes of the model look like as bytes, and what may and may not lie in the folder's files.
 *
 * Every 64 bytes of a payload and the tokens of every node begin with a mark that is followed by the node's number, and keys
 * have a mark too: so one search of the files tells whose bytes are in them.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "tests/prop/offload/store_model.h"

enum { LINE_WORDS = 8 };
#define PAYLOAD_MARK 0x9d1f6b3ac57e02e4u
#define TOKEN_MARK 0x5ae7c391
#define KEY_MARK "quire-key-mark-"

/* ---- nodes ---- */

void model_grow_forest(store_model *m) {
    for (uint32_t i = 0; i < MODEL_NODES; i++) {
        uint32_t parent = i && qr_random_below(&m->random, 8) ? qr_random_below(&m->random, i) : UINT32_MAX;
        /* Long chains are what a store mostly has. */
        if (i && parent != UINT32_MAX && qr_random_below(&m->random, 2)) parent = i - 1;
        if (parent != UINT32_MAX && m->nodes[0][parent].depth == MODEL_DEPTH) parent = UINT32_MAX;
        model_node node = {.parent = parent, .depth = 1, .space = qr_random_below(&m->random, MODEL_SPACES)};
        if (parent != UINT32_MAX) node.depth = m->nodes[0][parent].depth + 1, node.space = m->nodes[0][parent].space;
        node.tokens[0] = TOKEN_MARK;
        node.tokens[1] = (quire_token)i;
        for (int k = 2; k < MODEL_TOKENS; k++) node.tokens[k] = (quire_token)(qr_random_u64(&m->random) >> 33);
        m->nodes[0][i] = m->nodes[1][i] = node;
    }
}

static uint64_t payload_word(const store_model *m, uint32_t node, uint64_t at) {
    if (at % LINE_WORDS == 0) return PAYLOAD_MARK;
    if (at % LINE_WORDS == 1) return node;
    return qr_mix64(m->options.seed ^ qr_mix64(at ^ (uint64_t)node << 32 ^ (uint64_t)m->model << 60));
}

void model_fill(const store_model *m, uint32_t node, unsigned char *payload) {
    uint64_t *words = (uint64_t *)(void *)payload;
    for (uint64_t i = 0; i < m->config.payload_bytes / 8; i++) words[i] = payload_word(m, node, i);
}

void model_compare(const store_model *m, uint32_t node, const unsigned char *payload) {
    const uint64_t *words = (const uint64_t *)(const void *)payload;
    for (uint64_t i = 0; i < m->config.payload_bytes / 8; i++) MODEL_ASSERT(m, words[i] == payload_word(m, node, i));
}

void model_key(const store_model *m, uint32_t space, char key[48]) {
    (void)snprintf(key, 48, KEY_MARK "%u-%llx", space, (unsigned long long)(m->options.seed & 0xffff));
}

/* ---- files ---- */

typedef void visit_file(store_model *m, const char *path, const struct stat *about);

static void each_file(store_model *m, visit_file *visit) {
    struct dirent **entries;
    int count = scandir(m->folder, &entries, NULL, NULL);
    MODEL_ASSERT(m, count >= 0);
    for (int i = 0; i < count; i++) {
        char path[512];
        struct stat about;
        (void)snprintf(path, sizeof path, "%s/%s", m->folder, entries[i]->d_name);
        if (lstat(path, &about) == 0 && S_ISREG(about.st_mode)) visit(m, path, &about);
        free(entries[i]);
    }
    free(entries);
}

void model_check_cap(const store_model *m) {
    struct dirent *entry;
    DIR *folder = opendir(m->folder);
    uint64_t sizes = 0, blocks = 0;
    MODEL_ASSERT(m, folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        struct stat about;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", m->folder, entry->d_name);
        if (lstat(path, &about) || !S_ISREG(about.st_mode)) continue;
        sizes += (uint64_t)about.st_size;
        blocks += (uint64_t)about.st_blocks * 512;
    }
    (void)closedir(folder);
    MODEL_ASSERT(m, sizes <= m->config.cap_bytes);
    MODEL_ASSERT(m, blocks <= m->config.cap_bytes);
}

static unsigned char *read_file(store_model *m, const char *path, size_t size) {
    unsigned char *bytes = malloc(size + 1);
    FILE *file = fopen(path, "re");
    MODEL_ASSERT(m, bytes != NULL);
    if (!file) { /* it went meanwhile: nobody waits for files that are not needed any more */
        free(bytes);
        return NULL;
    }
    MODEL_ASSERT(m, fread(bytes, 1, size, file) == size);
    (void)fclose(file);
    return bytes;
}

static void check_number(const store_model *m, uint64_t number) {
    if (number < MODEL_NODES) MODEL_ASSERT(m, m->nodes[0][number].on_disk || m->nodes[1][number].on_disk);
}

/* A key may be there while a node of its namespace may be. */
static void check_key(const store_model *m, const char *at, size_t left) {
    for (uint32_t space = 0; space < MODEL_SPACES; space++) {
        char key[48];
        bool may = false;
        model_key(m, space, key);
        if (left < strlen(key) || memcmp(at, key, strlen(key)) != 0) continue;
        for (uint32_t i = 0; i < MODEL_NODES; i++)
            may |= m->nodes[0][i].space == space && (m->nodes[0][i].on_disk || m->nodes[1][i].on_disk);
        MODEL_ASSERT(m, may);
    }
}

static void check_file(store_model *m, const char *path, const struct stat *about) {
    size_t size = (size_t)about->st_size;
    unsigned char *bytes = read_file(m, path, size);
    if (!bytes) return;
    const uint64_t payload_mark = PAYLOAD_MARK;
    const quire_token token_mark = TOKEN_MARK;
    for (unsigned char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), &payload_mark, 8)) != NULL; at += 8) {
        uint64_t number = UINT64_MAX;
        if (size - (size_t)(at - bytes) >= 16) memcpy(&number, at + 8, 8);
        check_number(m, number);
    }
    for (unsigned char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), &token_mark, 4)) != NULL; at += 4) {
        uint32_t number = UINT32_MAX;
        if (size - (size_t)(at - bytes) >= 8) memcpy(&number, at + 4, 4);
        check_number(m, number);
    }
    for (unsigned char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), KEY_MARK, strlen(KEY_MARK))) != NULL; at++)
        check_key(m, (const char *)at, size - (size_t)(at - bytes));
    free(bytes);
}

void model_check_erased(store_model *m) {
    m->coverage.scans++;
    each_file(m, check_file);
}
