/* make_offload_record_corpus.c - writes the corpus of the record fuzzer anew: make_offload_record_corpus FOLDER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "offload/segment_format.h"

enum { MEND = 0x80, BLOCK_TOKENS = 4 };

static void write_input(const char *folder, const char *name, unsigned char what, uint32_t slots, const void *bytes,
                        size_t size) {
    char path[512];
    unsigned char head[3] = {what | MEND, (unsigned char)(slots - 1), BLOCK_TOKENS - 1};
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    QR_ASSERT(file && fwrite(head, 1, sizeof head, file) == sizeof head && fwrite(bytes, 1, size, file) == size);
    (void)fclose(file);
}

static qr_record_header record(uint32_t slot, const char *key) {
    return (qr_record_header){.fingerprint = {1, 2, 3, 4},
                              .serial = 100 + slot,
                              .parent_serial = slot ? 99 + slot : 0,
                              .segment_id = 77,
                              .slot = slot,
                              .depth = slot + 1,
                              .block_tokens = BLOCK_TOKENS,
                              .payload_bytes = QR_PAGE_BYTES,
                              .payload_checksum = 5,
                              .namespace_bytes = strlen(key),
                              .namespace_key = (const unsigned char *)key,
                              .tokens = {1, 2, 3, (quire_token)slot}};
}

static void write_footer(const char *folder, const char *name, uint32_t slots, uint32_t records) {
    static const char *const keys[] = {"", "a namespace", "another", "a namespace"};
    qr_segment_header segment = {{1, 2, 3, 4}, 77, {slots, BLOCK_TOKENS, QR_PAGE_BYTES}};
    unsigned char *bytes = malloc(qr_footer_bytes_max(&segment.shape));
    qr_footer footer;
    QR_ASSERT(bytes != NULL);
    qr_footer_begin(&footer, bytes, &segment);
    for (uint32_t slot = 0; slot < records; slot++) {
        qr_record_header header = record(slot, keys[slot % 4]);
        qr_footer_set(&footer, &header);
    }
    uint64_t size = qr_footer_finish(&footer);
    write_input(folder, name, 2, slots, bytes, size);
    free(bytes);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    static unsigned char page[QR_PAGE_BYTES];
    qr_record_header first = record(0, ""), second = record(1, "a namespace");
    qr_segment_header segment = {{1, 2, 3, 4}, 77, {8, BLOCK_TOKENS, QR_PAGE_BYTES}};
    qr_record_encode(&first, page);
    write_input(argv[1], "record_first", 0, 1, page, sizeof page);
    qr_record_encode(&second, page);
    write_input(argv[1], "record_second", 0, 1, page, sizeof page);
    qr_segment_header_encode(&segment, page);
    write_input(argv[1], "segment", 1, 1, page, sizeof page);
    write_footer(argv[1], "footer_empty", 1, 0);
    write_footer(argv[1], "footer_one", 1, 1);
    write_footer(argv[1], "footer_some", 9, 5);
    write_footer(argv[1], "footer_full", 8, 8);
    return 0;
}
