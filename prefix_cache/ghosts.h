/* ghosts.h - nodes whose blocks were evicted, oldest eviction first, and by namespace.
 *
 * Descendants of a ghost are ghosts that were evicted before it, so the oldest ghost never has children and can be
 * dropped alone.
 */
#ifndef QR_PREFIX_CACHE_GHOSTS_H
#define QR_PREFIX_CACHE_GHOSTS_H

#include "prefix_cache/tree.h"

/* The node is in the hash table and has no children; its state becomes GHOST. */
void qr_ghosts_push(qr_tree *tree, qr_node_id id);
/* Takes it out of both lists; what it becomes is the caller's business. */
void qr_ghosts_unlink(qr_tree *tree, qr_node_id id);
/* Drops one, or all of a namespace. */
void qr_ghosts_drop(qr_tree *tree, qr_node_id id);
void qr_ghosts_drop_root(qr_tree *tree, uint32_t root);
/* Counts and links of the lists. */
bool qr_ghosts_check(const qr_tree *tree);
#endif
