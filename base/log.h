/* log.h - one event per line as key=value pairs: time level event key=value...
 *
 * Values are quoted where needed and made safe (no control characters, valid UTF-8). Never pass prompt text or tokens.
 * Thread: one logger may be used by all threads; each line is one write. Nothing global: the owner passes the logger.
 */
#ifndef QR_BASE_LOG_H
#define QR_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef enum qr_log_level { QR_LOG_DEBUG, QR_LOG_INFO, QR_LOG_WARN, QR_LOG_ERROR, QR_LOG_OFF } qr_log_level;

typedef struct qr_log {
    int fd;
    qr_log_level level;
} qr_log;

typedef enum qr_log_kind { QR_LOG_STRING, QR_LOG_INTEGER, QR_LOG_FLOAT } qr_log_kind;

typedef struct qr_log_field {
    const char *key;
    qr_log_kind kind;
    const char *string;
    int64_t integer;
    double number;
} qr_log_field;

#define QR_STR(key, value) \
    { (key), QR_LOG_STRING, (value), 0, 0 }
#define QR_INT(key, value) \
    { (key), QR_LOG_INTEGER, NULL, (int64_t)(value), 0 }
#define QR_NUM(key, value) \
    { (key), QR_LOG_FLOAT, NULL, 0, (value) }

/* log may be NULL. Lines are cut at 1,024 bytes, at a character. */
void qr_log_event(const qr_log *log, qr_log_level level, const char *event, const qr_log_field *fields, int count);

/* qr_log_info(log, "ready", QR_STR("socket", path), QR_INT("blocks", n)) */
#define QR_LOG_FIELDS(...) \
    ((const qr_log_field[]){__VA_ARGS__}), (int)(sizeof((qr_log_field[]){__VA_ARGS__}) / sizeof(qr_log_field))
#define qr_log_debug(log, event, ...) qr_log_event(log, QR_LOG_DEBUG, event, QR_LOG_FIELDS(__VA_ARGS__))
#define qr_log_info(log, event, ...) qr_log_event(log, QR_LOG_INFO, event, QR_LOG_FIELDS(__VA_ARGS__))
#define qr_log_warn(log, event, ...) qr_log_event(log, QR_LOG_WARN, event, QR_LOG_FIELDS(__VA_ARGS__))
#define qr_log_error(log, event, ...) qr_log_event(log, QR_LOG_ERROR, event, QR_LOG_FIELDS(__VA_ARGS__))
#endif
