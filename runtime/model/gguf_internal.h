/* gguf_internal.h - a checked GGUF header; shared by gguf.c (files, look-up), gguf_read.c (parsing) and gguf_values.c. */
#ifndef QR_MODEL_GGUF_INTERNAL_H
#define QR_MODEL_GGUF_INTERNAL_H

#include "runtime/model/gguf.h"

/* Value types as numbered in the file. */
typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
} gguf_type;

enum {
    GGUF_KEY_BYTES_MAX = 65535, /* of the format */
    GGUF_TENSOR_NAME_MAX = 64,
    GGUF_ENTRIES_MAX = 1 << 20, /* keys or tensors: bounds memory, far above any real file */
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_ALIGNMENT_MAX = 65536, /* the largest page size in use */
};

typedef struct gguf_key {
    qr_text name;
    gguf_type type; /* of the value, or of the elements */
    bool is_array;
    uint64_t count;      /* elements; 1 for a scalar */
    const uint8_t *data; /* first value byte (a string's length field) */
} gguf_key;

struct qr_gguf {
    char *path; /* for errors */
    int fd;     /* -1: borrowed memory */
    const uint8_t *data;
    size_t size;
    uint32_t alignment;
    uint64_t key_count, tensor_count;
    gguf_key *keys;          /* sorted by name */
    qr_gguf_tensor *tensors; /* in file order */
    uint32_t *tensors_by_name;
    uint64_t data_begin;
};

/* Parses and checks everything; fills what gguf.c then frees, also when it fails. */
QUIRE_MUST_CHECK quire_status gguf_read(qr_gguf *gguf, quire_error *error);

const gguf_key *gguf_find_key(const qr_gguf *gguf, const char *key); /* NULL: none */
size_t gguf_type_bytes(gguf_type type);                              /* of a fixed-size value; 0 for strings and arrays */
int gguf_compare_names(qr_text a, qr_text b);
#endif
