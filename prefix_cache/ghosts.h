/* ghosts.h - nodes that have no bytes any more, in the order in which they are dropped, and by namespace.
 *
 * The oldest ghost never has children, so it can be dropped alone. Proof: only ghosts can lie below a ghost, since the parent
 * of a resident node is never a ghost, nor that of a stored one. And a ghost below another comes before it in the order. For
 * a node becomes a ghost after all its children have (evict and lose go leaves first), and then goes last; a ghost that is
 * new below one that is there (qr_tree_insert_ghost) goes right before it; and nothing else moves a ghost in the order.
 * A ghost that comes back leaves its children behind, which then have no ghost above them.
 *
 * A held ghost, one that is locked, is in no order and cannot be dropped; it goes last with its last unlock. What lies above it
 * is locked too, so it is no ghost or held as well, and enters later.
 */
#ifndef QR_PREFIX_CACHE_GHOSTS_H
#define QR_PREFIX_CACHE_GHOSTS_H

#include "prefix_cache/tree.h"

/* The node is in the hash table and has neither copies nor children but ghosts; its state becomes GHOST. */
void qr_ghosts_push(qr_tree *tree, qr_node_id id, qr_ghost_cause cause);
/* A held ghost lost its last lock. */
void qr_ghosts_let_go(qr_tree *tree, qr_node_id id);
/* Takes it out of the lists; what it becomes is the caller's business. */
void qr_ghosts_unlink(qr_tree *tree, qr_node_id id);
/* Drops one, or all of a namespace. */
void qr_ghosts_drop(qr_tree *tree, qr_node_id id);
void qr_ghosts_drop_root(qr_tree *tree, uint32_t root);
/* Counts, links and order of the lists. */
bool qr_ghosts_check(const qr_tree *tree);
#endif
