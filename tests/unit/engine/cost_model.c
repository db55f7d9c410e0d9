#include "runtime/engine/cost_model.h"

#include <criterion/criterion.h>
#include <math.h>

#include "base/random.h"

static uint64_t truth_us(uint32_t rows, uint64_t positions) { return 3000 + 400 * (uint64_t)rows + positions / 5; }

Test(engine_cost_model, learns_a_machine_within_a_few_steps) {
    qr_cost_model m;
    qr_random r = {1};
    qr_cost_model_init(&m);
    for (int i = 0; i < 200; i++) {
        uint32_t rows = 1 + qr_random_below(&r, 200);
        uint64_t positions = (uint64_t)rows * qr_random_below(&r, 4000);
        qr_cost_model_observe(&m, rows, positions, truth_us(rows, positions));
    }
    for (uint32_t rows = 1; rows < 512; rows += 37) {
        for (uint64_t depth = 0; depth < 4000; depth += 500) {
            double want = (double)truth_us(rows, rows * depth), got = qr_cost_model_predict_us(&m, rows, rows * depth);
            cr_assert(fabs(got - want) < 0.05 * want, "%u rows at %llu: %g, not %g", rows, (unsigned long long)depth, got,
                      want);
        }
    }
}

Test(engine_cost_model, forgets_what_no_longer_holds) {
    qr_cost_model m;
    qr_cost_model_init(&m);
    for (int i = 0; i < 300; i++) qr_cost_model_observe(&m, 1 + (uint32_t)i % 64, 64000, 100000);
    for (int i = 0; i < 300; i++) qr_cost_model_observe(&m, 1 + (uint32_t)i % 64, 64000, 5000);
    cr_assert(fabs(qr_cost_model_predict_us(&m, 32, 64000) - 5000) < 500);
}

Test(engine_cost_model, rows_fit_the_time_that_is_given) {
    qr_cost_model m;
    qr_random r = {2};
    qr_cost_model_init(&m);
    for (int i = 0; i < 300; i++) {
        uint32_t rows = 1 + qr_random_below(&r, 200);
        qr_cost_model_observe(&m, rows, (uint64_t)rows * 2000, truth_us(rows, (uint64_t)rows * 2000));
    }
    for (uint32_t position = 0; position < 8000; position += 411) {
        for (double time_us = 100; time_us < 1e6; time_us *= 3) {
            uint32_t rows = qr_cost_model_rows(&m, time_us, position, 512);
            double none = qr_cost_model_predict_us(&m, 0, 0);
            uint64_t sum = (uint64_t)rows * position + (uint64_t)rows * rows / 2;
            cr_assert(qr_cost_model_predict_us(&m, rows, sum) - none <= time_us * 1.01 + 1);
            uint64_t next = (uint64_t)(rows + 2) * position + (uint64_t)(rows + 2) * (rows + 2) / 2;
            if (rows < 512) cr_assert(qr_cost_model_predict_us(&m, rows + 2, next) - none > time_us * 0.99);
        }
    }
    cr_assert_eq(qr_cost_model_rows(&m, -5, 0, 512), 0);
    cr_assert_eq(qr_cost_model_rows(&m, NAN, 0, 512), 0);
    cr_assert_eq(qr_cost_model_rows(&m, 1e12, 0, 512), 512);
}

Test(engine_cost_model, terms_are_never_negative) {
    qr_cost_model m;
    qr_random r = {3};
    qr_cost_model_init(&m);
    for (int i = 0; i < 2000; i++) {
        qr_cost_model_observe(&m, 1 + qr_random_below(&r, 500), qr_random_below(&r, 1000000), qr_random_below(&r, 1000000));
        for (int t = 0; t < QR_COST_TERMS; t++) cr_assert(m.us[t] >= 0 && isfinite(m.us[t]));
    }
}
