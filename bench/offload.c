/* offload.c - benchmarks of the disk store on real files: JSON lines.
 *
 *   bench_offload restore FOLDER [rounds]     reading a file raw against restoring long runs of blocks through the store
 *   bench_offload restart FOLDER [records]    opening a folder with 10,000 records, 100,000 and so on up to this many
 *   bench_offload put FOLDER [records]        writing: rate, and what a record costs the CPUs
 *
 * Restore: 1.4 GiB in chains of 250 blocks (4,000 tokens of a small model: 360 KiB a block). Raw reads and restores take turns,
 * each with 1, 2 and 4 threads; the page cache is asked to drop the files before. A restore is what a load does: gets back
 * to front, checksum, copy into a pool. FOLDER is made, and removed again.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/memory.h"
#include "offload/disk_store.h"

enum {
    MIB = 1 << 20,
    BLOCK_TOKENS = 16,
    PAYLOAD_BYTES = 90 * 4096,
    CHAIN = 250,
    CHAINS = 16,
    ROUNDS_MAX = 64,
    FILES_MAX = 4096
};

typedef struct bench_store {
    char folder[512];
    uint64_t payload_bytes;
    uint32_t record_count, chain;
    qr_store *store;
    qr_record_id *records; /* [record_count] */
    sem_t woken;
    unsigned char *pool; /* [chain][payload_bytes] */
} bench_store;

/* ---- the store ---- */

static void on_wake(void *context) { (void)sem_post(&((bench_store *)context)->woken); }

static quire_token token_of(uint32_t record, uint32_t place) { return (quire_token)(record * 31 + place) & 0xffff; }

static uint64_t cap_of(const bench_store *b) {
    uint64_t bytes = (uint64_t)b->record_count * (b->payload_bytes + 4096 + 8192);
    uint64_t least = qr_disk_cap_min_bytes(b->payload_bytes, BLOCK_TOKENS);
    return bytes + bytes / 4 + 2 * least;
}

static void store_open(bench_store *b, uint32_t readers) {
    quire_error error;
    qr_disk_config config = {.path = b->folder,
                             .cap_bytes = cap_of(b),
                             .free_floor_bytes = 4096,
                             .payload_bytes = b->payload_bytes,
                             .block_tokens = BLOCK_TOKENS,
                             .fingerprint = {1, 2, 3, 4},
                             .reader_count = readers,
                             .wake = on_wake,
                             .wake_context = b};
    if (qr_disk_open(&config, &b->store, &error) == QUIRE_OK) return;
    (void)fprintf(stderr, "%s: %s\n", error.source, error.text);
    exit(1);
}

static uint32_t on_found(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner, bool foreign) {
    bench_store *b = context;
    QR_ASSERT(!foreign);
    uint32_t index = parent_owner + 1; /* a chain's key is the number of its first record */
    if (info->depth == 1) memcpy(&index, info->namespace_key, sizeof index);
    QR_ASSERT(index < b->record_count);
    b->records[index] = record;
    return index;
}

static void store_index(bench_store *b) { b->store->ops->index(b->store, on_found, b); }

static void store_close(bench_store *b) { b->store->ops->close(b->store); }

static void wait_for_work(bench_store *b) { (void)sem_wait(&b->woken); }

/* ---- writing ---- */

static void put_event(bench_store *b, uint32_t *done) {
    qr_store_event event;
    while (b->store->ops->poll(b->store, qr_clock_us(), &event)) {
        QR_ASSERT(event.kind != QR_STORE_PUT_DONE || event.status == QUIRE_OK);
        QR_ASSERT(event.kind != QR_STORE_LOST);
        *done += event.kind == QR_STORE_PUT_DONE;
    }
}

static bool put_one(bench_store *b, uint32_t index, const unsigned char *bytes) {
    quire_token tokens[BLOCK_TOKENS];
    uint32_t first = index - index % b->chain;
    qr_record_info info = {&first, sizeof first, QR_RECORD_NONE, index % b->chain + 1, tokens};
    void *payload;
    if (index % b->chain) info.parent = b->records[index - 1];
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++) tokens[i] = token_of(index, i);
    qr_store_refusal refusal = b->store->ops->put_begin(b->store, &info, index, &b->records[index], &payload);
    QR_ASSERT(refusal == QR_STORE_NONE || refusal == QR_STORE_BUSY);
    if (refusal != QR_STORE_NONE) return false;
    memcpy(payload, bytes, b->payload_bytes);
    b->store->ops->put_submit(b->store, b->records[index]);
    return true;
}

