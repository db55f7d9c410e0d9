/* siblings.h - the resident children of a node, ordered by label.
 *
 * A hash finds an equal label; a partial hit needs the child that shares the longest run of leading words. In label
 * order that child is a neighbour of the wanted label, so an ordered set finds it in O(log children), also behind a
 * system prompt with ten thousand different continuations. The set is a treap (Aragon and Seidel 1989) inside the
 * nodes; priorities are a hash of the node id, which no prompt can choose.
 */
#ifndef QR_PREFIX_CACHE_SIBLINGS_H
#define QR_PREFIX_CACHE_SIBLINGS_H

#include "prefix_cache/node_store.h"

/* The node's parent and label are set; no sibling has an equal label. */
void qr_siblings_insert(qr_node_store *store, qr_node_id id);
void qr_siblings_remove(qr_node_store *store, qr_node_id id);
/* The children in label order: the first, and the one behind `id`, in O(log children); QR_NODE_NONE behind the last. */
qr_node_id qr_siblings_first(const qr_node_store *store, qr_node_id parent);
qr_node_id qr_siblings_next(const qr_node_store *store, qr_node_id id);
/* The child that shares the longest run with words[0, word_count); *run is its length. QR_NODE_NONE when no word fits. */
qr_node_id qr_siblings_nearest(const qr_node_store *store, qr_node_id parent, const quire_token *words, uint32_t word_count,
                               uint32_t *run);
/* Every child lies in its parent's order. Recursion as deep as the treap. Returns children counted, or UINT32_MAX. */
uint32_t qr_siblings_check(const qr_node_store *store, qr_node_id parent);
#endif
