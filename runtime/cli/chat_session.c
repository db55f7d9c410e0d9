#include "runtime/cli/chat_session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

quire_status qr_chat_session_init(qr_chat_session *session) {
    session->messages = json_array();
    return session->messages ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void qr_chat_session_deinit(qr_chat_session *session) {
    json_decref(session->messages);
    session->messages = NULL;
}

static json_t *message_make(const char *role, const char *text, size_t size) {
    json_t *content = json_stringn(text, size); /* NULL for bytes that are not UTF-8 */
    return content ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL;
}

quire_status qr_chat_session_add(qr_chat_session *session, const char *role, const char *text, size_t size) {
    json_t *message = message_make(role, text, size);
    if (!message) return QUIRE_INVALID;
    return json_array_append_new(session->messages, message) == 0 ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void qr_chat_session_drop_last(qr_chat_session *session) {
    size_t count = json_array_size(session->messages);
    if (count) json_array_remove(session->messages, count - 1);
}

static bool message_is(const json_t *message, const char *role) {
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

const char *qr_chat_session_system(const qr_chat_session *session) {
    const json_t *first = json_array_get(session->messages, 0);
    return message_is(first, "system") ? json_string_value(json_object_get(first, "content")) : NULL;
}

quire_status qr_chat_session_set_system(qr_chat_session *session, const char *text) {
    json_t *message = NULL;
    if (text && *text && !(message = message_make("system", text, strlen(text)))) return QUIRE_INVALID;
    if (qr_chat_session_system(session)) json_array_remove(session->messages, 0);
    if (message && json_array_insert_new(session->messages, 0, message) != 0) return QUIRE_NO_MEMORY;
    return QUIRE_OK;
}

void qr_chat_session_reset(qr_chat_session *session) {
    size_t keep = qr_chat_session_system(session) ? 1 : 0;
    while (json_array_size(session->messages) > keep) qr_chat_session_drop_last(session);
}

size_t qr_chat_session_count(const qr_chat_session *session) { return json_array_size(session->messages); }

/* ---- files ---- */

static bool write_private(const char *path, const json_t *document) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return false;
    }
    bool ok = json_dumpf(document, file, JSON_INDENT(1)) == 0 && fputc('\n', file) != EOF;
    return (fclose(file) == 0) && ok;
}

/* Written beside the target and renamed over it: a full disk never costs the file that was there. */
static bool write_over(const char *path, const json_t *document) {
    char beside[PATH_MAX];
    int size = snprintf(beside, sizeof beside, "%s.%ld.new", path, (long)getpid());
    if (size < 0 || (size_t)size >= sizeof beside) return errno = ENAMETOOLONG, false;
    if (write_private(beside, document) && rename(beside, path) == 0) return true;
    int reason = errno;
    unlink(beside);
    return errno = reason, false;
}

/* A link is followed. What is not a file, a device for example, is no place for a conversation, and is not replaced. */
static quire_status save_target(const char *path, char target[PATH_MAX], quire_error *error) {
    struct stat info;
    if (!realpath(path, target)) {
        if (errno != ENOENT) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "cannot be written: %s", strerror(errno));
        if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
            return qr_fail(error, QUIRE_INVALID, path, QR_NO_OFFSET, "the path is too long");
    } else if (stat(target, &info) == 0 && !S_ISREG(info.st_mode)) {
        return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "is not a file and will not be replaced");
    }
    return QUIRE_OK;
}

quire_status qr_chat_session_save(const qr_chat_session *session, const char *model, const char *path, quire_error *error) {
    char target[PATH_MAX];
    quire_status status = save_target(path, target, error);
    if (status != QUIRE_OK) return status;
    json_t *document = json_pack("{s:i, s:s, s:O}", "quire_chat", 1, "model", model, "messages", session->messages);
    bool ok = document && write_over(target, document);
    int reason = document ? errno : ENOMEM;
    json_decref(document);
    if (ok) return QUIRE_OK;
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "cannot be written: %s", strerror(reason));
}

static bool message_is_whole(const json_t *message) {
    return (message_is(message, "system") || message_is(message, "user") || message_is(message, "assistant")) &&
           json_is_string(json_object_get(message, "content"));
}

static quire_status messages_check(const json_t *messages, const char *path, quire_error *error) {
    if (!json_is_array(messages)) return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "has no list `messages`");
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!message_is_whole(json_array_get(messages, i)))
            return qr_fail(error, QUIRE_FORMAT, path, QR_NO_OFFSET, "messages[%zu] has no role and content that chat knows", i);
    return QUIRE_OK;
}

/* A pipe that nobody writes to would hold the conversation up for ever, already when it is opened. */
static quire_status open_file(const char *path, FILE **file, quire_error *error) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool is_file = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    *file = is_file ? fdopen(fd, "r") : NULL;
    if (*file) return QUIRE_OK;
    int reason = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && !is_file) return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "is not a regular file");
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "cannot be opened: %s", strerror(reason));
}

static quire_status read_document(const char *path, json_t **document, quire_error *error) {
    json_error_t at;
    FILE *file;
    *document = NULL;
    quire_status status = open_file(path, &file, error);
    if (status != QUIRE_OK) return status;
    *document = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    bool failed = ferror(file);
    fclose(file);
    if (*document) return QUIRE_OK;
    return qr_fail(error, failed ? QUIRE_IO : QUIRE_FORMAT, path, QR_NO_OFFSET, "line %d: %s", at.line, at.text);
}

quire_status qr_chat_session_load(qr_chat_session *session, const char *path, quire_error *error) {
    json_t *document;
    quire_status status = read_document(path, &document, error);
    if (status != QUIRE_OK) return status;
    json_t *messages = json_object_get(document, "messages");
    status = messages_check(messages, path, error);
    if (status == QUIRE_OK) {
        json_decref(session->messages);
        session->messages = json_incref(messages);
    }
    json_decref(document);
    return status;
}
