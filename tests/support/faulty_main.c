/* faulty_main.c - `quire_faulty`: the `quire` command over parts that fail as QUIRE_FAULTS says (tests/support/faults.h).
 *
 * The same code and the same options; files and device are others. Never installed; the release command has none of it. Its
 * last line on standard error counts the faults that happened, so that a test can prove that it met them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cli/commands.h"
#include "tests/support/faulty_calls.h"
#include "tests/support/faulty_files.h"

enum { EXIT_FAULTS = 64 };

static int fail(const quire_error *error) {
    (void)fprintf(stderr, "quire_faulty: %s: %s\n", error->source, error->text);
    return EXIT_FAULTS;
}

static void report(faulty_files *files) {
    faulty_counts counts;
    faulty_files_get_counts(files, &counts);
    (void)fprintf(stderr,
                  "faults: delayed=%" PRIu64 " flips=%" PRIu64 " failures=%" PRIu64 " no_space=%" PRIu64
                  " system_calls=%" PRIu64 "\n",
                  counts.delayed, counts.flips, counts.failures, counts.no_space, faulty_calls_count());
}

int main(int argc, char **argv) {
    const char *text = getenv("QUIRE_FAULTS");
    quire_error error = {.source = "QUIRE_FAULTS", .text = "no memory"};
    faults f;
    qr_kv_parts parts = {0};
    if (faults_parse(text ? text : "", &f, &error) != QUIRE_OK) return fail(&error);
    faulty_files *files = faulty_files_create(qr_files_system(), &f, false);
    if (!files) return fail(&error);
    parts.files = faulty_files_table(files);
    if (faults_want_device(&f) && qr_device_sim_create(&f.device, &parts.device) != QUIRE_OK) return fail(&error);
    parts.host_tier = f.host_tier;
    faulty_calls_set(&f);
    int code = qr_cli_main(argc, argv, &parts);
    report(files);
    faulty_files_destroy(files);
    return code;
}
