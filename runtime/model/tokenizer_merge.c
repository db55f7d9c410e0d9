/* tokenizer_merge.c - rule table, heap and merging. */
#include "runtime/model/tokenizer_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/hash.h"

#define NO_SYMBOL UINT32_MAX
#define NO_RANK UINT32_MAX
#define EMPTY_SLOT UINT32_MAX

bool qr_merge_table_init(qr_merge_table *table, uint32_t rule_count) {
    QR_ASSERT(rule_count < UINT32_MAX / 4);
    uint32_t slot_count = 16;
    while (slot_count < 2 * rule_count) slot_count *= 2;
    *table = (qr_merge_table){malloc((size_t)slot_count * sizeof(qr_merge_rule)), slot_count - 1};
    if (!table->slots) return false;
    memset(table->slots, 0xff, (size_t)slot_count * sizeof(qr_merge_rule)); /* EMPTY_SLOT */
    return true;
}

void qr_merge_table_deinit(qr_merge_table *table) {
    free(table->slots);
    *table = (qr_merge_table){0};
}

/* The slot of the pair, or the empty slot where it belongs. */
static qr_merge_rule *find_slot(const qr_merge_table *table, uint32_t left, uint32_t right) {
    uint32_t at = (uint32_t)qr_mix64((uint64_t)left << 32 | right) & table->mask;
    for (;; at = (at + 1) & table->mask) {
        qr_merge_rule *slot = &table->slots[at];
        if (slot->left == EMPTY_SLOT || (slot->left == left && slot->right == right)) return slot;
    }
}

void qr_merge_table_insert(qr_merge_table *table, const qr_merge_rule *rule) {
    QR_ASSERT(rule->left != EMPTY_SLOT && rule->rank != NO_RANK);
    *find_slot(table, rule->left, rule->right) = *rule;
}

const qr_merge_rule *qr_merge_table_find(const qr_merge_table *table, quire_token left, quire_token right) {
    const qr_merge_rule *slot = find_slot(table, (uint32_t)left, (uint32_t)right);
    return slot->left == EMPTY_SLOT ? NULL : slot;
}

void qr_merge_work_deinit(qr_merge_work *work) {
    free(work->symbols);
    free(work->heap);
    *work = (qr_merge_work){0};
}

/* Each merge takes one pair off the heap and adds at most two, so 2 n entries always suffice. */
static quire_status reserve(qr_merge_work *work, size_t count) {
    if (count <= work->capacity) return QUIRE_OK;
    if (count >= NO_SYMBOL) return QUIRE_NO_MEMORY;
    size_t capacity = count + count / 2;
    free(work->symbols);
    free(work->heap);
    work->symbols = malloc(capacity * sizeof *work->symbols);
    work->heap = malloc(2 * capacity * sizeof *work->heap);
    work->capacity = capacity;
    if (work->symbols && work->heap) return QUIRE_OK;
    qr_merge_work_deinit(work);
    return QUIRE_NO_MEMORY;
}

static void sift_up(uint64_t *heap, size_t at) {
    uint64_t value = heap[at];
    for (; at > 0 && value < heap[(at - 1) / 2]; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

static void sift_down(uint64_t *heap, size_t count, size_t at) {
    uint64_t value = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (value <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static uint64_t heap_pop(qr_merge_work *work) {
    uint64_t top = work->heap[0];
    work->heap[0] = work->heap[--work->heap_count];
    if (work->heap_count > 0) sift_down(work->heap, work->heap_count, 0);
    return top;
}

static uint64_t heap_entry(uint32_t rank, uint32_t symbol) { return (uint64_t)rank << 32 | symbol; }

/* Looks up the rule that joins a symbol with its next one. */
static void find_rule(const qr_merge_table *table, qr_merge_symbol *symbols, uint32_t at) {
    qr_merge_symbol *symbol = &symbols[at];
    const qr_merge_rule *rule = NULL;
    if (symbol->next != NO_SYMBOL) {
        rule = qr_merge_table_find(table, (quire_token)symbol->id, (quire_token)symbols[symbol->next].id);
    }
    symbol->rank = rule ? rule->rank : NO_RANK;
    symbol->result = rule ? rule->result : 0;
}

static void push_pair(const qr_merge_table *table, qr_merge_work *work, uint32_t at) {
    find_rule(table, work->symbols, at);
    if (work->symbols[at].rank == NO_RANK) return;
    work->heap[work->heap_count] = heap_entry(work->symbols[at].rank, at);
    sift_up(work->heap, work->heap_count++);
}

static void start(const qr_merge_table *table, qr_merge_work *work, const quire_token *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        work->symbols[i] =
            (qr_merge_symbol){.id = (uint32_t)tokens[i], .previous = i - 1, .next = i + 1 < count ? i + 1 : NO_SYMBOL};
    }
    work->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        find_rule(table, work->symbols, i);
        if (work->symbols[i].rank != NO_RANK) work->heap[work->heap_count++] = heap_entry(work->symbols[i].rank, i);
    }
    for (size_t i = work->heap_count / 2; i-- > 0;) sift_down(work->heap, work->heap_count, i);
}

static void join_with_next(const qr_merge_table *table, qr_merge_work *work, uint32_t at) {
    qr_merge_symbol *symbol = &work->symbols[at], *gone = &work->symbols[symbol->next];
    symbol->id = symbol->result;
    symbol->next = gone->next;
    gone->rank = NO_RANK;
    if (symbol->next != NO_SYMBOL) work->symbols[symbol->next].previous = at;
    push_pair(table, work, at);
    if (symbol->previous != NO_SYMBOL) push_pair(table, work, symbol->previous);
}

quire_status qr_merge_run(const qr_merge_table *table, qr_merge_work *work, quire_token *tokens, size_t *count) {
    if (*count < 2) return QUIRE_OK;
    quire_status status = reserve(work, *count);
    if (status) return status;
    start(table, work, tokens, (uint32_t)*count);
    while (work->heap_count > 0) {
        uint64_t top = heap_pop(work);
        uint32_t at = (uint32_t)top;
        /* A pair whose sides have changed since has another rank now. */
        if (work->symbols[at].rank == (uint32_t)(top >> 32)) join_with_next(table, work, at);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != NO_SYMBOL; i = work->symbols[i].next) tokens[left++] = (quire_token)work->symbols[i].id;
    *count = left;
    return QUIRE_OK;
}
