/* tiers_rig.h - a KV manager over a fake store and, if wanted, a simulated device with a host tier, for tests.
 *
 * Every token that the rig computes has bytes that follow from namespace and all tokens up to it, so a block that is used at
 * the wrong place, or whose copy came too early or too late, shows in rig_check_bytes.
 */
#ifndef QR_TESTS_TIERS_RIG_H
#define QR_TESTS_TIERS_RIG_H

#include "runtime/kv/kv_parts.h"
#include "tests/support/fake_store.h"
#include "tests/unit/kv/kv_rig.h"

typedef struct tiers_rig {
    quire_kv_config config;
    fake_store_config store;
    bool no_store;
    uint32_t host_slots; /* > 0: a host tier of so many blocks */
    qr_device_sim_config device;
    bool device_sim; /* else the CPU's */
    fake_store *fake;
    quire_kv *kv;
    uint64_t now_us;
} tiers_rig;

/* Two groups, 16 blocks, 64 records, policy complete; change it, then open. */
tiers_rig tiers_rig_make(void);
void tiers_rig_open(tiers_rig *rig);
/* Closes the manager and opens another over what the store has. */
void tiers_rig_restart(tiers_rig *rig);
/* Checks, drains, checks that nothing is held, and frees. */
void tiers_rig_close(tiers_rig *rig);

/* One round: time goes on by 1 ms, poll, check. */
bool tiers_rig_round(tiers_rig *rig);
/* Rounds until 20 of them changed nothing. */
void tiers_rig_settle(tiers_rig *rig);

/* Writes the bytes of tokens that come next, and commits them. Room is reserved. */
void tiers_rig_compute(tiers_rig *rig, quire_seq_id seq, const quire_token *tokens, uint32_t from, uint32_t to);
/* Opens, attaches and computes what is missing, without loading. */
quire_kv_match tiers_rig_start(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count,
                               quire_seq_id *seq);
void tiers_rig_run(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count);
/* Opens, attaches, reserves, plans, begins a load. */
quire_kv_load tiers_rig_load(tiers_rig *rig, quire_namespace_id ns, const quire_token *tokens, uint32_t count, bool verify,
                             quire_seq_id *seq);
/* Rounds and takes until the load is over; computes `rate` tokens a round from the front (0: none). Returns tokens taken. */
uint32_t tiers_rig_finish(tiers_rig *rig, quire_seq_id seq, const quire_token *tokens, uint32_t count, uint32_t rate);
/* Every committed token has its bytes. */
void tiers_rig_check_bytes(tiers_rig *rig, quire_seq_id seq);
quire_kv_load_state tiers_rig_state(const tiers_rig *rig, quire_seq_id seq);
quire_kv_tiers_stats tiers_rig_stats(const tiers_rig *rig);
#endif
