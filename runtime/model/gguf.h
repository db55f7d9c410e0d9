/* gguf.h - reading GGUF v2 and v3 files through mmap; no byte is trusted (R37).
 *
 * open checks the whole header: magic, version, counts, every key and value, every tensor's name, shape, type, offset,
 * size, alignment and overlap. After that, accessors cannot fail on malformed bytes. Format: ggml-org/ggml docs/gguf.md.
 *
 * Thread: read-only after open.
 */
#ifndef QR_MODEL_GGUF_H
#define QR_MODEL_GGUF_H

#include "runtime/model/cpu/matmul.h"
#include "runtime/model/tokenizer.h"

typedef struct qr_gguf qr_gguf;

enum { QR_GGUF_DIMS_MAX = 4 };

typedef struct qr_gguf_tensor {
    qr_text name;
    qr_weight_type type;
    uint32_t dim_count;
    uint64_t dims[QR_GGUF_DIMS_MAX]; /* fastest first; 1 beyond dim_count */
    uint64_t element_count;
    uint64_t size_bytes;
    const uint8_t *data; /* in the mapping */
} qr_gguf_tensor;

/* Maps the file read-only. Errors: IO, FORMAT (path, field, offset), UNSUPPORTED (tensor types this program has no kernels
 * for, big-endian files, version). */
QUIRE_MUST_CHECK quire_status qr_gguf_open(const char *path, qr_gguf **gguf, quire_error *error);
/* The same over borrowed memory (tests, fuzzing). */
QUIRE_MUST_CHECK quire_status qr_gguf_open_memory(const char *name, const void *data, size_t size, qr_gguf **gguf,
                                                  quire_error *error);
void qr_gguf_close(qr_gguf *gguf);

const char *qr_gguf_path(const qr_gguf *gguf); /* as given to open */
uint64_t qr_gguf_file_bytes(const qr_gguf *gguf);
int qr_gguf_fd(const qr_gguf *gguf); /* the open file, still the gguf's; -1 over borrowed memory */
/* Everything before the tensor data: keys, values, tensor infos and padding. */
const uint8_t *qr_gguf_header(const qr_gguf *gguf, size_t *size);
uint64_t qr_gguf_tensor_count(const qr_gguf *gguf);
const qr_gguf_tensor *qr_gguf_tensor_at(const qr_gguf *gguf, uint64_t index);
const qr_gguf_tensor *qr_gguf_find_tensor(const qr_gguf *gguf, const char *name); /* NULL: none */

/* Values. NOT_FOUND when the key is absent (no error text), FORMAT when it has another type or range (field named). Any
 * integer type is accepted where the value fits. */
QUIRE_MUST_CHECK quire_status qr_gguf_get_u64(const qr_gguf *gguf, const char *key, uint64_t *value, quire_error *error);
QUIRE_MUST_CHECK quire_status qr_gguf_get_f64(const qr_gguf *gguf, const char *key, double *value, quire_error *error);
QUIRE_MUST_CHECK quire_status qr_gguf_get_bool(const qr_gguf *gguf, const char *key, bool *value, quire_error *error);
QUIRE_MUST_CHECK quire_status qr_gguf_get_text(const qr_gguf *gguf, const char *key, qr_text *value, quire_error *error);
bool qr_gguf_is_array(const qr_gguf *gguf, const char *key); /* false also when absent */
/* Arrays: strings borrowed from the mapping (array itself malloc'd, caller frees); numbers converted. */
QUIRE_MUST_CHECK quire_status qr_gguf_get_texts(const qr_gguf *gguf, const char *key, qr_text **values, uint64_t *count,
                                                quire_error *error);
QUIRE_MUST_CHECK quire_status qr_gguf_get_i32s(const qr_gguf *gguf, const char *key, int32_t **values, uint64_t *count,
                                               quire_error *error);

/* Gives file pages back to the system: they were repacked and are not read again (posix_fadvise, madvise). */
void qr_gguf_drop_pages(const qr_gguf *gguf);
#endif
