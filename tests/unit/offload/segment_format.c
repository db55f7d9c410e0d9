#include "offload/segment_format.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const qr_segment_header segment = {{1, 2, 3, 4}, 42, {6, 4, 8192}};

Test(offload_segment_format, a_header_is_whole_or_nothing) {
    unsigned char page[QR_SEGMENT_HEADER_BYTES];
    qr_segment_header got;
    qr_segment_header_encode(&segment, page);
    cr_assert_eq(qr_segment_header_decode(page, &got, NULL), QUIRE_OK);
    cr_assert(got.id == 42 && got.shape.slot_count == 6 && got.shape.block_tokens == 4 && got.shape.payload_bytes == 8192);
    for (uint32_t bit = 0; bit < 8 * QR_SEGMENT_HEADER_BYTES; bit++) {
        page[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_eq(qr_segment_header_decode(page, &got, NULL), QUIRE_DAMAGED, "bit %u", bit);
        page[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void set_record(qr_footer *footer, uint32_t slot, const char *key) {
    qr_record_header header = {.serial = slot + 1,
                               .slot = slot,
                               .depth = 1,
                               .block_tokens = 4,
                               .namespace_bytes = strlen(key),
                               .namespace_key = (const unsigned char *)key,
                               .tokens = {(quire_token)slot, 7, 8, 9}};
    qr_footer_set(footer, &header);
}

Test(offload_segment_format, a_footer_gives_back_what_was_set_and_wipes_what_was_cleared) {
    uint64_t room = qr_footer_bytes_max(&segment.shape);
    unsigned char *bytes = malloc(room);
    qr_footer footer, got;
    qr_record_header header;
    qr_footer_begin(&footer, bytes, &segment);
    set_record(&footer, 0, "one");
    set_record(&footer, 1, "secret");
    set_record(&footer, 3, "one");
    set_record(&footer, 4, "");
    cr_assert_eq(footer.key_count, 3);
    cr_assert_leq(qr_footer_finish(&footer), room);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(qr_footer_open(&got, bytes, &segment, NULL), QUIRE_OK);
        cr_assert_eq(qr_footer_open_keys(&got, NULL), QUIRE_OK);
        cr_assert_eq(got.used_slots, 5);
        cr_assert(qr_footer_has(&got, 0) && !qr_footer_has(&got, 2) && qr_footer_has(&got, 1) == (round == 0));
        qr_footer_get(&got, 3, &header);
        cr_assert(header.serial == 4 && header.tokens[0] == 3 && header.tokens[3] == 9 && header.namespace_bytes == 3);
        cr_assert_arr_eq(header.namespace_key, "one", 3);
        qr_footer_clear(&got, 1);
        qr_footer_wipe_keys(&got);
        qr_footer_finish(&got);
        cr_assert_null(memmem(bytes, room, "secret", 6));
    }
    free(bytes);
}

Test(offload_segment_format, a_footer_of_another_segment_or_with_a_flipped_bit_is_none) {
    unsigned char *bytes = malloc(qr_footer_bytes_max(&segment.shape));
    qr_segment_header other = segment;
    qr_footer footer;
    qr_footer_begin(&footer, bytes, &segment);
    set_record(&footer, 0, "key");
    uint64_t used = qr_footer_fixed_bytes(&segment.shape) + footer.key_bytes;
    qr_footer_finish(&footer);
    other.id = 43;
    cr_assert_eq(qr_footer_open(&footer, bytes, &other, NULL), QUIRE_DAMAGED);
    for (uint64_t at = 0; at < used; at++) {
        bytes[at] ^= 4;
        quire_status status = qr_footer_open(&footer, bytes, &segment, NULL);
        if (status == QUIRE_OK) status = qr_footer_open_keys(&footer, NULL);
        cr_assert_eq(status, QUIRE_DAMAGED, "byte %zu", (size_t)at);
        bytes[at] ^= 4;
    }
    free(bytes);
}
