/* cost_model.h - how long a step will take, learnt from the steps that ran.
 *
 * duration = step + row * rows + position * (sum of the rows' positions): the fixed cost of a step (weights are read
 * once), the work per row and the attention per position. The three are fitted by least squares over recent steps with
 * exponential forgetting, pulled towards a prior so that they are defined before the first step. It only steers how much
 * prefill joins a step; answers never depend on it (law 1).
 *
 * Plain data, deterministic. Thread: one. */
#ifndef QR_ENGINE_COST_MODEL_H
#define QR_ENGINE_COST_MODEL_H

#include <stdint.h>

enum { QR_COST_TERMS = 3 };

typedef struct qr_cost_model {
    double normal[QR_COST_TERMS][QR_COST_TERMS]; /* sums of products of the terms */
    double right[QR_COST_TERMS];
    double us[QR_COST_TERMS]; /* fitted: per step, per 64 rows, per 65,536 positions; never negative */
} qr_cost_model;

void qr_cost_model_init(qr_cost_model *model);
void qr_cost_model_observe(qr_cost_model *model, uint32_t rows, uint64_t position_sum, uint64_t duration_us);
double qr_cost_model_predict_us(const qr_cost_model *model, uint32_t rows, uint64_t position_sum);
/* Rows of one sequence, from `position` on, that fit into time_us beside what is planned already (no fixed cost). */
uint32_t qr_cost_model_rows(const qr_cost_model *model, double time_us, uint32_t position, uint32_t rows_max);
#endif
