/* server_fixture.h - a server with a fake engine and a fake model on a thread of its own, and a raw client. */
#ifndef QR_TEST_SERVER_FIXTURE_H
#define QR_TEST_SERVER_FIXTURE_H

#include "runtime/server/server.h"
#include "tests/unit/server/fake_engine.h"
#include "tests/unit/server/fake_model.h"

#include <pthread.h>

typedef struct fixture {
    char folder[64], path[96];
    qr_server *server;
    quire_engine *engine;
    quire_model *model;
    pthread_t thread;
    quire_status result;
    quire_token script_tokens[4096];
} fixture;

/* script text: every byte one token. options may be NULL; its socket_path is set here. */
void fixture_start(fixture *f, const char *text, const fake_script *script, const qr_server_config *options);
void fixture_start_loading(fixture *f, const qr_server_config *options); /* no engine yet */
void fixture_stop(fixture *f);                                           /* drains and frees */

int client_connect(const fixture *f);
void client_send(int fd, const char *text);
void client_send_bytes(int fd, const void *data, size_t size);
/* Reads until the peer closes, or until `until` was read, or for 5 seconds. NUL-terminated, malloc'd. */
char *client_read(int fd, const char *until);
/* One request on a connection of its own ("Connection: close"), the whole reply; malloc'd. */
char *client_post(const fixture *f, const char *path, const char *body);
char *client_get(const fixture *f, const char *method, const char *path);
int reply_status(const char *reply);
const char *reply_body(const char *reply);
/* Waits up to 5 s. */
bool fixture_wait_idle(fixture *f);

#endif
