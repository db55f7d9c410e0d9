#include "runtime/engine/cost_model.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The terms are scaled to the same order of magnitude, so that one weight of the prior suits all three. */
static const double row_unit = 64.0, position_unit = 65536.0;
/* A step counts half after about 35 further ones. */
static const double keep = 0.98;
/* Weight of the prior, in steps. */
static const double prior_weight = 0.05;
/* A small model on a laptop; replaced by measurements within a few steps. */
static const double prior_us[QR_COST_TERMS] = {2000.0, 32000.0, 20000.0};

void qr_cost_model_init(qr_cost_model *model) {
    memset(model, 0, sizeof *model);
    memcpy(model->us, prior_us, sizeof prior_us);
}

/* Gaussian elimination of a symmetric positive definite 3 x 3 system. */
static void solve(double a[QR_COST_TERMS][QR_COST_TERMS], double b[QR_COST_TERMS], double x[QR_COST_TERMS]) {
    for (int i = 0; i < QR_COST_TERMS; i++) {
        for (int r = i + 1; r < QR_COST_TERMS; r++) {
            double factor = a[r][i] / a[i][i];
            for (int c = i; c < QR_COST_TERMS; c++) a[r][c] -= factor * a[i][c];
            b[r] -= factor * b[i];
        }
    }
    for (int i = QR_COST_TERMS - 1; i >= 0; i--) {
        double sum = b[i];
        for (int c = i + 1; c < QR_COST_TERMS; c++) sum -= a[i][c] * x[c];
        x[i] = sum / a[i][i];
    }
}

/* Least squares with the terms in `zero` held at 0. */
static void fit_others(qr_cost_model *model, const bool zero[QR_COST_TERMS]) {
    double a[QR_COST_TERMS][QR_COST_TERMS], b[QR_COST_TERMS];
    memcpy(a, model->normal, sizeof a);
    memcpy(b, model->right, sizeof b);
    for (int i = 0; i < QR_COST_TERMS; i++) {
        a[i][i] += prior_weight;
        b[i] += prior_weight * prior_us[i];
    }
    for (int i = 0; i < QR_COST_TERMS; i++) {
        if (!zero[i]) continue;
        for (int j = 0; j < QR_COST_TERMS; j++) a[i][j] = a[j][i] = i == j;
        b[i] = 0;
    }
    solve(a, b, model->us);
}

/* No cost is negative: a term that comes out so is held at 0 and the others are fitted again. */
static void fit(qr_cost_model *model) {
    bool zero[QR_COST_TERMS] = {false}, again = true;
    while (again) {
        again = false;
        fit_others(model, zero);
        for (int i = 0; i < QR_COST_TERMS; i++) {
            if (!(model->us[i] < 0)) continue;
            zero[i] = again = true;
            model->us[i] = 0;
        }
    }
}

void qr_cost_model_observe(qr_cost_model *model, uint32_t rows, uint64_t position_sum, uint64_t duration_us) {
    double terms[QR_COST_TERMS] = {1.0, rows / row_unit, (double)position_sum / position_unit};
    /* A long step must not outweigh a hundred short ones: each counts by its relative error. */
    double weight = 1.0 / (1.0 + terms[1] * terms[1] + terms[2] * terms[2]);
    for (int i = 0; i < QR_COST_TERMS; i++) {
        for (int j = 0; j < QR_COST_TERMS; j++) {
            model->normal[i][j] = keep * model->normal[i][j] + weight * terms[i] * terms[j];
        }
        model->right[i] = keep * model->right[i] + weight * terms[i] * (double)duration_us;
    }
    fit(model);
}

double qr_cost_model_predict_us(const qr_cost_model *model, uint32_t rows, uint64_t position_sum) {
    return model->us[0] + model->us[1] * (rows / row_unit) + model->us[2] * ((double)position_sum / position_unit);
}

uint32_t qr_cost_model_rows(const qr_cost_model *model, double time_us, uint32_t position, uint32_t rows_max) {
    /* half r^2 + linear r = time */
    double half = model->us[2] / position_unit * 0.5;
    double linear = model->us[1] / row_unit + model->us[2] / position_unit * position;
    if (!(time_us > 0)) return 0;
    double rows = rows_max;
    if (half > 1e-12) {
        rows = (sqrt(linear * linear + 4 * half * time_us) - linear) / (2 * half);
    } else if (linear > 1e-12) {
        rows = time_us / linear;
    }
    return rows < rows_max ? (uint32_t)rows : rows_max;
}
