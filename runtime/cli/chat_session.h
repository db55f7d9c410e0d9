/* chat_session.h - the messages of a conversation, and the file that they are saved in.
 *
 * The file is JSON: {"quire_chat": 1, "model": text, "messages": [{"role", "content"}, ...]}, readable by its owner only.
 */
#ifndef QR_CLI_CHAT_SESSION_H
#define QR_CLI_CHAT_SESSION_H

#include <jansson.h>

#include <quire/status.h>

typedef struct qr_chat_session {
    json_t *messages;
} qr_chat_session;

QUIRE_MUST_CHECK quire_status qr_chat_session_init(qr_chat_session *session);
void qr_chat_session_deinit(qr_chat_session *session);

/* Text that is not UTF-8 is INVALID and nothing is added. */
QUIRE_MUST_CHECK quire_status qr_chat_session_add(qr_chat_session *session, const char *role, const char *text, size_t size);
void qr_chat_session_drop_last(qr_chat_session *session);
/* The system message, or NULL. */
const char *qr_chat_session_system(const qr_chat_session *session);
/* Sets or replaces it; NULL or "" takes it away. */
QUIRE_MUST_CHECK quire_status qr_chat_session_set_system(qr_chat_session *session, const char *text);
/* Forgets everything but the system message. */
void qr_chat_session_reset(qr_chat_session *session);
size_t qr_chat_session_count(const qr_chat_session *session);

/* Errors: IO (also what is no regular file, such as a pipe, which would be waited for), FORMAT (what is wrong and where). A
 * failed load leaves the session as it was. */
QUIRE_MUST_CHECK quire_status qr_chat_session_save(const qr_chat_session *session, const char *model, const char *path,
                                                   quire_error *error);
QUIRE_MUST_CHECK quire_status qr_chat_session_load(qr_chat_session *session, const char *path, quire_error *error);
#endif
