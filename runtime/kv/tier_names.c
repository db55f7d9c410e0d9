/* tier_names.c - words for tiers and refusals, as they stand in metrics, logs and replies. */
#include <quire/kv.h>

const char *quire_kv_tier_name(quire_kv_tier tier) {
    static const char *const names[] = {"device", "host", "disk"};
    return (unsigned)tier < QUIRE_KV_TIER_COUNT ? names[tier] : "unknown";
}

#define REFUSAL_NAME(name, text) text,
const char *quire_kv_refusal_name(quire_kv_refusal refusal) {
    static const char *const names[] = {QUIRE_KV_REFUSAL_LIST(REFUSAL_NAME)};
    return (unsigned)refusal < QUIRE_KV_REFUSED_COUNT ? names[refusal] : "unknown";
}
