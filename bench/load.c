/* load.c - opening a model with its fingerprint hashed and with it remembered, interleaved, file cached and not.
 *
 * One JSON line per state of the page cache: least and median milliseconds of both sides and the median of the ratios of
 * pairs. Loading drops the file from the page cache, so "cached" reads it back before each open. A sidecar is only kept of a
 * file that did not change in the last seconds. Arguments: [pairs] [threads].
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/model_file.h"
#include <quire/model.h>

enum { PAIRS_MAX = 99 };

static int order_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, order_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void set_page_cache(const char *path, bool cached) {
    static char buffer[1 << 20];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (!cached) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    while (cached && read(fd, buffer, sizeof buffer) > 0) continue;
    close(fd);
}

static double open_ms(const char *path, bool cached, const quire_model_options *options) {
    quire_model *model;
    quire_error error;
    set_page_cache(path, cached);
    uint64_t begin = qr_clock_ns();
    if (quire_model_open(path, options, &model, &error)) {
        (void)fprintf(stderr, "%s: %s\n", error.source, error.text);
        exit(1);
    }
    double ms = (double)(qr_clock_ns() - begin) * 1e-6;
    quire_model_close(model);
    return ms;
}

static void run_pairs(const char *path, bool cached, int pairs, const quire_model_options *known) {
    double hashed[PAIRS_MAX], remembered[PAIRS_MAX], ratios[PAIRS_MAX];
    quire_model_options hashing = *known;
    hashing.fingerprint_folder = NULL;
    (void)open_ms(path, cached, known); /* warm-up; leaves the sidecar */
    for (int i = 0; i < pairs; i++) {
        bool first = i % 2; /* neither side always goes first */
        if (first) remembered[i] = open_ms(path, cached, known);
        hashed[i] = open_ms(path, cached, &hashing);
        if (!first) remembered[i] = open_ms(path, cached, known);
        ratios[i] = remembered[i] / hashed[i];
    }
    double median_hashed = median(hashed, pairs), median_remembered = median(remembered, pairs);
    printf("{\"bench\": \"load\", \"file\": \"%s\", \"threads\": %d, \"pairs\": %d, \"hashed_min_ms\": %.2f, "
           "\"hashed_median_ms\": %.2f, \"remembered_min_ms\": %.2f, \"remembered_median_ms\": %.2f, \"ratio\": %.3f}\n",
           cached ? "cached" : "on disk", known->thread_count, pairs, hashed[0], median_hashed, remembered[0],
           median_remembered, median(ratios, pairs));
    (void)fflush(stdout);
}

int main(int argc, char **argv) {
    char path[4096], root[] = "/tmp/quire-load-XXXXXX", folder[64], command[80];
    int pairs = argc > 1 ? atoi(argv[1]) : 15;
    if (pairs < 1 || pairs > PAIRS_MAX || !find_model_file(path, sizeof path) || !mkdtemp(root)) {
        (void)fprintf(stderr, "usage: QUIRE_MODEL=FILE %s [pairs up to %d] [threads]\n", argv[0], PAIRS_MAX);
        return 2;
    }
    (void)snprintf(folder, sizeof folder, "%s/fingerprints", root);
    const quire_model_options known = {.fingerprint_folder = folder, .thread_count = argc > 2 ? atoi(argv[2]) : 2};
    run_pairs(path, true, pairs, &known);
    run_pairs(path, false, pairs, &known);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) ? 1 : 0;
}
