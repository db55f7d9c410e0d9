/* policy.h - how much a cached block is worth keeping.
 *
 * Both policies are one function, "does a go before b"; only leaves are ever compared, so prefixes stay whole.
 *
 * LRU: the block whose last use ended longest ago goes first.
 *
 * dlfu (decayed least frequently used): a block keeps the decayed count w of its touches and the time t of the last,
 *
 *     on a touch   w = w * 2^-((now - t) / H) + 1,  t = now          rank = log2(w) + t / H
 *
 * and the lowest rank goes first. H -> 0 is LRU, H -> infinity is perfect LFU. H is learnt: twice the median delay
 * between the end of a prompt and the next touch of that end, that is, how long people take to come back. The median
 * is tracked by steps of its logarithm, up or down, that shrink as observations grow. Ends are remembered in a table of
 * their own, by a hash of the whole prefix: were they forgotten with the nodes, a small pool would see only the quickest
 * returns and learn a horizon that makes it LRU. (A collision there costs one wrong observation.)
 */
#ifndef QR_PREFIX_CACHE_POLICY_H
#define QR_PREFIX_CACHE_POLICY_H

#include "prefix_cache/node_store.h"

enum { QR_POLICY_ENDS = 8192 };

typedef struct qr_policy_end {
    uint64_t fingerprint; /* 0: empty */
    uint64_t time_us;
} qr_policy_end;

typedef struct qr_policy {
    quire_kv_policy kind;
    uint64_t now_us;
    uint64_t touch_count; /* LRU's clock: the order of events, so that equal times do not matter */
    double horizon_s;     /* H */
    double median_log2;   /* log2 of the median delay in seconds */
    qr_policy_end *ends;  /* [QR_POLICY_ENDS], by fingerprint; the newer of two takes the place */
    uint32_t observation_count;
    uint32_t end_count;
} qr_policy;

/* Takes the table of ends from the arena, which may only be counting. */
void qr_policy_init(qr_policy *policy, quire_kv_policy kind, qr_arena *arena);
/* A lookup or an insertion reached this node. weight 0 means never touched. */
void qr_policy_touch(qr_policy *policy, qr_node *node);
/* It was touched again after its first touch, for dlfu so lately that it still counts. */
bool qr_policy_seen_twice(const qr_node *node);
/* Its last user let it go. */
void qr_policy_release(qr_policy *policy, qr_node *node);
/* A prompt ends with this node. */
void qr_policy_mark_end(qr_policy *policy, const qr_node *node);
/* a should be evicted before b. Equal worth: the deeper one first. */
bool qr_policy_before(const qr_policy *policy, const qr_node *a, const qr_node *b);
#endif