static void fill_store(bench_store *b) {
    unsigned char *bytes = qr_alloc_zero(1, b->payload_bytes);
    uint32_t done = 0;
    QR_ASSERT(bytes != NULL);
    for (uint64_t i = 0; i < b->payload_bytes; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < b->record_count;) {
        if (put_one(b, i, bytes)) i++;
        else wait_for_work(b);
        put_event(b, &done);
    }
    while (done < b->record_count) {
        put_event(b, &done);
        if (done < b->record_count) wait_for_work(b);
    }
    free(bytes);
}

static void bench_init(bench_store *b, const char *folder, uint64_t payload_bytes, uint32_t records, uint32_t chain) {
    *b = (bench_store){.payload_bytes = payload_bytes, .record_count = records, .chain = chain};
    (void)snprintf(b->folder, sizeof b->folder, "%s", folder);
    b->records = qr_alloc_zero(records, sizeof *b->records);
    b->pool = qr_alloc_zero(chain, payload_bytes);
    QR_ASSERT(b->records && b->pool && sem_init(&b->woken, 0, 0) == 0);
}

static void bench_deinit(bench_store *b) {
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", b->folder);
    QR_ASSERT(system(command) == 0);
    (void)sem_destroy(&b->woken);
    free(b->records);
    free(b->pool);
}

/* ---- files ---- */

typedef struct file_list {
    char paths[FILES_MAX][600];
    uint32_t count;
} file_list;

static void list_files(const bench_store *b, file_list *files) {
    char command[600], *line = NULL;
    size_t capacity = 0;
    (void)snprintf(command, sizeof command, "ls '%s'/segment-*", b->folder);
    FILE *names = popen(command, "re");
    QR_ASSERT(names != NULL);
    for (files->count = 0; files->count < FILES_MAX && getline(&line, &capacity, names) > 0; files->count++) {
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(files->paths[files->count], sizeof files->paths[0], "%.590s", line);
    }
    free(line);
    (void)pclose(names);
}

