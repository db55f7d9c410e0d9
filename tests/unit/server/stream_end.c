/* How streams end when something fails: before the first token, or when several choices are open. What a normal stream looks
 * like is in reply.c. */
#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define CHAT "/v1/chat/completions"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define LAST_CHUNK "\r\n0\r\n\r\n"

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    while ((text = strstr(text, part))) count++, text += strlen(part);
    return count;
}

static void expect_one_error(const char *reply) {
    cr_expect_eq(count_of(reply, "data: {\"error\""), 1, "%s", reply);
    cr_expect_eq(count_of(reply, "[DONE]"), 0);
    cr_expect_str_eq(reply + strlen(reply) - strlen(LAST_CHUNK), LAST_CHUNK);
}

static void expect_error_body(const char *reply) {
    cr_expect_eq(reply_status(reply), 500);
    json_t *root = json_loads(reply_body(reply), JSON_REJECT_DUPLICATES, NULL);
    cr_expect(json_object_get(root, "error"), "%s", reply);
    json_decref(root);
}

/* R28: a whole reply has a status; a stream has already sent its headers and its role, and gets its one event. */
Test(server_stream_end, a_failure_before_the_first_token) {
    fixture f;
    fake_script script = {.fail_first = true};
    fixture_start(&f, "abc", &script, NULL);
    for (int stream = 0; stream < 2; stream++) {
        char *reply = client_post(&f, CHAT, stream ? "{" HI ",\"stream\":true}" : "{" HI "}");
        if (stream) {
            cr_expect_eq(reply_status(reply), 200);
            expect_one_error(reply);
        } else {
            expect_error_body(reply);
        }
        cr_expect_eq(count_of(reply, "\"content\":\"a"), 0, "%s", reply);
        free(reply);
    }
    cr_assert(fixture_wait_idle(&f));
    fixture_stop(&f);
}

Test(server_stream_end, a_failure_after_a_long_prefill) {
    fixture f;
    fake_script script = {.fail_first = true, .prefill_steps = 4, .step_us = 100000};
    qr_server_config options = {.ping_ms = 100};
    fixture_start(&f, "abc", &script, &options);
    char *reply = client_post(&f, CHAT, "{" HI ",\"stream\":true,\"return_progress\":true}");
    cr_assert_eq(reply_status(reply), 200);
    expect_one_error(reply);
    free(reply);
    fixture_stop(&f);
}

Test(server_stream_end, several_choices_share_one_error_event) {
    fixture f;
    fake_script script = {.fail_at = 3};
    fixture_start(&f, "abcdef", &script, NULL);
    char *reply = client_post(&f, "/v1/completions", "{\"prompt\":[\"x\",\"y\"],\"n\":2,\"stream\":true}");
    cr_assert_eq(reply_status(reply), 200);
    expect_one_error(reply);
    cr_expect_eq(count_of(reply, "\"finish_reason\":\"stop\""), 0);
    free(reply);
    cr_assert(fixture_wait_idle(&f));
    fixture_stop(&f);
}
