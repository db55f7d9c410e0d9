/* replay.c - runs a fuzz target without libFuzzer: replay CORPUS_DIR MUTATIONS [SEED].
 *
 * Every file of the corpus is given to the target as it is; then seeded mutations of random corpus files: bytes
 * changed, small and huge integers written, parts cut, repeated and spliced. An input that crashes is left in
 * crash-<target>-<pid> in the working folder. Deterministic for a seed, so a failure can be run again.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

enum { INPUT_MAX = 1 << 20 };

static const input *volatile running; /* for the signal handler */
static char crash_name[256];

static void on_crash(int signal_number) {
    const input *in = running;
    int fd = open(crash_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (in && fd >= 0) {
        ssize_t written = write(fd, in->data, in->size);
        (void)written;
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void run(const input *in) {
    /* A block of its own size, so that a sanitizer sees any read behind the end. */
    input exact = {malloc(in->size ? in->size : 1), in->size};
    if (!exact.data) abort();
    memcpy(exact.data, in->data, in->size);
    running = &exact;
    LLVMFuzzerTestOneInput(exact.data, exact.size);
    running = NULL;
    free(exact.data);
}

/* ---- corpus ---- */

static bool read_input(const char *path, input *in) {
    struct stat about;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool ok = !fstat(fileno(f), &about) && S_ISREG(about.st_mode) && about.st_size <= INPUT_MAX;
    if (ok) {
        in->size = (size_t)about.st_size;
        in->data = malloc(in->size + 1);
        ok = in->data && fread(in->data, 1, in->size, f) == in->size;
    }
    (void)fclose(f);
    return ok;
}

static int order_names(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static size_t read_corpus(const char *folder, input **corpus) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, order_names); /* sorted: readdir's order would change the mutations */
    size_t kept = 0;
    *corpus = calloc(count > 0 ? (size_t)count : 1, sizeof **corpus);
    if (!*corpus) abort();
    for (int i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (read_input(path, &(*corpus)[kept])) kept++;
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return kept;
}

/* ---- mutation ---- */

static size_t place(qr_random *r, const input *in) { return in->size ? (size_t)(qr_random_u64(r) % in->size) : 0; }

static void write_integer(qr_random *r, input *in) {
    static const uint64_t values[] = {
        0,     1,     2,         3,          31,         127,        128,       255,        256,        32767,
        65535, 65536, INT32_MAX, 1ull << 31, UINT32_MAX, 1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX, UINT64_MAX - 31};
    uint64_t value = values[qr_random_below(r, sizeof values / sizeof *values)];
    size_t width = (size_t)1 << qr_random_below(r, 4), at = place(r, in);
    if (at + width <= in->size) memcpy(in->data + at, &value, width);
}

static void cut(qr_random *r, input *in) {
    size_t at = place(r, in), length = 1 + qr_random_below(r, 32);
    if (at + length > in->size) length = in->size - at;
    memmove(in->data + at, in->data + at + length, in->size - at - length);
    in->size -= length;
}

/* Copies a part of another input into this one. */
static void splice_part(qr_random *r, input *in, const input *from) {
    size_t at = place(r, in), source = place(r, from), length = 1 + qr_random_below(r, 64);
    if (source + length > from->size) length = from->size - source;
    if (in->size + length > INPUT_MAX) return;
    memmove(in->data + at + length, in->data + at, in->size - at);
    memcpy(in->data + at, from->data + source, length);
    in->size += length;
}

static void mutate(qr_random *r, input *in, const input *other) {
    for (uint32_t changes = 1 + qr_random_below(r, 4); changes; changes--) {
        switch (qr_random_below(r, 6)) {
        case 0:
            if (in->size) in->data[place(r, in)] ^= (uint8_t)(1u << qr_random_below(r, 8));
            break;
        case 1:
            if (in->size) in->data[place(r, in)] = (uint8_t)qr_random_u64(r);
            break;
        case 2: write_integer(r, in); break;
        case 3: cut(r, in); break;
        case 4: splice_part(r, in, other); break;
        default:
            if (qr_random_below(r, 8) == 0) in->size = place(r, in);
            break;
        }
    }
}

static void replay_mutations(const input *corpus, size_t count, unsigned long mutations, uint64_t seed) {
    qr_random r = {seed};
    input in = {malloc(INPUT_MAX), 0};
    if (!in.data) abort();
    for (unsigned long i = 0; count && i < mutations; i++) {
        const input *base = &corpus[qr_random_below(&r, (uint32_t)count)];
        const input *other = &corpus[qr_random_below(&r, (uint32_t)count)];
        memcpy(in.data, base->data, base->size);
        in.size = base->size;
        mutate(&r, &in, other);
        run(&in);
    }
    free(in.data);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        (void)fprintf(stderr, "usage: %s CORPUS_DIR MUTATIONS [SEED]\n", argv[0]);
        return 2;
    }
    const char *slash = strrchr(argv[0], '/');
    (void)snprintf(crash_name, sizeof crash_name, "crash-%.100s-%d", slash ? slash + 1 : argv[0], (int)getpid());
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    input *corpus;
    size_t count = read_corpus(argv[1], &corpus);
    if (!count) {
        (void)fprintf(stderr, "%s: no corpus files\n", argv[1]);
        return 1;
    }
    unsigned long mutations = strtoul(argv[2], NULL, 10);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    for (size_t i = 0; i < count; i++) run(&corpus[i]);
    replay_mutations(corpus, count, mutations, seed);
    printf("%zu corpus files, %lu mutations, seed %llu\n", count, mutations, (unsigned long long)seed);
    for (size_t i = 0; i < count; i++) free(corpus[i].data);
    free(corpus);
    return 0;
}
