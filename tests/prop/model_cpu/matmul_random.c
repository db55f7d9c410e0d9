/* matmul_random.c - random formats, shapes, rows and pieces: vector paths against the definition. The seed is printed; set
 * QUIRE_SEED to replay one. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "base/clock.h"
#include "tests/support/matmul_cases.h"

enum { CASES = 400 };

static uint64_t test_seed(void) {
    const char *given = getenv("QUIRE_SEED");
    return given ? strtoull(given, NULL, 0) : qr_clock_ns();
}

typedef struct random_case {
    qr_weight_type type;
    uint32_t n, k, m;
    case_rows kind;
    int fill;
} random_case;

static random_case draw_case(qr_random *r) {
    static const int fills[] = {-1, -1, -1, 0x00, 0x7f, 0x80, 0xff};
    random_case c = {.type = (qr_weight_type)qr_random_below(r, QR_WEIGHT_TYPE_COUNT)};
    uint32_t block = qr_weight_block_elements(c.type);
    c.n = 1 + qr_random_below(r, 70);
    c.k = block * (1 + qr_random_below(r, block == 1 ? 300 : block == 32 ? 20 : 3));
    c.m = 1 + qr_random_below(r, qr_random_below(r, 4) ? 20 : 100);
    c.kind = (case_rows)qr_random_below(r, CASE_ROWS_COUNT);
    c.fill = fills[qr_random_below(r, 7)];
    return c;
}

/* The product by random pieces of panels, quantised by random pieces of rows. */
static void product_in_pieces(const qr_ops_path *path, const qr_matrix *w, uint32_t m, const float *x, float *y, qr_random *r) {
    uint8_t *memory = qr_alloc_zero(qr_acts_bytes(m, w->k) + 64, 1), *scratch = qr_alloc_zero(qr_matmul_scratch_bytes(w->k), 1);
    qr_acts acts;
    qr_acts_init(&acts, m, w->k, x, w->k, memory);
    for (uint32_t row = 0, next; row < m && !qr_weight_is_float(w->type); row = next) {
        next = row + 1 + qr_random_below(r, m - row);
        path->quantize(&acts, row, next);
    }
    uint32_t panels = (w->n + 15) / 16;
    for (uint32_t p = 0, next; p < panels; p = next) {
        next = p + 1 + qr_random_below(r, panels - p);
        path->matmul(w, &acts, y, w->n, p, next, scratch);
    }
    free(memory);
    free(scratch);
}

static void run_case(const random_case *c, qr_random *r, uint64_t seed) {
    const qr_ops_path *paths[CASE_PATHS_MAX];
    int count = case_paths(paths);
    case_matrix matrix = case_matrix_make(c->type, c->n, c->k, c->fill, r);
    float *x = case_x(c->m, c->k, c->kind, r);
    size_t size = (size_t)c->m * c->n;
    float *expected = malloc(size * sizeof *expected), *y = malloc(size * sizeof *y);
    case_product(paths[0], &matrix.matrix, c->m, x, expected, c->n);
    for (int p = 0; p < count; p++) {
        product_in_pieces(paths[p], &matrix.matrix, c->m, x, y, r);
        cr_assert_eq(case_differences(y, expected, size), 0, "seed %" PRIu64 ": %s %s n=%u k=%u m=%u rows %d fill %d", seed,
                     paths[p]->name, qr_weight_type_name(c->type), c->n, c->k, c->m, c->kind, c->fill);
    }
    free(expected);
    free(y);
    free(x);
    case_matrix_free(&matrix);
}

Test(model_cpu_matmul_random, vector_paths_equal_the_definition) {
    uint64_t seed = test_seed();
    cr_log_info("QUIRE_SEED=%" PRIu64, seed);
    qr_random r = {seed};
    for (int i = 0; i < CASES; i++) {
        random_case c = draw_case(&r);
        run_case(&c, &r, seed);
    }
}
