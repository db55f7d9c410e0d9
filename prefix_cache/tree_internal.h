/* tree_internal.h - what the files of the tree share with each other and with nobody else. */
#ifndef QR_PREFIX_CACHE_TREE_INTERNAL_H
#define QR_PREFIX_CACHE_TREE_INTERNAL_H

#include "prefix_cache/tree.h"

/* ---- tree.c ---- */

/* Puts a node into the set of evictable leaves of its tier, or takes it out, as its state says. After every change of what it
 * has, what lies below it and who uses it. */
void qr_tree_update_leaf(qr_tree *tree, qr_node_id id);
/* Takes it out; before its state changes. */
void qr_tree_leave_leaves(qr_tree *tree, qr_node_id id);
/* A node for a new child, in the hash table, in no state yet; the oldest ghost makes room when there is none. */
qr_node_id qr_tree_new_node(qr_tree *tree, qr_node_id parent, const quire_token *label);
/* Takes a resident node without resident children out of leaves, unsaved list, its parent's order and the counts. */
void qr_tree_detach(qr_tree *tree, qr_node_id id);

/* ---- stored.c ---- */

/* Makes a node in no list a stored child of its parent, or takes a stored child out. */
void qr_stored_link(qr_tree *tree, qr_node_id id);
void qr_stored_unlink(qr_tree *tree, qr_node_id id);
/* Walks all children that are not ghosts: the stored ones, then the resident ones by label. QR_NODE_NONE behind the last. */
qr_node_id qr_tree_first_child(const qr_tree *tree, qr_node_id id);
qr_node_id qr_tree_next_sibling(const qr_tree *tree, qr_node_id id);
/* The stored children of a node, counted; UINT32_MAX when the list is broken. */
uint32_t qr_stored_check(const qr_tree *tree, qr_node_id parent);

/* ---- unsaved.c ---- */

/* Links of the list, its count, and that all in it are unsaved. */
bool qr_unsaved_check(const qr_tree *tree);
#endif
