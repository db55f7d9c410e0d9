/* status.h - results and errors of every Quire call.
 *
 * Three kinds of failure are kept apart. A broken promise of the caller stops the process (an assertion).
 * An expected condition, such as "no free block", is a status that the caller branches on. A failure from
 * outside (file, socket, malformed bytes) is a status plus a quire_error that says where and why.
 */
#ifndef QUIRE_STATUS_H
#define QUIRE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QUIRE_API __attribute__((visibility("default")))
#define QUIRE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define QUIRE_API
#define QUIRE_MUST_CHECK
#endif

/* name, message */
#define QUIRE_STATUS_LIST(X)                                      \
    X(OK, "ok")                                                   \
    X(INVALID, "invalid argument")                                \
    X(NO_MEMORY, "out of memory")                                 \
    X(NO_BLOCKS, "no free KV block now")                          \
    X(TOO_LARGE, "can never fit")                                 \
    X(NOT_FOUND, "not found")                                     \
    X(QUEUE_FULL, "queue is full")                                \
    X(IO, "input or output failed")                               \
    X(FORMAT, "malformed input")                                  \
    X(UNSUPPORTED, "not supported")                               \
    X(CANCELLED, "cancelled")                                     \
    X(TIMED_OUT, "timed out")                                     \
    X(SHUTTING_DOWN, "shutting down")                             \
    X(BAD_LOGITS, "the model gave logits that cannot be sampled") \
    X(CORRUPT, "an internal check failed")                        \
    X(NO_SPACE, "no space left on the device")                    \
    X(BUSY, "in use by another process")                          \
    X(DAMAGED, "stored data does not prove itself")

typedef enum quire_status {
#define QUIRE_STATUS_ENUM(name, message) QUIRE_##name,
    QUIRE_STATUS_LIST(QUIRE_STATUS_ENUM)
#undef QUIRE_STATUS_ENUM
        QUIRE_STATUS_COUNT
} quire_status;

/* Details of a failure from outside. The caller owns the storage; any call that takes one also takes NULL. */
typedef struct quire_error {
    quire_status status;
    uint64_t offset;  /* byte offset in the source, or UINT64_MAX when there is none */
    char source[128]; /* file, field or path; empty when there is none */
    char text[384];   /* one sentence, valid UTF-8, no trailing newline */
} quire_error;

/* Static strings, never NULL. */
QUIRE_API const char *quire_status_name(quire_status status);
QUIRE_API const char *quire_status_message(quire_status status);

#ifdef __cplusplus
}
#endif
#endif
