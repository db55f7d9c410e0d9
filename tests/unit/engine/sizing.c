/* The plan's numbers are the allocator's (R40), and every refusal has its numbers. */
#include "runtime/engine/sizing.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_model.h"

static quire_model *open_tiny(bool header_only) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q8_0);
    tiny.context = 512;
    return tiny_model_open(&tiny, &(quire_model_options){.header_only = header_only, .thread_count = 1});
}

static const quire_engine_config f16 = {.key_type = QUIRE_KV_F16, .value_type = QUIRE_KV_F16, .thread_count = 1};

Test(engine_sizing, sums_and_sessions_agree) {
    quire_model *model = open_tiny(true);
    quire_engine_config config = f16, resolved;
    qr_sizing s;
    quire_error error;
    config.kv_memory_bytes = 64 << 20;
    cr_assert_eq(qr_sizing_resolve(model, &config, UINT64_MAX, &resolved, &s, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(s.context_tokens, 512);
    cr_assert_eq(s.block_tokens, 16);
    cr_assert_eq(s.blocks_per_context, 32);
    cr_assert_eq(s.sessions, s.block_count / 32);
    cr_assert_eq(s.pool_tokens, (uint64_t)s.block_count * 16);
    cr_assert_eq(s.kv_pool_bytes, s.kv_block_bytes * s.block_count);
    cr_assert(s.kv_pool_bytes + s.kv_bookkeeping_bytes <= 64 << 20, "within what was given");
    cr_assert(s.kv_pool_bytes + s.kv_bookkeeping_bytes + 2 * s.kv_block_bytes > 64 << 20, "and no block left over");
    cr_assert_eq(s.total_bytes, s.weight_bytes + s.kv_pool_bytes + s.kv_bookkeeping_bytes + s.work_bytes);
    cr_assert_eq(s.tiers_bytes, 0);
    /* 2 layers, 2 KV heads, f16: keys and values */
    cr_assert_eq(s.kv_token_bytes, 2 * 2 * 2 * (quire_model_get_info(model)->key_dim + quire_model_get_info(model)->value_dim));
    qr_sizing again;
    cr_assert_eq(qr_sizing_resolve(model, &resolved, UINT64_MAX, &resolved, &again, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(again.total_bytes, s.total_bytes, "resolving twice changes nothing");
    quire_model_close(model);
}

Test(engine_sizing, the_planned_bytes_are_what_the_engine_takes) {
    quire_model *model = open_tiny(false);
    quire_engine_config config = f16, resolved;
    qr_sizing s;
    quire_error error;
    quire_engine *engine;
    quire_engine_stats stats;
    config.kv_block_count = 100;
    config.max_sequences = 4;
    cr_assert_eq(qr_sizing_resolve(model, &config, UINT64_MAX, &resolved, &s, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(quire_engine_create(&config, model, &engine, &error), QUIRE_OK, "%s", error.text);
    quire_engine_get_stats(engine, &stats);
    cr_assert_eq(stats.kv.block_total, 100);
    cr_assert_eq(stats.kv.pool_bytes, s.kv_pool_bytes);
    cr_assert_eq(stats.kv.bookkeeping_bytes, s.kv_bookkeeping_bytes);
    cr_assert_eq(stats.kv_bytes_per_token, s.kv_token_bytes);
    cr_assert_eq(stats.work_bytes, s.work_bytes);
    quire_engine_destroy(engine);
    quire_model_close(model);
}

Test(engine_sizing, lower_tiers_are_counted_beside_the_pool) {
    quire_model *model = open_tiny(true);
    quire_engine_config plain = f16, tiered, resolved;
    qr_sizing alone, with;
    quire_error error;
    plain.kv_memory_bytes = 64 << 20;
    tiered = plain;
    tiered.disk_cache_path = "/nowhere";
    tiered.disk_cache_max_bytes = (uint64_t)1 << 30;
    cr_assert_eq(qr_sizing_resolve(model, &plain, UINT64_MAX, &resolved, &alone, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(qr_sizing_resolve(model, &tiered, UINT64_MAX, &resolved, &with, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(with.block_count, alone.block_count, "the pool keeps what it was given");
    cr_assert_gt(with.tiers_bytes, 1 << 20);
    cr_assert_eq(with.total_bytes, alone.total_bytes + with.tiers_bytes);
    uint64_t memory = with.total_bytes;
    plain.kv_memory_bytes = tiered.kv_memory_bytes = 0;
    cr_assert_eq(qr_sizing_resolve(model, &plain, memory, &resolved, &alone, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(qr_sizing_resolve(model, &tiered, memory, &resolved, &with, &error), QUIRE_OK, "%s", error.text);
    cr_assert_lt(with.block_count, alone.block_count, "within one budget the pool makes room");
    cr_assert_leq(with.total_bytes, memory + memory / 100);
    quire_model_close(model);
}

static uint32_t namespaces_of(const quire_model *model, uint32_t waiting, uint32_t sequences, bool disk) {
    quire_engine_config config = f16, resolved;
    qr_engine_layout layout;
    qr_sizing sizing;
    quire_error error;
    config.max_waiting = waiting;
    config.max_sequences = sequences;
    config.kv_memory_bytes = 64 << 20;
    if (disk) config.disk_cache_path = "/nowhere";
    if (disk) config.disk_cache_max_bytes = (uint64_t)1 << 30;
    cr_assert_eq(qr_sizing_resolve(model, &config, UINT64_MAX, &resolved, &sizing, &error), QUIRE_OK, "%s", error.text);
    qr_sizing_layout(model, &resolved, &layout);
    return layout.kv.max_namespaces;
}

/* Nobody is refused for want of one, and what lies on a disk finds its own again. */
Test(engine_sizing, every_request_can_have_a_namespace_and_a_disk_has_thousands) {
    quire_model *model = open_tiny(true);
    uint32_t few = namespaces_of(model, 100, 8, false);
    cr_assert_gt(few, 108, "and some stay cached that nobody uses now");
    cr_assert_eq(namespaces_of(model, 101, 8, false), few + 1);
    cr_assert_eq(namespaces_of(model, 100, 9, false), few + 1);
    cr_assert_eq(namespaces_of(model, 100, 8, true), QUIRE_KV_DISK_NAMESPACES);
    uint32_t many = namespaces_of(model, 20000, 8, false);
    cr_assert(many > 20008 && namespaces_of(model, 20000, 8, true) == many);
    quire_model_close(model);
}

Test(engine_sizing, a_cap_that_is_too_small_is_refused_with_both_numbers) {
    quire_model *model = open_tiny(true);
    quire_engine_config c = f16, resolved;
    qr_sizing s;
    quire_error error;
    c.kv_block_count = 64;
    c.disk_cache_path = "/nowhere";
    c.disk_cache_max_bytes = 10000;
    cr_assert_eq(qr_sizing_resolve(model, &c, UINT64_MAX, &resolved, &s, &error), QUIRE_INVALID);
    cr_assert_str_eq(error.source, "disk_cache_max");
    cr_assert(strstr(error.text, "is 0.0 MiB") && strstr(error.text, "at least 0."), "%s", error.text);
    quire_model_close(model);
}

Test(engine_sizing, what_cannot_be_is_refused_with_its_numbers) {
    quire_model *model = open_tiny(true);
    quire_engine_config resolved, c;
    qr_sizing s;
    quire_error error;
    c = f16, c.kv_memory_bytes = 10000;
    cr_assert_eq(qr_sizing_resolve(model, &c, UINT64_MAX, &resolved, &s, &error), QUIRE_TOO_LARGE);
    cr_assert(strstr(error.text, "512 tokens") && strstr(error.text, "32 blocks"), "%s", error.text);
    cr_assert_eq(qr_sizing_resolve(model, &f16, 1000, &resolved, &s, &error), QUIRE_TOO_LARGE, "memory below the weights");
    struct {
        const char *field;
        quire_engine_config config;
    } wrong[] = {
        {"block_tokens", {.block_tokens = 20}},
        {"context", {.context_tokens = 513}},
        {"context", {.context_tokens = 1}},
        {"max_sequences", {.max_sequences = 5000}},
        {"threads", {.thread_count = -1}},
        {"kv_type", {.key_type = QUIRE_KV_INT8}},
        {"kv_blocks", {.kv_block_count = 5, .kv_memory_bytes = 5}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(qr_sizing_resolve(model, &wrong[i].config, UINT64_MAX, &resolved, &s, &error), QUIRE_INVALID);
        cr_assert_str_eq(error.source, wrong[i].field);
    }
    quire_engine *engine;
    cr_assert_eq(quire_engine_create(&f16, model, &engine, &error), QUIRE_INVALID, "no weights, no engine");
    cr_assert_null(engine);
    quire_model_close(model);
}
