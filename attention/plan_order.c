/* plan_order.c - finding the units that read the same blocks.
 *
 * All units start as one segment. A segment's units have equal blocks in every span below its depth. While they stay equal the
 * depth grows; when they differ the segment is split by a hash table of the span's blocks, whose hits are compared. A unit
 * alone is left alone, so the work is linear in the block ids that are shared plus the units.
 */
#include <string.h>

#include "attention/plan_internal.h"
#include "base/hash.h"

enum { JOINED = UINT32_MAX };

/* Equal as far as this span is concerned. Spans before the first that a unit sees may hold stale ids: not looked at. */
static bool units_equal(const qr_attn_plan *plan, const attn_unit *a, const attn_unit *b, uint32_t span) {
    if (a->span_begin != b->span_begin) return false;
    if (span < a->span_begin) return true;
    uint32_t count = qr_attn_unit_blocks(plan, a, span), begin = span * plan->span_blocks;
    if (count == 0 || count != qr_attn_unit_blocks(plan, b, span)) return false;
    return memcmp(a->ids + begin, b->ids + begin, count * sizeof *a->ids) == 0;
}

static uint64_t unit_hash(const qr_attn_plan *plan, const attn_unit *unit, uint32_t span) {
    uint32_t count = qr_attn_unit_blocks(plan, unit, span);
    if (span < unit->span_begin) return qr_mix64(unit->span_begin);
    if (count == 0) return qr_mix64(unit->row); /* ended: equal to nobody */
    return qr_hash_bytes(unit->ids + span * plan->span_blocks, count * sizeof *unit->ids, unit->span_begin);
}

static bool segment_equal(const qr_attn_plan *plan, const attn_unit *unit, uint32_t count, uint32_t span) {
    for (uint32_t i = 1; i < count; i++)
        if (!units_equal(plan, &unit[0], &unit[i], span)) return false;
    return qr_attn_unit_blocks(plan, &unit[0], span) != 0;
}

/* The group of unit i among the groups found so far, else a new one. */
static uint32_t find_group(const qr_attn_plan *plan, const attn_unit *unit, uint32_t i, uint32_t span, uint32_t *groups) {
    const attn_order *order = &plan->order;
    uint32_t mask = order->slot_count - 1, at = (uint32_t)unit_hash(plan, &unit[i], span) & mask;
    while (order->slot[at] != UINT32_MAX) {
        uint32_t group = order->slot[at];
        if (units_equal(plan, &unit[order->leader[group]], &unit[i], span)) return group;
        at = (at + 1) & mask;
    }
    order->slot[at] = *groups;
    order->leader[*groups] = i;
    order->size[*groups] = 0;
    return (*groups)++;
}

/* Units of a segment by groups, groups in order of their first unit, units in their old order. */
static void split_segment(qr_attn_plan *plan, attn_unit *unit, uint32_t count, uint32_t span, uint32_t *depth) {
    attn_order *order = &plan->order;
    uint32_t groups = 0, at = 0;
    order->slot_count = qr_attn_order_slots(count); /* no more to clear than the segment needs */
    memset(order->slot, 0xff, order->slot_count * sizeof *order->slot);
    for (uint32_t i = 0; i < count; i++) {
        order->member[i] = find_group(plan, unit, i, span, &groups);
        order->size[order->member[i]]++;
    }
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t size = order->size[g];
        order->size[g] = at; /* from now on where its next unit goes */
        at += size;
    }
    memcpy(order->moved, unit, count * sizeof *unit);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = order->size[order->member[i]]++;
        unit[to] = order->moved[i];
        unit[to].same = order->leader[order->member[i]] == i && to > 0 ? span : JOINED;
        depth[to] = span + 1;
    }
}

uint32_t qr_attn_order_slots(uint32_t count) {
    uint32_t slots = 4;
    while (slots < 2 * count) slots *= 2;
    return slots;
}

void qr_attn_order_units(qr_attn_plan *plan, attn_unit *unit, uint32_t count) {
    uint32_t *depth = plan->order.depth;
    for (uint32_t i = 0; i < count; i++) {
        unit[i].same = i > 0 ? JOINED : 0;
        depth[i] = 0;
    }
    for (uint32_t i = 0, end; i < count; i = end == i + 1 ? end : i) {
        for (end = i + 1; end < count && unit[end].same == JOINED;) end++;
        if (end == i + 1) continue;
        uint32_t span = depth[i], first = unit[i].same;
        while (segment_equal(plan, unit + i, end - i, span)) span++;
        split_segment(plan, unit + i, end - i, span, depth + i);
        unit[i].same = first;
    }
}
