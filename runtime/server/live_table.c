/* live_table.c - see live_table.h. */
#include "runtime/server/live_table.h"

#include "base/assertion.h"

#include <stdlib.h>

void qr_live_table_deinit(qr_live_table *table) {
    free(table->slots);
    *table = (qr_live_table){0};
}

static bool live_grow(qr_live_table *table) {
    if (table->count < table->capacity) return true;
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    qr_live_slot *slots = realloc(table->slots, capacity * sizeof *slots);
    if (!slots) return false;
    table->slots = slots;
    table->capacity = capacity;
    return true;
}

bool qr_live_insert(qr_live_table *table, void *owner, uint32_t part, uint64_t *id) {
    QR_ASSERT(owner);
    uint32_t index;
    if (table->free_head) {
        index = table->free_head - 1;
        table->free_head = table->slots[index].next_free;
    } else {
        if (!live_grow(table)) return false;
        index = table->count++;
        table->slots[index].generation = 0;
    }
    qr_live_slot *slot = &table->slots[index];
    slot->owner = owner;
    slot->part = part;
    slot->generation = slot->generation == UINT32_MAX ? 1 : slot->generation + 1;
    *id = (uint64_t)slot->generation << 32 | index;
    return true;
}

static qr_live_slot *live_slot(const qr_live_table *table, uint64_t id) {
    uint32_t index = (uint32_t)id;
    if (index >= table->count) return NULL;
    qr_live_slot *slot = &table->slots[index];
    return slot->owner && slot->generation == (uint32_t)(id >> 32) ? slot : NULL;
}

void *qr_live_find(const qr_live_table *table, uint64_t id, uint32_t *part) {
    const qr_live_slot *slot = live_slot(table, id);
    if (!slot) return NULL;
    *part = slot->part;
    return slot->owner;
}

void qr_live_remove(qr_live_table *table, uint64_t id) {
    qr_live_slot *slot = live_slot(table, id);
    QR_ASSERT(slot);
    slot->owner = NULL;
    slot->next_free = table->free_head;
    table->free_head = (uint32_t)id + 1;
}
