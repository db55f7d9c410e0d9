/* byte_order.h - numbers in files are little endian, at any alignment. */
#ifndef QR_OFFLOAD_BYTE_ORDER_H
#define QR_OFFLOAD_BYTE_ORDER_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void qr_store_u32(unsigned char *at, uint32_t value) {
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static inline void qr_store_u64(unsigned char *at, uint64_t value) {
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint32_t qr_load_u32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t qr_load_u64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}
#endif
