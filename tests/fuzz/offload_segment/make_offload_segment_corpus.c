/* make_offload_segment_corpus.c - writes the corpus of the segment fuzzer anew: make_offload_segment_corpus FOLDER.
 *
 * Segments as the store writes them: empty, some records, full, with a footer and without, of another model.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assertion.h"
#include "offload/disk_store.h"
#include "offload/segment_format.h"

enum { BLOCK_TOKENS = 4, PAYLOAD_BYTES = 4096, MEND_ALL = 15, FILE_MAX = 1 << 17 };

static void drain(qr_store *store) {
    qr_store_event event;
    do {
        while (store->ops->poll(store, 1, &event)) {}
        (void)nanosleep(&(struct timespec){0, 100000}, NULL);
    } while (store->ops->busy(store));
    while (store->ops->poll(store, 1, &event)) {}
}

static uint32_t keep(void *context, const qr_record_info *info, qr_record_id record, uint32_t parent_owner, bool foreign) {
    (void)context, (void)info, (void)parent_owner, (void)foreign;
    return record;
}

static void put(qr_store *store, uint32_t index, qr_record_id *parent) {
    static const char *const keys[] = {"", "a namespace"};
    quire_token tokens[BLOCK_TOKENS] = {1, 2, 3, (quire_token)index};
    const char *key = keys[index / 3 % 2];
    if (index % 3 == 0) *parent = QR_RECORD_NONE;
    qr_record_info info = {key, strlen(key), *parent, index % 3 + 1, tokens};
    void *payload;
    QR_ASSERT(store->ops->put_begin(store, &info, index, parent, &payload) == QR_STORE_NONE);
    memset(payload, 'a' + (int)index, PAYLOAD_BYTES);
    store->ops->put_submit(store, *parent);
    drain(store);
}

static void copy_segment(const char *folder, const char *path, bool footer) {
    static unsigned char bytes[FILE_MAX];
    char from[300];
    struct dirent *entry;
    DIR *entries = opendir(folder);
    QR_ASSERT(entries != NULL);
    while ((entry = readdir(entries)) != NULL)
        if (strncmp(entry->d_name, "segment-", 8) == 0) break;
    QR_ASSERT(entry != NULL);
    (void)snprintf(from, sizeof from, "%s/%s", folder, entry->d_name);
    (void)closedir(entries);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    QR_ASSERT(in && out);
    size_t size = fread(bytes, 1, sizeof bytes, in);
    qr_segment_header header;
    QR_ASSERT(size < sizeof bytes && qr_segment_header_decode(bytes, &header, NULL) == QUIRE_OK);
    uint64_t place = qr_segment_footer_offset(&header.shape);
    if (!footer) memset(bytes + place, 0, size - place);
    QR_ASSERT(fputc(MEND_ALL, out) != EOF && fwrite(bytes, 1, size, out) == size);
    (void)fclose(in);
    (void)fclose(out);
}

static void make(const char *corpus, const char *name, uint32_t records, bool footer, uint64_t weights) {
    char folder[] = "/dev/shm/quire-corpus-XXXXXX", path[300], command[64];
    QR_ASSERT(mkdtemp(folder) != NULL);
    qr_disk_config config = {.path = folder,
                             .cap_bytes = 4 * qr_disk_cap_min_bytes(PAYLOAD_BYTES, BLOCK_TOKENS),
                             .free_floor_bytes = 4096,
                             .payload_bytes = PAYLOAD_BYTES,
                             .block_tokens = BLOCK_TOKENS,
                             .fingerprint = {weights, 2, 3, 4}};
    qr_store *store;
    qr_record_id parent = QR_RECORD_NONE;
    QR_ASSERT(qr_disk_open(&config, &store, NULL) == QUIRE_OK);
    store->ops->index(store, keep, NULL);
    for (uint32_t i = 0; i < records; i++) put(store, i, &parent);
    store->ops->close(store);
    (void)snprintf(path, sizeof path, "%s/%s", corpus, name);
    copy_segment(folder, path, footer);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    QR_ASSERT(system(command) == 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    make(argv[1], "one", 1, true, 1);
    make(argv[1], "some", 3, true, 1);
    make(argv[1], "some_unsealed", 3, false, 1);
    make(argv[1], "full", 4, true, 1);
    make(argv[1], "full_unsealed", 4, false, 1);
    make(argv[1], "foreign", 3, true, 7);
    make(argv[1], "foreign_unsealed", 3, false, 7);
    return 0;
}
