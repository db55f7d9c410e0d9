/* pins.h - soft pins: a prefix that should stay until a time, unless memory is needed for nothing else.
 *
 * A pin is a record of the deepest node; every node of its path counts its pins and is no eviction candidate while it
 * has any. Records are few (QR_TREE_PINS_MAX), so they are scanned.
 */
#ifndef QR_PREFIX_CACHE_PINS_H
#define QR_PREFIX_CACHE_PINS_H

#include "prefix_cache/tree.h"

/* Removes pins whose time is over. */
void qr_pins_expire(qr_tree *tree);
/* Removes the pin of the lowest priority, of equal ones the first to expire. There must be one. */
void qr_pins_revoke_lowest(qr_tree *tree);
void qr_pins_drop_root(qr_tree *tree, uint32_t root);

/* tree.c: adds to the pin count of a node and its ancestors. */
void qr_tree_add_pin_count(qr_tree *tree, qr_node_id id, int change);
#endif