static void drop_page_cache(const file_list *files) {
    for (uint32_t i = 0; i < files->count; i++) {
        int fd = open(files->paths[i], O_RDONLY | O_CLOEXEC);
        QR_ASSERT(fd >= 0);
        (void)fdatasync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
}

/* ---- reading raw ---- */

typedef struct raw_read {
    const file_list *files;
    int flags;
    size_t part_bytes;
    uint64_t limit_bytes;
    _Atomic uint64_t next_part; /* over all files, in order */
    _Atomic uint64_t bytes;
} raw_read;

static uint64_t file_bytes(const char *path) {
    struct stat about;
    QR_ASSERT(stat(path, &about) == 0);
    return (uint64_t)about.st_size;
}

static void *raw_thread(void *context) {
    raw_read *raw = context;
    qr_region part; /* in huge pages, as the store's buffers are: that alone is half the rate */
    QR_ASSERT(qr_region_alloc(raw->part_bytes < 4 * MIB ? 4 * MIB : raw->part_bytes, &part, NULL) == QUIRE_OK);
    memset(part.base, 1, part.size_bytes);
    uint64_t parts_a_file = file_bytes(raw->files->paths[0]) / raw->part_bytes;
    int fd = -1;
    uint64_t opened = UINT64_MAX;
    for (;;) {
        uint64_t index = atomic_fetch_add(&raw->next_part, 1), file = index / parts_a_file;
        if (file >= raw->files->count || index * raw->part_bytes >= raw->limit_bytes) break;
        if (file != opened) {
            if (fd >= 0) (void)close(fd);
            fd = open(raw->files->paths[file], O_RDONLY | O_CLOEXEC | raw->flags);
            QR_ASSERT(fd >= 0);
            opened = file;
        }
        ssize_t count = pread(fd, part.base, raw->part_bytes, (off_t)(index % parts_a_file * raw->part_bytes));
        if (count > 0) atomic_fetch_add(&raw->bytes, (uint64_t)count);
    }
    if (fd >= 0) (void)close(fd);
    qr_region_free(&part);
    return NULL;
}

/* Bytes per second. */
static double read_raw(const file_list *files, int flags, size_t part_bytes, uint32_t threads, uint64_t limit_bytes) {
    raw_read raw = {.files = files, .flags = flags, .part_bytes = part_bytes, .limit_bytes = limit_bytes};
    pthread_t ids[16];
    uint64_t begin = qr_clock_ns();
    for (uint32_t i = 0; i < threads; i++) QR_ASSERT(pthread_create(&ids[i], NULL, raw_thread, &raw) == 0);
    for (uint32_t i = 0; i < threads; i++) (void)pthread_join(ids[i], NULL);
    return (double)raw.bytes / ((double)(qr_clock_ns() - begin) / 1e9);
}

/* ---- restoring ---- */

static bool take_restored(bench_store *b, uint32_t chain, uint32_t *done) {
    qr_store_event event;
    if (!b->store->ops->poll(b->store, qr_clock_us(), &event)) return false;
    QR_ASSERT(event.kind == QR_STORE_GET_DONE && event.status == QUIRE_OK);
    memcpy(b->pool + (event.tag - (uint64_t)chain * b->chain) * b->payload_bytes, event.payload, b->payload_bytes);
    b->store->ops->release(b->store, event.payload);
    ++*done;
    return true;
}

static void restore_chain(bench_store *b, uint32_t chain) {
    uint32_t left = b->chain, done = 0;
    while (done < b->chain) {
        bool asked = false;
        while (left && b->store->ops->get(b->store, b->records[chain * b->chain + left - 1], chain * b->chain + left - 1))
            left--, asked = true;
        if (asked) b->store->ops->kick(b->store);
        bool any = false;
        while (take_restored(b, chain, &done)) any = true;
        if (!any && done < b->chain) wait_for_work(b);
    }
}

static double restore_all(bench_store *b, uint32_t readers) {
    store_open(b, readers);
    store_index(b);
    uint64_t begin = qr_clock_ns();
    for (uint32_t chain = 0; chain < b->record_count / b->chain; chain++) restore_chain(b, chain);
    double seconds = (double)(qr_clock_ns() - begin) / 1e9;
    store_close(b);
    return (double)b->record_count * (double)b->payload_bytes / seconds;
}

/* ---- reporting ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count) {
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* ---- cases ---- */

enum { RAW_COUNT = 5, READER_COUNT = 3 };
static const uint32_t reader_counts[READER_COUNT] = {1, 2, 4};
static const struct {
    const char *name;
    int flags;
    size_t part_bytes;
    bool drop;
} raws[RAW_COUNT] = {
    {"direct_1m", O_DIRECT, MIB, true},          {"direct_4m", O_DIRECT, 4 * MIB, true}, {"direct_8m", O_DIRECT, 8 * MIB, true},
    {"page_cache_dropped_4m", 0, 4 * MIB, true}, {"page_cache_4m", 0, 4 * MIB, false},
};

typedef struct restore_rates {
    double raw[RAW_COUNT][READER_COUNT][ROUNDS_MAX], restored[READER_COUNT][ROUNDS_MAX], ratio[READER_COUNT][ROUNDS_MAX];
} restore_rates;

static void restore_once(bench_store *b, const file_list *files, restore_rates *rates, uint32_t r, uint32_t round) {
    drop_page_cache(files);
    rates->restored[r][round] = restore_all(b, reader_counts[r]);
}

/* A disk of a virtual machine remembers what was read: so who goes first changes from round to round. */
static void restore_round(bench_store *b, const file_list *files, restore_rates *rates, uint32_t round) {
    uint64_t limit = (uint64_t)b->record_count * b->payload_bytes;
    for (uint32_t r = 0; r < READER_COUNT; r++) {
        double best = 0;
        if (round % 2) restore_once(b, files, rates, r, round);
        for (uint32_t k = 0; k < RAW_COUNT; k++) {
            if (raws[k].drop) drop_page_cache(files);
            rates->raw[k][r][round] = read_raw(files, raws[k].flags, raws[k].part_bytes, reader_counts[r], limit);
            bool direct = raws[k].flags & O_DIRECT;
            if (direct && rates->raw[k][r][round] > best) best = rates->raw[k][r][round];
        }
        if (round % 2 == 0) restore_once(b, files, rates, r, round);
        rates->ratio[r][round] = rates->restored[r][round] / best;
    }
}

static int bench_restore(const char *folder, uint32_t rounds) {
    static restore_rates rates;
    static file_list files;
    bench_store b;
    bench_init(&b, folder, PAYLOAD_BYTES, CHAIN * CHAINS, CHAIN);
    store_open(&b, 0);
    store_index(&b);
    fill_store(&b);
    store_close(&b);
    list_files(&b, &files);
    drop_page_cache(&files);
    (void)restore_all(&b, 2); /* warm: nobody is measured as the first to read */
    for (uint32_t i = 0; i < rounds; i++) restore_round(&b, &files, &rates, i);
    for (uint32_t r = 0; r < READER_COUNT; r++) {
        for (uint32_t k = 0; k < RAW_COUNT; k++)
            printf("{\"bench\":\"offload\",\"case\":\"raw_%s\",\"threads\":%u,\"median_mib_per_s\":%.0f}\n", raws[k].name,
                   reader_counts[r], median(rates.raw[k][r], rounds) / MIB);
        printf("{\"bench\":\"offload\",\"case\":\"restore\",\"readers\":%u,\"median_mib_per_s\":%.0f,"
               "\"median_ratio_to_best_direct\":%.3f,\"rounds\":%u}\n",
               reader_counts[r], median(rates.restored[r], rounds) / MIB, median(rates.ratio[r], rounds), rounds);
    }
    bench_deinit(&b);
    return 0;
}

/* What one more record that the folder may have costs in memory, once segments have their full size. */
static double table_bytes(const qr_disk_config *wanted) {
    qr_disk_config whole = *wanted, half = *wanted, *config = &whole;
    half.cap_bytes = 64ull << 30;
    whole.cap_bytes = 2 * half.cap_bytes;
    uint32_t more = qr_disk_record_max(config->cap_bytes, config->payload_bytes, config->block_tokens) -
                    qr_disk_record_max(half.cap_bytes, half.payload_bytes, half.block_tokens);
    return (double)(qr_disk_memory_bytes(config) - qr_disk_memory_bytes(&half)) / more;
}

static void restart_once(const char *folder, uint32_t records) {
    static file_list files;
    bench_store b;
    qr_store_stats stats;
    bench_init(&b, folder, 4096, records, 100);
    store_open(&b, 0);
    store_index(&b);
    uint64_t begin = qr_clock_us();
    fill_store(&b);
    uint64_t written_us = qr_clock_us() - begin;
    store_close(&b);
    list_files(&b, &files);
    drop_page_cache(&files);
    begin = qr_clock_us();
    store_open(&b, 0);
    store_index(&b);
    uint64_t opened_us = qr_clock_us() - begin;
    b.store->ops->stats(b.store, &stats);
    QR_ASSERT(stats.record_count == records);
    qr_disk_config config = {.path = folder, .cap_bytes = cap_of(&b), .payload_bytes = 4096, .block_tokens = BLOCK_TOKENS};
    printf("{\"bench\":\"offload\",\"case\":\"restart\",\"records\":%u,\"segments\":%u,\"reads\":%" PRIu64
           ",\"read_bytes\":%" PRIu64 ",\"index_us\":%" PRIu64 ",\"open_us\":%" PRIu64 ",\"memory_bytes\":%" PRIu64
           ",\"record_max\":%u,\"table_bytes_per_record\":%.1f,\"put_us\":%" PRIu64 "}\n",
           records, stats.segment_count, stats.index_reads_total, stats.index_bytes_total, stats.index_us_total, opened_us,
           qr_disk_memory_bytes(&config), stats.record_max, table_bytes(&config), written_us);
    (void)fflush(stdout);
    store_close(&b);
    bench_deinit(&b);
}

static int bench_restart(const char *folder, uint32_t records) {
    for (uint32_t count = 10000; count <= records; count *= 10) restart_once(folder, count);
    return 0;
}

/* Of this process, threads that begin later included; -1: not allowed here. */
static int instructions_open(void) {
    struct perf_event_attr about = {.type = PERF_TYPE_HARDWARE,
                                    .size = sizeof about,
                                    .config = PERF_COUNT_HW_INSTRUCTIONS,
                                    .inherit = 1,
                                    .exclude_kernel = 1,
                                    .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &about, 0, -1, -1, 0);
}

static uint64_t instructions_read(int fd) {
    uint64_t count = 0;
    return fd >= 0 && read(fd, &count, sizeof count) == sizeof count ? count : 0;
}

static double cpu_us(void) {
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int bench_put(const char *folder, uint32_t records) {
    bench_store b;
    int counter = instructions_open();
    bench_init(&b, folder, PAYLOAD_BYTES, records - records % CHAIN, CHAIN);
    store_open(&b, 0);
    store_index(&b);
    uint64_t begin = qr_clock_us(), instructions = instructions_read(counter);
    double cpu = cpu_us();
    fill_store(&b);
    uint64_t took_us = qr_clock_us() - begin;
    qr_store_stats stats;
    b.store->ops->stats(b.store, &stats);
    printf("{\"bench\":\"offload\",\"case\":\"put\",\"records\":%u,\"payload_bytes\":%" PRIu64
           ",\"mib_per_s\":%.0f,\"cpu_us_per_record\":%.1f,\"user_instructions_per_record\":%.0f,\"amplification\":%.3f}\n",
           b.record_count, b.payload_bytes, (double)b.record_count * (double)b.payload_bytes / (double)took_us * 1e6 / MIB,
           (cpu_us() - cpu) / b.record_count, (double)(instructions_read(counter) - instructions) / b.record_count,
           (double)stats.device_written_bytes_total / (double)stats.put_bytes_total);
    store_close(&b);
    bench_deinit(&b);
    if (counter >= 0) (void)close(counter);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        (void)fprintf(stderr, "usage: %s restore|restart|put FOLDER [count]\n", argv[0]);
        return 2;
    }
    uint32_t count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    if (strcmp(argv[1], "restore") == 0) return bench_restore(argv[2], count && count < ROUNDS_MAX ? count : 5);
    if (strcmp(argv[1], "restart") == 0) return bench_restart(argv[2], count ? count : 100000);
    if (strcmp(argv[1], "put") == 0) return bench_put(argv[2], count >= CHAIN ? count : 2000);
    return 2;
}
