/* cache_daemon.c - see cache_daemon.h. */
#include "runtime/cli/cache_daemon.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/error.h"
#include "runtime/cli/chat_client.h"
#include "runtime/cli/size_text.h"

/* One exchange on a connection of its own; `body` is taken. */
static quire_status ask(const qr_cache_daemon *daemon, const char *method, const char *path, json_t *body, json_t **reply,
                        quire_error *error) {
    qr_chat_client *client;
    long code = 0;
    *reply = NULL;
    quire_status status = qr_chat_client_create(daemon->socket, NULL, -1, &client, error);
    if (status == QUIRE_OK) status = qr_chat_client_request(client, method, path, body, reply, &code, error);
    qr_chat_client_destroy(client);
    json_decref(body);
    if (status != QUIRE_OK || (*reply && code < 300)) return status;
    const char *message = qr_chat_error_message(*reply);
    status = qr_fail(error, code >= 400 && code < 500 ? QUIRE_INVALID : QUIRE_IO, daemon->socket, QR_NO_OFFSET, "%s",
                     message ? message : "the daemon's answer makes no sense");
    json_decref(*reply);
    *reply = NULL;
    return status;
}

static void print_reply(const json_t *reply) {
    json_dumpf(reply, stdout, JSON_INDENT(2));
    fputc('\n', stdout);
}

static json_t *with_timeout(const qr_cache_daemon *daemon, json_t *body) {
    if (daemon->timeout_s >= 0) json_object_set_new(body, "timeout", json_real(daemon->timeout_s));
    return body;
}

static json_int_t number(const json_t *object, const char *name) { return json_integer_value(json_object_get(object, name)); }

/* ---- stat ---- */

static void print_tier(const json_t *ledger, const char *name) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    const json_t *tier = json_object_get(ledger, name);
    if (!json_is_true(json_object_get(tier, "present"))) {
        printf("%-10s none\n", name);
        return;
    }
    printf("%-10s %s of %s, %" JSON_INTEGER_FORMAT " blocks, %" JSON_INTEGER_FORMAT " tokens\n", name,
           qr_size_format((uint64_t)number(tier, "bytes"), a), qr_size_format((uint64_t)number(tier, "bytes_max"), b),
           number(tier, "blocks"), number(tier, "tokens"));
}

static void print_work(const json_t *disk) {
    char a[QR_SIZE_TEXT_BYTES], b[QR_SIZE_TEXT_BYTES];
    if (!json_is_true(json_object_get(disk, "present"))) return;
    printf("%-10s %" JSON_INTEGER_FORMAT " loads, %" JSON_INTEGER_FORMAT " stores, %" JSON_INTEGER_FORMAT
           " to flush, %" JSON_INTEGER_FORMAT " to erase\n",
           "queued", number(disk, "loads_queued"), number(disk, "stores_queued"), number(disk, "flush_left"),
           number(disk, "erasing"));
    printf("%-10s %" JSON_INTEGER_FORMAT " damaged, %" JSON_INTEGER_FORMAT " failed\n", "errors", number(disk, "damaged"),
           number(disk, "errors"));
    printf("%-10s %s", "written", qr_size_format((uint64_t)number(disk, "written_bytes"), a));
    if (number(disk, "day_budget_bytes"))
        printf(", %s left of today's %s", qr_size_format((uint64_t)number(disk, "day_budget_left_bytes"), a),
               qr_size_format((uint64_t)number(disk, "day_budget_bytes"), b));
    fputc('\n', stdout);
}

static void print_ledger(const json_t *ledger) {
    char a[QR_SIZE_TEXT_BYTES];
    const json_t *pool = json_object_get(ledger, "pool");
    printf("%-10s %s, %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " blocks cached, %" JSON_INTEGER_FORMAT " in use\n",
           "pool", qr_size_format((uint64_t)number(pool, "bytes"), a), number(pool, "blocks_cached"), number(pool, "blocks"),
           number(pool, "blocks_used"));
    print_tier(ledger, "host");
    print_tier(ledger, "disk");
    print_work(json_object_get(ledger, "disk"));
}

quire_status qr_cache_daemon_stat(const qr_cache_daemon *daemon, quire_error *error) {
    json_t *ledger;
    quire_status status = ask(daemon, "GET", "/v1/kv", NULL, &ledger, error);
    if (status != QUIRE_OK) return status;
    if (daemon->json) print_reply(ledger);
    else print_ledger(ledger);
    json_decref(ledger);
    return QUIRE_OK;
}

/* ---- flush and clear ---- */

quire_status qr_cache_daemon_flush(const qr_cache_daemon *daemon, bool *flushed, quire_error *error) {
    json_t *reply;
    quire_status status = ask(daemon, "POST", "/v1/kv/flush", with_timeout(daemon, json_object()), &reply, error);
    if (status != QUIRE_OK) return status;
    *flushed = json_is_true(json_object_get(reply, "flushed"));
    json_int_t left = number(reply, "blocks_left");
    if (daemon->json) print_reply(reply);
    else
        printf("%" JSON_INTEGER_FORMAT " blocks written in %.2f s, %" JSON_INTEGER_FORMAT " left%s\n",
               number(reply, "written_blocks"), json_number_value(json_object_get(reply, "seconds")), left,
               *flushed || left ? "" : "; what was written may not last");
    json_decref(reply);
    return QUIRE_OK;
}

quire_status qr_cache_daemon_clear(const qr_cache_daemon *daemon, const char *salt, uint64_t *left, quire_error *error) {
    json_t *reply, *body = salt ? json_pack("{s:s}", "cache_salt", salt) : json_pack("{s:b}", "all", 1);
    if (!body) return qr_fail(error, QUIRE_INVALID, "--salt", QR_NO_OFFSET, "is not valid UTF-8");
    quire_status status = ask(daemon, "DELETE", "/v1/kv", with_timeout(daemon, body), &reply, error);
    if (status != QUIRE_OK) return status;
    *left = (uint64_t)number(reply, "erasing");
    if (daemon->json) print_reply(reply);
    else printf("forgotten%s; %" PRIu64 " blocks still to be erased from disk\n", salt ? " for this salt" : "", *left);
    json_decref(reply);
    return QUIRE_OK;
}
