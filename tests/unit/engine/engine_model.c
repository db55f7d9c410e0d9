/* The engine on a tiny model with random weights: the laws, end to end. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "runtime/engine/sizing.h"
#include "tests/support/engine_laws.h"
#include "tests/support/tiny_model.h"

static quire_model *open_tiny(void) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_1);
    tiny.context = 512;
    return tiny_model_open(&tiny, &(quire_model_options){.thread_count = 1});
}

Test(engine_model, cached_equals_cold) {
    engine_laws laws = {open_tiny(), 150, 24};
    cr_assert_eq(engine_laws_cached_equals_cold(&laws), 0);
    quire_model_close(laws.model);
}

Test(engine_model, company_changes_nothing) {
    engine_laws laws = {open_tiny(), 150, 24};
    cr_assert_eq(engine_laws_company(&laws), 0);
    quire_model_close(laws.model);
}

Test(engine_model, threads_steps_and_block_sizes_change_nothing) {
    engine_laws laws = {open_tiny(), 150, 24};
    cr_assert_eq(engine_laws_threads_and_steps(&laws), 0);
    quire_model_close(laws.model);
}

Test(engine_model, forks_change_nothing) {
    engine_laws laws = {open_tiny(), 150, 24};
    cr_assert_eq(engine_laws_forks(&laws), 0);
    quire_model_close(laws.model);
}

Test(engine_model, pauses_change_nothing) {
    engine_laws laws = {open_tiny(), 60, 80};
    cr_assert_eq(engine_laws_pauses(&laws), 0);
    quire_model_close(laws.model);
}

#if defined(__x86_64__)
static void read_mode(void *context) { *(_Atomic unsigned *)context = __builtin_ia32_stmxcsr(); }

Test(engine_model, the_engine_keeps_subnormals_whatever_its_creator_does) {
    enum { FLUSH_TO_ZERO = 1 << 15, DENORMALS_ARE_ZERO = 1 << 6, ROUNDING = 3 << 13 };
    _Atomic unsigned mode = 0;
    quire_model *model = open_tiny();
    quire_engine *engine;
    quire_engine_config config = {.block_tokens = 16,
                                  .kv_block_count = 64,
                                  .key_type = QUIRE_KV_F16,
                                  .value_type = QUIRE_KV_F16,
                                  .thread_count = 1,
                                  .wake = read_mode,
                                  .wake_context = &mode};
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    quire_status status = quire_engine_create(&config, model, &engine, NULL);
    __builtin_ia32_ldmxcsr(before);
    cr_assert_eq(status, QUIRE_OK);
    quire_request request = {.id = 1,
                             .prompt = (quire_token[]){5, 6},
                             .prompt_count = 2,
                             .choice_count = 1,
                             .max_tokens = 2,
                             .top_logprobs = -1,
                             .sampling = {.top_p = 1, .repetition_penalty = 1}};
    cr_assert_eq(quire_engine_submit(engine, &request, NULL), QUIRE_OK);
    quire_event event = {0};
    while (event.kind != QUIRE_EVENT_DONE) {
        if (quire_engine_poll(engine, &event, 1) == 0) usleep(1000);
    }
    cr_assert_eq(mode & (FLUSH_TO_ZERO | DENORMALS_ARE_ZERO | ROUNDING), 0, "mode %#x", mode);
    quire_engine_destroy(engine);
    quire_model_close(model);
}
#endif

/* ---- the end ---- */

enum { LIVE = 6 };

typedef struct owner {
    _Atomic bool engine_gone;
    _Atomic uint32_t late_wakes;
} owner;

static void count_late(void *context) {
    owner *o = context;
    if (o->engine_gone) o->late_wakes++;
}

/* Two run at once, so some wait. */
static quire_engine *start_busy(quire_model *model, owner *o) {
    quire_engine *engine;
    quire_engine_config config = {.block_tokens = 16,
                                  .kv_block_count = 64,
                                  .max_sequences = 2,
                                  .key_type = QUIRE_KV_F16,
                                  .value_type = QUIRE_KV_F16,
                                  .thread_count = 1,
                                  .wake = count_late,
                                  .wake_context = o};
    cr_assert_eq(quire_engine_create(&config, model, &engine, NULL), QUIRE_OK);
    for (uint64_t id = 0; id < LIVE; id++) {
        quire_request request = {.id = id,
                                 .prompt = (quire_token[]){5, 6, 7},
                                 .prompt_count = 3,
                                 .choice_count = 1 + id % 2,
                                 .max_tokens = 400,
                                 .ignore_eos = true,
                                 .top_logprobs = -1,
                                 .sampling = {.top_p = 1, .repetition_penalty = 1}};
        cr_assert_eq(quire_engine_submit(engine, &request, NULL), QUIRE_OK);
    }
    quire_event event = {0};
    while (event.kind != QUIRE_EVENT_TOKEN)
        if (quire_engine_poll(engine, &event, 1) == 0) usleep(1000);
    return engine;
}

Test(engine_model, destroying_a_busy_engine_calls_nobody_afterwards) {
    quire_model *model = open_tiny();
    for (int round = 0; round < 4; round++) {
        owner o = {.engine_gone = false};
        quire_engine *engine = start_busy(model, &o);
        quire_engine_destroy(engine);
        o.engine_gone = true;
        cr_expect_eq(o.late_wakes, 0);
    }
    quire_model_close(model);
}

Test(engine_model, who_cancels_and_polls_gets_every_end_before_it_destroys, .timeout = 60) {
    quire_model *model = open_tiny();
    owner o = {.engine_gone = false};
    quire_engine *engine = start_busy(model, &o);
    uint32_t ends[LIVE] = {0}, open = LIVE;
    quire_engine_drain(engine);
    for (uint64_t id = 0; id < LIVE; id++) quire_engine_cancel(engine, id);
    while (open > 0) {
        quire_event event;
        if (quire_engine_poll(engine, &event, 1) == 0) {
            usleep(1000);
            continue;
        }
        cr_assert_eq(ends[event.request_id], 0, "an event after DONE");
        if (event.kind != QUIRE_EVENT_DONE) continue;
        cr_expect_eq(event.finish, QUIRE_FINISH_CANCELLED);
        ends[event.request_id]++;
        open--;
    }
    quire_engine_destroy(engine);
    quire_model_close(model);
}
