#include <quire/kv.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/unit/kv/kv_rig.h"

Test(kv_kv, planned_memory_is_what_create_takes) {
    for (uint32_t groups = 1; groups <= 3; groups++)
        for (int storage = QUIRE_KV_STORAGE_NONE; storage <= QUIRE_KV_STORAGE_HOST; storage++) {
            quire_kv_config config = rig_config();
            config.group_count = groups;
            config.storage = (quire_kv_storage)storage;
            for (uint32_t g = 1; g < groups; g++)
                config.groups[g] = (quire_kv_group){2, 3, 64, 64, QUIRE_KV_F16, QUIRE_KV_INT8};
            quire_kv *kv = rig_create(&config);
            quire_kv_stats stats = rig_stats(kv);
            cr_assert_eq(quire_kv_memory_bytes(&config), stats.pool_bytes + stats.bookkeeping_bytes);
            cr_assert_eq(stats.pool_bytes > 0, storage == QUIRE_KV_STORAGE_HOST);
            rig_destroy(kv);
        }
}

static void check_invalid(const quire_kv_config *config, const char *field) {
    quire_kv *kv = (quire_kv *)1;
    quire_error error;
    cr_assert_eq(quire_kv_create(config, &kv, &error), QUIRE_INVALID);
    cr_assert_null(kv);
    cr_assert_str_eq(error.source, field);
    cr_assert_eq(quire_kv_memory_bytes(config), 0);
}

Test(kv_kv, invalid_configurations_name_the_field) {
    quire_kv_config config;
    config = rig_config(), config.block_tokens = 0, check_invalid(&config, "block_tokens");
    config = rig_config(), config.block_count = 0, check_invalid(&config, "block_count");
    config = rig_config(), config.block_count = UINT32_MAX, check_invalid(&config, "block_count");
    config = rig_config(), config.max_sequences = 0, check_invalid(&config, "max_sequences");
    config = rig_config(), config.max_sequence_tokens = 0, check_invalid(&config, "max_sequence_tokens");
    config = rig_config(), config.group_count = 0, check_invalid(&config, "group_count");
    config = rig_config(), config.group_count = QUIRE_KV_GROUPS_MAX + 1, check_invalid(&config, "group_count");
    config = rig_config(), config.groups[0].key_dim = 0, check_invalid(&config, "groups");
    config = rig_config(), config.groups[0].value_type = QUIRE_KV_TYPE_COUNT, check_invalid(&config, "groups");
    config = rig_config(), config.policy = (quire_kv_policy)9, check_invalid(&config, "policy");
    config = rig_config(), config.storage = (quire_kv_storage)9, check_invalid(&config, "storage");
}

Test(kv_kv, memory_that_cannot_be_is_refused_with_the_bytes) {
    quire_kv_config config = rig_config();
    quire_kv *kv;
    quire_error error = {0};
    config.block_count = 1 << 28;
    config.groups[0] = (quire_kv_group){1 << 16, 1 << 10, 1 << 12, 1 << 12, QUIRE_KV_F32, QUIRE_KV_F32};
    cr_assert_eq(quire_kv_create(&config, &kv, &error), QUIRE_NO_MEMORY);
    cr_assert(kv == NULL && error.text[0] != '\0');
}

Test(kv_kv, blocks_lie_where_base_and_stride_say) {
    quire_kv_config config = rig_config();
    size_t stride;
    config.groups[0] = (quire_kv_group){2, 2, 64, 64, QUIRE_KV_F16, QUIRE_KV_F16};
    quire_kv *kv = rig_create(&config);
    char *base = quire_kv_pool_base(kv, 0, &stride);
    cr_assert(base != NULL && (uintptr_t)base % 4096 == 0);
    cr_assert_eq(stride, quire_kv_block_bytes(&config.groups[0], RIG_BLOCK));
    memset(base, 1, stride * config.block_count);
    cr_assert_eq(quire_kv_part_offset(kv, 0, 0, 0, QUIRE_KV_KEYS), 0);
    cr_assert_eq(quire_kv_part_offset(kv, 0, 1, 1, QUIRE_KV_VALUES), (3 * 2 + 1) * 64 * 2 * RIG_BLOCK);
    cr_assert_eq(quire_kv_part_offset(kv, 0, 0, 0, QUIRE_KV_KEY_SCALES), SIZE_MAX);
    cr_assert_eq(quire_kv_part_offset(kv, 0, 2, 0, QUIRE_KV_KEYS), SIZE_MAX);
    cr_assert_eq(quire_kv_part_offset(kv, 1, 0, 0, QUIRE_KV_KEYS), SIZE_MAX);
    cr_assert_null(quire_kv_pool_base(kv, 1, &stride));
    rig_destroy(kv);
}

