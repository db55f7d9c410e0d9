#include "offload/record.h"

#include <criterion/criterion.h>
#include <string.h>

static qr_record_header some_header(void) {
    qr_record_header header = {.fingerprint = {1, 2, 3, 4},
                               .serial = 9,
                               .parent_serial = 8,
                               .segment_id = 77,
                               .slot = 5,
                               .depth = 2,
                               .block_tokens = 16,
                               .payload_bytes = 8192,
                               .payload_checksum = 123,
                               .chain_digest = 11,
                               .parent_digest = 10,
                               .namespace_bytes = 4,
                               .namespace_key = (const unsigned char *)"a\0b"};
    for (int i = 0; i < 16; i++) header.tokens[i] = i * 1000 - 3;
    return header;
}

Test(offload_record, what_is_encoded_is_decoded) {
    unsigned char page[QR_RECORD_HEADER_BYTES];
    qr_record_header header = some_header(), got;
    qr_record_encode(&header, page);
    cr_assert_eq(qr_record_decode(page, &got, NULL), QUIRE_OK);
    cr_assert(qr_fingerprint_equal(&got.fingerprint, &header.fingerprint));
    cr_assert(got.serial == 9 && got.parent_serial == 8 && got.segment_id == 77 && got.slot == 5 && got.depth == 2);
    cr_assert(got.payload_bytes == 8192 && got.payload_checksum == 123 && got.chain_digest == 11 && got.parent_digest == 10);
    cr_assert_eq(got.namespace_bytes, 4);
    cr_assert_arr_eq(got.namespace_key, "a\0b", 4);
    cr_assert_arr_eq(got.tokens, header.tokens, 16 * sizeof *header.tokens);
}

Test(offload_record, every_flipped_bit_is_noticed) {
    unsigned char page[QR_RECORD_HEADER_BYTES];
    qr_record_header header = some_header(), got;
    qr_record_encode(&header, page);
    for (uint32_t bit = 0; bit < 8 * QR_RECORD_HEADER_BYTES; bit++) {
        if (bit / 8 >= 12 && bit / 8 < 16) continue; /* means nothing */
        page[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_neq(qr_record_decode(page, &got, NULL), QUIRE_OK, "bit %u", bit);
        cr_assert_eq(got.serial, 0);
        page[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    cr_assert_eq(qr_record_decode(page, &got, NULL), QUIRE_OK);
}
