/* The engine on a tiny model with random weights: the laws, end to end. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/engine/sizing.h"
#include "tests/support/engine_laws.h"
#include "tests/support/tiny_model.h"

static quire_model *open_tiny(void) {
    tiny_model tiny = tiny_model_of(QR_WEIGHT_Q4_1);
    size_t size;
    tiny.context = 512;
    uint8_t *file = tiny_model_file(&tiny, &size);
    char path[32];
    write_temporary(file, size, path);
    free(file);
    quire_model *model = NULL;
    quire_error error;
    quire_status status = quire_model_open(path, &(quire_model_options){.thread_count = 1}, &model, &error);
    unlink(path);
    cr_assert_eq(status, QUIRE_OK, "%s", error.text);
    return model;
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
