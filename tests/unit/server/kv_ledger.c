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
    cr_assert(json_is_false(json_object_get(json_object_get(root, "disk"), "present")));
    json_decref(root);
    free(reply);
    fixture_stop(&f);
}

Test(server_kv_ledger, shows_the_disk_as_it_is) {
    const quire_kv_tiers_stats tiers = {.index_records = 7,
                                        .tiers[QUIRE_KV_TIER_DISK] = {.present = true,
                                                                      .total_bytes = 1000,
                                                                      .used_bytes = 600,
                                                                      .block_count = 5,
                                                                      .budget_bytes = 90,
                                                                      .budget_left_bytes = 80,
                                                                      .written_bytes_total = 10}};
    const struct {
        const char *name;
        int value;
    } wanted[] = {{"bytes", 600},           {"bytes_max", 1000},           {"blocks", 5},         {"tokens", 80},
                  {"day_budget_bytes", 90}, {"day_budget_left_bytes", 80}, {"written_bytes", 10}, {"found_at_start", 7}};
    fixture f;
    fake_script script = {.tiers = &tiers};
    fixture_start(&f, "a", &script, NULL);
    char *reply = client_get(&f, "GET", "/v1/kv");
    json_t *root = json_loads(reply_body(reply), 0, NULL), *disk = json_object_get(root, "disk");
    cr_assert(json_is_true(json_object_get(disk, "present")));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        cr_expect_eq(json_integer_value(json_object_get(disk, wanted[i].name)), wanted[i].value, "%s", wanted[i].name);
    json_decref(root);
    free(reply);
    fixture_stop(&f);
}

Test(server_kv_ledger, explains_every_cause_and_where_the_hit_came_from) {
    for (int miss = 0; miss < QUIRE_KV_MISS_COUNT; miss++) {
        const quire_kv_match match = {
            .token_count = 3, .host_tokens = 0, .disk_tokens = 2, .stored_tokens = 16, .miss = (quire_kv_miss)miss};
        fixture f;
        fake_script script = {.match = &match};
        fixture_start(&f, "a", &script, NULL);
        char *reply = client_post(&f, "/v1/completions", "{\"prompt\":\"abcdef\",\"explain_cache\":true}");
        json_t *root = json_loads(reply_body(reply), 0, NULL), *kv = json_array_get(json_object_get(root, "kv"), 0);
        json_t *tiers = json_object_get(kv, "tiers");
        cr_expect_str_eq(json_string_value(json_object_get(kv, "cause")), quire_kv_miss_name((quire_kv_miss)miss));
        cr_expect_eq(json_integer_value(json_object_get(tiers, "device")), 1);
        cr_expect_eq(json_integer_value(json_object_get(tiers, "disk")), 2);
        cr_expect_eq(json_integer_value(json_object_get(kv, "stored_tokens")), 16);
        cr_expect_eq(json_integer_value(json_object_get(kv, "first_divergent_position")), 19);
        json_t *details = json_object_get(json_object_get(root, "usage"), "prompt_tokens_details");
        cr_expect_eq(json_integer_value(json_object_get(details, "cached_tokens")), 3, "what was loaded counts");
        json_decref(root);
        free(reply);
        fixture_stop(&f);
    }
}

/* The first position that was cached in no tier: the same before, during and after a load, however far it came. */
Test(server_kv_ledger, the_divergent_position_lies_behind_all_that_is_stored) {
    static const struct {
        quire_kv_match match;
        int position;
    } rows[] = {{{.token_count = 0}, 0},
                {{.token_count = 37, .block_count = 2, .tail_tokens = 5}, 37},
                {{.token_count = 32, .block_count = 2, .stored_tokens = 48}, 80},
                {{.token_count = 64, .block_count = 4, .stored_tokens = 16, .disk_tokens = 32}, 80},
                {{.token_count = 80, .block_count = 5, .stored_tokens = 0, .disk_tokens = 48}, 80},
                {{.token_count = 37, .block_count = 2, .tail_tokens = 5, .stored_tokens = 48}, 80},
                {{.token_count = 69, .block_count = 4, .tail_tokens = 5, .stored_tokens = 16, .disk_tokens = 32}, 80},
                {{.token_count = 1408, .block_count = 88, .stored_tokens = 80, .disk_tokens = 1408}, 1488}};
    char body[1700]; /* a prompt of 1,500 tokens */
    snprintf(body, sizeof body, "{\"explain_cache\":true,\"prompt\":\"%01500d\"}", 7);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        fake_script script = {.match = &rows[i].match, .context_tokens = 2048};
        fixture_start(&f, "a", &script, NULL);
        char *reply = client_post(&f, "/v1/completions", body);
        json_t *root = json_loads(reply_body(reply), 0, NULL), *kv = json_array_get(json_object_get(root, "kv"), 0);
        cr_expect_eq(json_integer_value(json_object_get(kv, "first_divergent_position")), rows[i].position, "row %zu", i);
        json_decref(root);
        free(reply);
        fixture_stop(&f);
    }
}
