/* chat_client.c - libcurl over AF_UNIX.
 *
 * One easy handle is used for all exchanges, so that the connection is kept; a multi handle drives it, because only that can
 * wait for the interrupt descriptor at the same time.
 */
#include "runtime/cli/chat_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/cli/sse_parser.h"

enum { BODY_BYTES_MAX = 64 << 20, POLL_MS = 1000, KEY_BYTES_MAX = 512 };

typedef struct text_buffer {
    char *bytes;
    size_t size, capacity;
} text_buffer;

struct qr_chat_client {
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    int interrupt_fd, fd; /* fd: of the connection that libcurl opened last */
    char refusal[160];    /* why a connection was not made or not used */
};

/* What an exchange gathers. A stream's events go to the parser; any other body is kept. */
typedef struct exchange {
    qr_chat_client *client;
    text_buffer body;
    qr_sse_parser events;
    bool streamed;
    qr_chat_text_fn *on_text;
    void *context;
    qr_chat_reply *reply;
    text_buffer said;
    uint64_t begin_us, first_us, last_us;
    bool done;
    char failure[256]; /* an error event, or a reply that makes no sense */
} exchange;

static bool buffer_add(text_buffer *buffer, const char *bytes, size_t size) {
    if (size > BODY_BYTES_MAX - buffer->size) return false;
    if (buffer->size + size + 1 > buffer->capacity) {
        size_t capacity = (buffer->size + size + 1) * 2;
        char *grown = realloc(buffer->bytes, capacity);
        if (!grown) return false;
        buffer->bytes = grown;
        buffer->capacity = capacity;
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    buffer->bytes[buffer->size] = 0;
    return true;
}

/* ---- connecting ---- */

static bool peer_is_trusted(int fd, char refusal[160]) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        snprintf(refusal, 160, "cannot tell whose server it is: %s", strerror(errno));
    else if (peer.uid != geteuid() && peer.uid != 0)
        snprintf(refusal, 160, "the server belongs to user %u, not to you or root: not trusted", (unsigned)peer.uid);
    else return true;
    return false;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    qr_chat_client *client = context;
    (void)purpose;
    client->fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return client->fd;
}

/* Connected, and nothing sent yet. */
static int before_request(void *context, char *remote_address, char *local_address, int remote_port, int local_port) {
    qr_chat_client *client = context;
    (void)remote_address, (void)local_address, (void)remote_port, (void)local_port;
    return peer_is_trusted(client->fd, client->refusal) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* Why there was no connection. */
static void client_explain(qr_chat_client *client) {
    long reason = 0;
    if (client->refusal[0]) return;
    curl_easy_getinfo(client->easy, CURLINFO_OS_ERRNO, &reason);
    if (reason)
        snprintf(client->refusal, sizeof client->refusal, "%s%s", strerror((int)reason),
                 reason == ENOENT || reason == ECONNREFUSED ? " (is `quire serve` running?)" : "");
}

/* ---- what arrives ---- */

static void exchange_fail(exchange *x, const char *text) {
    if (!x->failure[0]) qr_text_sanitize(x->failure, sizeof x->failure, text, strlen(text));
}

static void take_counts(exchange *x, const json_t *event) {
    const json_t *usage = json_object_get(event, "usage"), *timings = json_object_get(event, "timings");
    if (json_is_object(usage)) {
        x->reply->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
        x->reply->completion_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
        const json_t *details = json_object_get(usage, "prompt_tokens_details");
        x->reply->cached_tokens = json_integer_value(json_object_get(details, "cached_tokens"));
    }
    if (json_is_object(timings))
        x->reply->tokens_per_second = json_number_value(json_object_get(timings, "predicted_per_second"));
}

static bool take_text(exchange *x, const json_t *choice) {
    const json_t *content = json_object_get(json_object_get(choice, "delta"), "content");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish) qr_text_sanitize(x->reply->finish, sizeof x->reply->finish, finish, strlen(finish));
    size_t size = json_string_length(content);
    if (size == 0) return true;
    x->last_us = qr_clock_us();
    if (!x->first_us) x->first_us = x->last_us;
    x->on_text(x->context, json_string_value(content), size);
    return buffer_add(&x->said, json_string_value(content), size);
}

static bool take_event(void *context, const char *data, size_t size) {
    exchange *x = context;
    if (size == 6 && memcmp(data, "[DONE]", 6) == 0) {
        x->done = true;
        return true;
    }
    json_t *event = json_loadb(data, size, JSON_ALLOW_NUL, NULL);
    const char *message = qr_chat_error_message(event);
    bool ok = json_is_object(event) && !message;
    if (!ok) exchange_fail(x, message ? message : "the server sent an event that is not a JSON object");
    if (ok) take_counts(x, event);
    if (ok && !take_text(x, json_array_get(json_object_get(event, "choices"), 0))) {
        exchange_fail(x, "no memory for the answer");
        ok = false;
    }
    json_decref(event);
    return ok;
}

