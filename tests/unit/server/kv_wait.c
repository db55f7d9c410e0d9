#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const quire_kv_tiers_stats with_disk = {.tiers[QUIRE_KV_TIER_DISK] = {.present = true, .stored_blocks_total = 5}};

static char *ask(const fixture *f, const char *head, const char *body) {
    char request[400];
    int fd = client_connect(f);
    snprintf(request, sizeof request, "%s HTTP/1.1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", head, strlen(body),
             body);
    client_send(fd, request);
    char *reply = client_read(fd, NULL);
    close(fd);
    return reply;
}

static long long field_of(const char *reply, const char *name) {
    json_t *root = json_loads(reply_body(reply), 0, NULL);
    json_t *field = json_object_get(root, name);
    cr_assert_not_null(field, "%s: %s", name, reply);
    long long value = json_is_boolean(field) ? json_is_true(field) : json_integer_value(field);
    json_decref(root);
    return value;
}

Test(server_kv_wait, a_flush_is_answered_when_all_is_written) {
    fixture f;
    fake_script script = {.tiers = &with_disk, .flush_steps = 100};
    fixture_start(&f, "a", &script, NULL);
    static const char *const bodies[] = {"", "{}", "{\"timeout\":3600}", "{\"timeout\":null}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char *reply = ask(&f, "POST /v1/kv/flush", bodies[i]);
        cr_assert_eq(reply_status(reply), 200, "%s", reply);
        cr_assert_eq(field_of(reply, "flushed"), 1);
        cr_assert_eq(field_of(reply, "blocks_left"), 0);
        cr_assert_eq(field_of(reply, "written_blocks"), 0, "what was written before does not count");
        free(reply);
        fake_counts counts = fake_engine_counts(f.engine);
        cr_assert_eq(counts.flushes, i + 1);
    }
    fixture_stop(&f);
}

Test(server_kv_wait, a_flush_that_takes_longer_says_what_is_left) {
    fixture f;
    fake_script script = {.tiers = &with_disk, .flush_steps = 1000000};
    fixture_start(&f, "a", &script, NULL);
    for (int i = 0; i < 2; i++) {
        char *reply = ask(&f, "POST /v1/kv/flush", i ? "{\"timeout\":0.05}" : "{\"timeout\":0}");
        cr_assert_eq(reply_status(reply), 202);
        cr_assert_eq(field_of(reply, "flushed"), 0);
        free(reply);
    }
    cr_assert_eq(fake_engine_counts(f.engine).stopped_flushes, 0, "it goes on");
    fixture_stop(&f);
}

Test(server_kv_wait, a_flush_is_refused_where_it_means_nothing) {
    fixture f;
    fixture_start(&f, "a", NULL, NULL);
    char *reply = ask(&f, "POST /v1/kv/flush", "");
    cr_assert_eq(reply_status(reply), 400);
    cr_assert(strstr(reply, "--disk-cache"));
    free(reply);
    static const char *const bad[] = {"{\"timeout\":-1}", "{\"timeout\":3601}", "{\"timeout\":\"1\"}", "[]", "{"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        reply = ask(&f, "POST /v1/kv/flush", bad[i]);
        cr_expect_eq(reply_status(reply), 400, "%s", bad[i]);
        free(reply);
    }
    reply = ask(&f, "GET /v1/kv/flush", "");
    cr_assert_eq(reply_status(reply), 405);
    free(reply);
    cr_assert_eq(fake_engine_counts(f.engine).flushes, 0);
    fixture_stop(&f);
}

Test(server_kv_wait, a_deletion_is_answered_when_the_bytes_are_gone) {
    fixture f;
    fake_script script = {.tiers = &with_disk, .erase_steps = 200};
    fixture_start(&f, "a", &script, NULL);
    char *reply = ask(&f, "DELETE /v1/kv?all=true", "");
    cr_assert_eq(reply_status(reply), 200, "%s", reply);
    cr_assert_eq(field_of(reply, "erasing"), 0);
    free(reply);
    reply = ask(&f, "DELETE /v1/kv", "{\"cache_salt\":\"a\",\"timeout\":0.01}");
    cr_assert_eq(reply_status(reply), 202, "%s", reply);
    cr_assert_gt(field_of(reply, "erasing"), 0);
    cr_assert(strstr(reply, "\"forgotten\":\"namespace\""));
    free(reply);
    fixture_stop(&f);
}

/* The next answers come in order, although the first takes a while. */
Test(server_kv_wait, later_requests_of_the_connection_wait_for_it) {
    fixture f;
    fake_script script = {.tiers = &with_disk, .flush_steps = 300};
    fixture_start(&f, "a", &script, NULL);
    int fd = client_connect(&f);
    client_send(fd, "POST /v1/kv/flush HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
                    "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
    char *reply = client_read(fd, NULL), *flushed = strstr(reply, "\"flushed\":true");
    cr_assert_not_null(flushed);
    cr_assert_not_null(strstr(flushed, "HTTP/1.1 200 OK"));
    free(reply);
    close(fd);
    fixture_stop(&f);
}

Test(server_kv_wait, a_client_that_leaves_and_a_drain_leave_nothing_behind) {
    fixture f;
    fake_script script = {.tiers = &with_disk, .flush_steps = 1000000};
    qr_server_config options = {.drain_ms = 100};
    fixture_start(&f, "a", &script, &options);
    int gone = client_connect(&f), waits = client_connect(&f);
    client_send(gone, "POST /v1/kv/flush HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    while (fake_engine_counts(f.engine).flushes < 1) usleep(1000);
    close(gone);
    client_send(waits, "POST /v1/kv/flush HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    while (fake_engine_counts(f.engine).flushes < 2) usleep(1000);
    qr_server_stop(f.server);
    char *reply = client_read(waits, NULL);
    cr_assert_eq(reply_status(reply), 503, "%s", reply);
    free(reply);
    close(waits);
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_TIMED_OUT);
    quire_engine_destroy(f.engine);
    qr_server_destroy(f.server);
    fake_model_destroy(f.model);
    rmdir(f.folder);
}
