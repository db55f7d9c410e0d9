#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int delete_kv(const fixture *f, const char *query, const char *body) {
    char request[400];
    int fd = client_connect(f);
    snprintf(request, sizeof request, "DELETE /v1/kv%s HTTP/1.1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", query,
             strlen(body), body);
    client_send(fd, request);
    char *reply = client_read(fd, NULL);
    int status = reply_status(reply);
    free(reply);
    close(fd);
    return status;
}

Test(server_kv_ledger, forgets_what_is_named_and_nothing_else) {
    fixture f;
    fixture_start(&f, "a", NULL, NULL);
    static const char *const bad[][2] = {{"", ""},
                                         {"", "{}"},
                                         {"", "{\"all\":false}"},
                                         {"", "{\"all\":1}"},
                                         {"", "[]"},
                                         {"", "{\"all\":true,\"cache_salt\":\"x\"}"},
                                         {"?all=yes", ""},
                                         {"?cache_salt=%zz", ""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(delete_kv(&f, bad[i][0], bad[i][1]), 400, "%s %s", bad[i][0], bad[i][1]);
    fake_counts counts = fake_engine_counts(f.engine);
    cr_assert(counts.forgotten_all == 0 && counts.forgotten_one == 0);
    cr_assert_eq(delete_kv(&f, "", "{\"cache_salt\":\"\"}"), 200);
    cr_assert_eq(delete_kv(&f, "?cache_salt=a%20b", ""), 200);
    counts = fake_engine_counts(f.engine);
    cr_assert(counts.forgotten_all == 0 && counts.forgotten_one == 2);
    cr_assert_eq(delete_kv(&f, "", "{\"all\":true}"), 200);
    cr_assert_eq(delete_kv(&f, "?all=true", ""), 200);
    cr_assert_eq(fake_engine_counts(f.engine).forgotten_all, 2);
    fixture_stop(&f);
}

Test(server_kv_ledger, adds_up) {
    fixture f;
    fixture_start(&f, "a", NULL, NULL);
    char *reply = client_get(&f, "GET", "/v1/kv");
    json_t *root = json_loads(reply_body(reply), 0, NULL), *pool = json_object_get(root, "pool");
    cr_assert_eq(json_integer_value(json_object_get(pool, "tokens")), 16000);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(root, "sessions"), "at_full_context")), 1000 / 32);
    json_decref(root);
    free(reply);
    fixture_stop(&f);
}
