/* kv_rig.h - a small KV manager for tests, and the life of a prompt in one call. */
#ifndef QR_TESTS_KV_RIG_H
#define QR_TESTS_KV_RIG_H

#include <quire/kv.h>

enum { RIG_BLOCK = 16, RIG_TOKENS = 512 };

/* 64 blocks of 16 tokens, one group, f32 of one element, host storage. */
quire_kv_config rig_config(void);
quire_kv *rig_create(const quire_kv_config *config);
/* Checks invariants and destroys. */
void rig_destroy(quire_kv *kv);

/* tokens[i] = first + i. */
void rig_count_up(quire_token *tokens, uint32_t count, quire_token first);
/* Opens a sequence, attaches at most limit tokens of the prompt, and commits the rest. The match is returned. */
quire_kv_match rig_start(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit,
                         quire_seq_id *seq);
/* The same and closes. */
quire_kv_match rig_run(quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count, uint32_t limit);
quire_kv_match rig_match(const quire_kv *kv, quire_namespace_id ns, const quire_token *tokens, uint32_t count);
quire_kv_stats rig_stats(const quire_kv *kv);
void rig_close(quire_kv *kv, quire_seq_id seq);
#endif