static bool reply_is_stream(const exchange *x) {
    long code = 0;
    const char *type = NULL;
    curl_easy_getinfo(x->client->easy, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(x->client->easy, CURLINFO_CONTENT_TYPE, &type);
    return x->streamed && code == 200 && type && strncmp(type, "text/event-stream", 17) == 0;
}

static size_t take_bytes(char *bytes, size_t one, size_t count, void *context) {
    exchange *x = context;
    size_t size = one * count;
    bool ok = reply_is_stream(x) ? qr_sse_parser_feed(&x->events, bytes, size) : buffer_add(&x->body, bytes, size);
    return ok ? size : 0;
}

/* ---- one exchange ---- */

static void exchange_prepare(exchange *x, const char *method, const char *path, const char *body) {
    CURL *easy = x->client->easy;
    char url[256];
    snprintf(url, sizeof url, "http://localhost%s", path);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    if (body) curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    if (body) curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    else curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, x);
    x->client->refusal[0] = 0;
    x->begin_us = qr_clock_us();
}

/* True when the user said stop. */
static bool client_wait(qr_chat_client *client) {
    struct curl_waitfd stop = {.fd = client->interrupt_fd, .events = CURL_WAIT_POLLIN};
    curl_multi_poll(client->multi, &stop, client->interrupt_fd >= 0, POLL_MS, NULL);
    return stop.revents != 0;
}

static CURLcode exchange_drive(exchange *x, bool *interrupted) {
    qr_chat_client *client = x->client;
    CURLcode result = CURLE_OK;
    int running = 1, left;
    *interrupted = false;
    if (curl_multi_add_handle(client->multi, client->easy) != CURLM_OK) return CURLE_FAILED_INIT;
    while (!*interrupted && curl_multi_perform(client->multi, &running) == CURLM_OK && running)
        *interrupted = client_wait(client);
    for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &left)) != NULL;)
        if (message->msg == CURLMSG_DONE) result = message->data.result;
    curl_multi_remove_handle(client->multi, client->easy); /* before its end: closes the connection, which cancels the answer */
    return result;
}

static quire_status exchange_run(exchange *x, const char *method, const char *path, const json_t *body, long *code,
                                 bool *interrupted, quire_error *error) {
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    *code = 0;
    *interrupted = false;
    if (body && !text) return qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "no memory for the request");
    exchange_prepare(x, method, path, text);
    CURLcode result = exchange_drive(x, interrupted);
    curl_easy_getinfo(x->client->easy, CURLINFO_RESPONSE_CODE, code);
    free(text);
    if (result == CURLE_OK || *interrupted) return QUIRE_OK;
    if (result == CURLE_COULDNT_CONNECT) client_explain(x->client);
    const char *why = x->failure[0] ? x->failure : x->client->refusal[0] ? x->client->refusal : curl_easy_strerror(result);
    return qr_fail(error, QUIRE_IO, x->client->path, QR_NO_OFFSET, "%s", why);
}

static void exchange_deinit(exchange *x) {
    qr_sse_parser_deinit(&x->events);
    free(x->body.bytes);
    free(x->said.bytes);
}

const char *qr_chat_error_message(const json_t *reply) {
    return json_string_value(json_object_get(json_object_get(reply, "error"), "message"));
}

quire_status qr_chat_client_call(qr_chat_client *client, const char *path, const json_t *body, json_t **reply, long *code,
                                 quire_error *error) {
    return qr_chat_client_request(client, body ? "POST" : "GET", path, body, reply, code, error);
}

quire_status qr_chat_client_request(qr_chat_client *client, const char *method, const char *path, const json_t *body,
                                    json_t **reply, long *code, quire_error *error) {
    exchange x = {.client = client};
    bool interrupted = false;
    *reply = NULL;
    quire_status status = exchange_run(&x, method, path, body, code, &interrupted, error);
    if (status == QUIRE_OK && interrupted) status = qr_fail(error, QUIRE_CANCELLED, NULL, QR_NO_OFFSET, "stopped");
    if (status == QUIRE_OK && x.body.bytes) *reply = json_loadb(x.body.bytes, x.body.size, JSON_ALLOW_NUL, NULL);
    exchange_deinit(&x);
    return status;
}

/* A reply that is no stream: the server's refusal. */
static quire_status stream_refused(const exchange *x, long code, quire_error *error) {
    json_t *reply = x->body.bytes ? json_loadb(x->body.bytes, x->body.size, JSON_ALLOW_NUL, NULL) : NULL;
    const char *message = qr_chat_error_message(reply);
    quire_status status = code >= 400 && code < 500 ? QUIRE_INVALID : QUIRE_IO;
    if (message) (void)qr_fail(error, status, NULL, QR_NO_OFFSET, "%s", message);
    else (void)qr_fail(error, status, NULL, QR_NO_OFFSET, "the server answered %ld without a reason", code);
    json_decref(reply);
    return status;
}