Test(kv_kv, ids_only_without_storage_or_shape) {
    quire_kv_config config = rig_config();
    size_t stride;
    config.storage = QUIRE_KV_STORAGE_NONE;
    config.groups[0] = (quire_kv_group){0};
    quire_kv *kv = rig_create(&config);
    quire_token tokens[40];
    rig_count_up(tokens, 40, 1);
    rig_run(kv, 0, tokens, 40, 39);
    cr_assert_eq(rig_match(kv, 0, tokens, 40).token_count, 32);
    cr_assert_null(quire_kv_pool_base(kv, 0, &stride));
    cr_assert_eq(quire_kv_part_offset(kv, 0, 0, 0, QUIRE_KV_KEYS), SIZE_MAX);
    rig_destroy(kv);
}

Test(kv_kv, copies_are_listed_without_storage_and_refused_when_nobody_drains) {
    quire_kv_config config = rig_config();
    config.storage = QUIRE_KV_STORAGE_NONE;
    config.max_sequences = 2;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[32];
    quire_seq_id seq;
    quire_kv_copy copies[8];
    uint32_t count;
    rig_count_up(tokens, 32, 1);
    rig_start(kv, 0, tokens, 32, 31, &seq);
    quire_block_id shared = quire_kv_seq_table(kv, seq, 0, &count)[1];
    quire_status status = QUIRE_OK;
    for (int i = 0; i < 1000 && status == QUIRE_OK; i++) {
        cr_assert_eq(quire_kv_seq_truncate(kv, seq, 20), QUIRE_OK);
        status = quire_kv_seq_reserve(kv, seq, 32);
        if (status == QUIRE_OK) cr_assert_eq(quire_kv_seq_commit(kv, seq, tokens + 20, 12), QUIRE_OK);
    }
    cr_assert_eq(status, QUIRE_QUEUE_FULL);
    cr_assert_eq(quire_kv_take_copies(kv, copies, 1), 1);
    cr_assert(copies[0].group == 0 && copies[0].from == shared && copies[0].to != shared);
    cr_assert_eq(quire_kv_seq_reserve(kv, seq, 32), QUIRE_OK);
    while (quire_kv_take_copies(kv, copies, 8) > 0) continue;
    rig_destroy(kv);
}

Test(kv_kv, destroy_closes_what_is_open) {
    quire_kv_config config = rig_config();
    quire_kv *kv = rig_create(&config);
    quire_token tokens[40];
    quire_seq_id seq;
    rig_count_up(tokens, 40, 1);
    rig_start(kv, 0, tokens, 40, 39, &seq);
    rig_destroy(kv);
    quire_kv_destroy(NULL);
}

/* Law 5: after create nothing is allocated, whatever happens. */
Test(kv_kv, nothing_is_allocated_after_create) {
    quire_kv_config config = rig_config();
    config.block_count = 8;
    quire_kv *kv = rig_create(&config);
    quire_token tokens[64];
    quire_seq_id seq, child;
    quire_kv_match match;
    bool fine = true;
    qr_alloc_guard_enter();
    for (quire_token i = 0; i < 200; i++) {
        rig_count_up(tokens, 64, i * 7 % 50);
        fine &= quire_kv_seq_open(kv, 0, &seq) == QUIRE_OK;
        fine &= quire_kv_seq_attach(kv, seq, tokens, 60, 59, &match) == QUIRE_OK;
        fine &= quire_kv_seq_reserve(kv, seq, 60) == QUIRE_OK;
        fine &= quire_kv_seq_commit(kv, seq, tokens + match.token_count, 60 - match.token_count) == QUIRE_OK;
        fine &= quire_kv_seq_fork(kv, seq, &child) == QUIRE_OK && quire_kv_seq_reserve(kv, child, 61) == QUIRE_OK;
        fine &= quire_kv_seq_close(kv, child) == QUIRE_OK && quire_kv_seq_close(kv, seq) == QUIRE_OK;
    }
    uint64_t allocations = qr_alloc_guard_leave();
    cr_assert(fine);
    cr_assert_eq(allocations, 0);
    rig_destroy(kv);
}
