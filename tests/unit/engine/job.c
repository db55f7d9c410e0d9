/* What a waiting request costs, and what it copies. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine/job.h"

TestSuite(engine_job);

enum { PROMPT = 100000, JOBS = 16 };

static size_t resident_bytes(void) {
    size_t total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_eq(fscanf(file, "%zu %zu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* A queue is bounded by its number of requests, so each must be small: 64 choices share the prompt until they are forked. */
Test(engine_job, many_choices_of_a_long_prompt_that_waits_take_the_memory_of_one) {
    quire_token *prompt = calloc(PROMPT, sizeof *prompt);
    for (int i = 0; i < PROMPT; i++) prompt[i] = i;
    quire_request request = {.prompt = prompt, .prompt_count = PROMPT, .choice_count = QUIRE_CHOICES_MAX, .max_tokens = PROMPT};
    qr_job *jobs[JOBS];
    size_t before = resident_bytes(), one = PROMPT * sizeof *prompt;
    for (int i = 0; i < JOBS; i++) cr_assert_not_null(jobs[i] = qr_job_create(&request, 4 * PROMPT));
    size_t each = (resident_bytes() - before) / JOBS;
    cr_expect_lt(each, 4 * one, "%zu bytes for a prompt of %zu", each, one);
    cr_expect(memcmp(jobs[0]->choices[0].tokens, prompt, one) == 0);
    cr_expect(jobs[0]->request.prompt == jobs[0]->choices[0].tokens && jobs[0]->choices[63].known == PROMPT);
    for (int i = 0; i < JOBS; i++) qr_job_destroy(jobs[i]);
    free(prompt);
}