static void stream_measure(const exchange *x, qr_chat_reply *reply) {
    if (x->first_us) reply->first_ms = (double)(x->first_us - x->begin_us) / 1000;
    double span_s = (double)(x->last_us - x->first_us) / 1e6;
    if (reply->tokens_per_second <= 0 && reply->completion_tokens > 1 && span_s > 0)
        reply->tokens_per_second = (double)(reply->completion_tokens - 1) / span_s;
}

quire_status qr_chat_client_stream(qr_chat_client *client, const json_t *body, qr_chat_text_fn *on_text, void *context,
                                   qr_chat_reply *reply, quire_error *error) {
    *reply = (qr_chat_reply){.prompt_tokens = -1, .cached_tokens = -1, .completion_tokens = -1};
    exchange x = {.client = client, .streamed = true, .on_text = on_text, .context = context, .reply = reply};
    x.events.on_event = take_event;
    x.events.context = &x;
    long code = 0;
    quire_status status = exchange_run(&x, "POST", "/v1/chat/completions", body, &code, &reply->interrupted, error);
    if (status == QUIRE_OK && !reply->interrupted && !x.done) {
        if (reply_is_stream(&x)) status = qr_fail(error, QUIRE_IO, NULL, QR_NO_OFFSET, "the answer broke off");
        else status = stream_refused(&x, code, error);
    }
    stream_measure(&x, reply);
    reply->text = x.said.bytes;
    reply->size = x.said.size;
    x.said = (text_buffer){0};
    exchange_deinit(&x);
    return status;
}

void qr_chat_reply_deinit(qr_chat_reply *reply) {
    free(reply->text);
    *reply = (qr_chat_reply){0};
}

/* ---- the client ---- */

static quire_status read_key(const char *path, char key[KEY_BYTES_MAX], quire_error *error) {
    FILE *file = fopen(path, "re");
    bool ok = file && fgets(key, KEY_BYTES_MAX, file);
    int reason = file ? 0 : errno;
    if (file) fclose(file);
    if (ok) key[strcspn(key, "\r\n")] = 0;
    if (ok && key[0]) return QUIRE_OK;
    return qr_fail(error, QUIRE_IO, path, QR_NO_OFFSET, "%s", reason ? strerror(reason) : "has no key on its first line");
}

static bool add_header(qr_chat_client *client, const char *header) {
    struct curl_slist *grown = curl_slist_append(client->headers, header);
    if (grown) client->headers = grown;
    return grown != NULL;
}

static quire_status client_headers(qr_chat_client *client, const char *api_key_file, quire_error *error) {
    char key[KEY_BYTES_MAX], header[KEY_BYTES_MAX + 32];
    bool ok = add_header(client, "Content-Type: application/json") && add_header(client, "Expect:");
    if (ok && api_key_file) {
        quire_status status = read_key(api_key_file, key, error);
        if (status != QUIRE_OK) return status;
        snprintf(header, sizeof header, "Authorization: Bearer %s", key);
        ok = add_header(client, header);
    }
    return ok ? QUIRE_OK : qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "no memory for a connection");
}

static void client_options(qr_chat_client *client) {
    CURL *easy = client->easy;
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, client->path);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, client);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, client);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
}

quire_status qr_chat_client_create(const char *socket_path, const char *api_key_file, int interrupt_fd, qr_chat_client **out,
                                   quire_error *error) {
    *out = NULL;
    qr_chat_client *client = calloc(1, sizeof *client);
    if (!client) return qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "no memory for a connection");
    client->interrupt_fd = interrupt_fd;
    quire_status status = QUIRE_OK;
    if (strlen(socket_path) >= sizeof client->path)
        status =
            qr_fail(error, QUIRE_INVALID, "--socket", QR_NO_OFFSET, "a socket's path has at most %zu bytes, this one has %zu",
                    sizeof client->path - 1, strlen(socket_path));
    else strcpy(client->path, socket_path);
    if (status == QUIRE_OK) status = client_headers(client, api_key_file, error);
    client->easy = curl_easy_init();
    client->multi = curl_multi_init();
    if (status == QUIRE_OK && (!client->easy || !client->multi))
        status = qr_fail(error, QUIRE_NO_MEMORY, NULL, QR_NO_OFFSET, "libcurl does not start");
    if (status != QUIRE_OK) {
        qr_chat_client_destroy(client);
        return status;
    }
    client_options(client);
    *out = client;
    return QUIRE_OK;
}

void qr_chat_client_destroy(qr_chat_client *client) {
    if (!client) return;
    curl_easy_cleanup(client->easy);
    curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    free(client);
}
