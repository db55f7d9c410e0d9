#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *body_of(const char *reply, int status) {
    json_error_t error;
    cr_assert_eq(reply_status(reply), status, "%s", reply);
    json_t *root = json_loads(reply_body(reply), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    cr_assert(root, "not JSON (%s): %s", error.text, reply);
    return root;
}

static json_t *choice_of(json_t *root, size_t index) { return json_array_get(json_object_get(root, "choices"), index); }

static const char *content_of(json_t *choice) {
    return json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
}

static json_int_t usage_of(json_t *root, const char *name) {
    return json_integer_value(json_object_get(json_object_get(root, "usage"), name));
}

/* Posts, checks the status and gives the parsed body. */
static json_t *post(const fixture *f, const char *path, const char *body, int status) {
    char *reply = client_post(f, path, body);
    json_t *root = body_of(reply, status);
    free(reply);
    return root;
}

#define CHAT "/v1/chat/completions"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

Test(server_reply, chat_answers_with_text_usage_and_timings) {
    fixture f;
    fixture_start(&f, "Hello, w\xc3\xb6rld! \xf0\x9f\x99\x82", NULL, NULL);
    json_t *root = post(&f, CHAT, "{" HI "}", 200);
    cr_assert_str_eq(content_of(choice_of(root, 0)), "Hello, w\xc3\xb6rld! \xf0\x9f\x99\x82");
    cr_assert_str_eq(json_string_value(json_object_get(choice_of(root, 0), "finish_reason")), "stop");
    cr_assert_eq(usage_of(root, "completion_tokens"), 19 + 1);
    cr_assert_eq(usage_of(root, "total_tokens"), usage_of(root, "prompt_tokens") + 20);
    cr_assert(json_is_integer(
        json_object_get(json_object_get(json_object_get(root, "usage"), "prompt_tokens_details"), "cached_tokens")));
    cr_assert(json_is_number(json_object_get(json_object_get(root, "timings"), "prompt_per_second")));
    cr_assert(json_is_null(json_object_get(choice_of(root, 0), "logprobs")));
    json_decref(root);
    fixture_stop(&f);
}

Test(server_reply, a_stop_string_ends_before_itself_and_drops_its_scores) {
    fixture f;
    fixture_start(&f, "abcdefgh", NULL, NULL);
    json_t *root =
        post(&f, CHAT, "{" HI ",\"stop\":[\"de\",\"zz\"],\"logprobs\":true,\"top_logprobs\":2,\"return_token_ids\":true}", 200);
    cr_assert_str_eq(content_of(choice_of(root, 0)), "abc");
    json_t *entries = json_object_get(json_object_get(choice_of(root, 0), "logprobs"), "content");
    cr_assert_eq(json_array_size(entries), 3);
    cr_assert_eq(json_array_size(json_object_get(json_array_get(entries, 0), "top_logprobs")), 2);
    cr_assert_eq(json_array_size(json_object_get(choice_of(root, 0), "token_ids")), 5);
    cr_assert_eq(usage_of(root, "completion_tokens"), 5);
    cr_assert_str_eq(json_string_value(json_object_get(choice_of(root, 0), "finish_reason")), "stop");
    json_decref(root);
    root = post(&f, CHAT, "{" HI ",\"stop\":\"a\",\"logprobs\":true}", 200);
    cr_assert_str_eq(content_of(choice_of(root, 0)), "");
    cr_assert_eq(json_array_size(json_object_get(json_object_get(choice_of(root, 0), "logprobs"), "content")), 0);
    cr_assert_eq(usage_of(root, "completion_tokens"), 1);
    json_decref(root);
    root = post(&f, CHAT, "{" HI ",\"stop\":\"hX\"}", 200);
    cr_assert_str_eq(content_of(choice_of(root, 0)), "abcdefgh");
    json_decref(root);
    cr_assert(fixture_wait_idle(&f));
    fixture_stop(&f);
}

Test(server_reply, several_prompts_and_choices_are_indexed) {
    fixture f;
    fixture_start(&f, "xy", NULL, NULL);
    json_t *root =
        post(&f, "/v1/completions", "{\"prompt\":[\"a\",[98,99],\"d\"],\"n\":2,\"echo\":true,\"max_tokens\":1}", 200);
    static const char *const texts[] = {"ax", "ax", "bcx", "bcx", "dx", "dx"};
    cr_assert_eq(json_array_size(json_object_get(root, "choices")), 6);
    for (size_t i = 0; i < 6; i++) {
        cr_assert_eq(json_integer_value(json_object_get(choice_of(root, i), "index")), (json_int_t)i);
        cr_assert_str_eq(json_string_value(json_object_get(choice_of(root, i), "text")), texts[i]);
        cr_assert_str_eq(json_string_value(json_object_get(choice_of(root, i), "finish_reason")), "length");
    }
    cr_assert_eq(usage_of(root, "prompt_tokens"), 4);
    cr_assert_eq(usage_of(root, "completion_tokens"), 6);
    json_decref(root);
    fixture_stop(&f);
}

Test(server_reply, legacy_scores_have_equal_arrays_and_a_null_first_entry_with_echo) {
    fixture f;
    fixture_start(&f, "\xc3\xb6y", NULL, NULL);
    json_t *root = post(
        &f, "/v1/completions",
        "{\"prompt\":\"h\\u00e9\",\"echo\":true,\"logprobs\":3,\"return_token_ids\":true,\"return_logits_digest\":true}", 200);
    json_t *scores = json_object_get(choice_of(root, 0), "logprobs");
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset", "bytes", "top_token_ids"};
    for (size_t i = 0; i < 6; i++) cr_assert_eq(json_array_size(json_object_get(scores, names[i])), 6, "%s", names[i]);
    cr_assert(json_is_null(json_array_get(json_object_get(scores, "token_logprobs"), 0)));
    cr_assert(json_is_null(json_array_get(json_object_get(scores, "top_logprobs"), 0)));
    static const json_int_t offsets[] = {0, 1, 1, 2, 2, 3};
    for (size_t i = 0; i < 6; i++)
        cr_assert_eq(json_integer_value(json_array_get(json_object_get(scores, "text_offset"), i)), offsets[i], "%zu", i);
    cr_assert_eq(json_integer_value(json_array_get(json_array_get(json_object_get(scores, "bytes"), 1), 0)), 0xc3);
    cr_assert_str_eq(json_string_value(json_array_get(json_object_get(scores, "tokens"), 1)), "\xef\xbf\xbd");
    cr_assert_eq(json_array_size(json_object_get(choice_of(root, 0), "logits_digest")), 4);
    cr_assert_eq(strlen(json_string_value(json_array_get(json_object_get(choice_of(root, 0), "logits_digest"), 0))), 16);
    cr_assert_eq(json_array_size(json_object_get(choice_of(root, 0), "token_ids")), 4);
    cr_assert_eq(json_array_size(json_object_get(root, "prompt_token_ids")), 3);
    json_decref(root);
    fixture_stop(&f);
}

Test(server_reply, half_a_character_is_still_valid_json) {
    fixture f;
    fixture_start(&f, "\xf0\x9f\x99\x82", NULL, NULL);
    json_t *root = post(&f, CHAT, "{" HI ",\"max_tokens\":1,\"logprobs\":true}", 200);
    cr_assert_str_eq(content_of(choice_of(root, 0)), "\xef\xbf\xbd");
    json_decref(root);
    fixture_stop(&f);
}

Test(server_reply, max_tokens_is_exact_and_the_context_is_the_limit) {
    fixture f;
    fake_script script = {.context_tokens = 32};
    char text[200];
    memset(text, 'k', 199);
    text[199] = 0;
    fixture_start(&f, text, &script, NULL);
    for (int n = 0; n < 4; n++) {
        char body[100];
        snprintf(body, sizeof body, "{\"prompt\":\"abc\",\"max_tokens\":%d}", n);
        json_t *root = post(&f, "/v1/completions", body, 200);
        cr_assert_eq(usage_of(root, "completion_tokens"), n);
        json_decref(root);
    }
    for (int prompt = 30; prompt < 36; prompt++) {
        char body[200], letters[64] = {0};
        memset(letters, 'x', (size_t)prompt);
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":100}", letters);
        json_t *root = post(&f, "/v1/completions", body, prompt < 32 ? 200 : 400);
        if (prompt < 32) {
            cr_assert_eq(usage_of(root, "completion_tokens"), 32 - prompt);
            cr_assert_str_eq(json_string_value(json_object_get(choice_of(root, 0), "finish_reason")), "length");
        } else {
            json_t *error = json_object_get(root, "error");
            cr_assert_str_eq(json_string_value(json_object_get(error, "type")), "exceed_context_size_error");
            cr_assert_eq(json_integer_value(json_object_get(error, "n_prompt_tokens")), prompt);
            cr_assert_eq(json_integer_value(json_object_get(error, "n_ctx")), 32);
        }
        json_decref(root);
    }
    fixture_stop(&f);
}

/* ---- streams ---- */

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    while ((text = strstr(text, part))) count++, text += strlen(part);
    return count;
}

Test(server_reply, a_stream_has_role_deltas_finish_usage_and_one_done) {
    fixture f;
    fixture_start(&f, "h\xc3\xb6!", NULL, NULL);
    char *reply = client_post(&f, CHAT, "{" HI ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    cr_assert_eq(reply_status(reply), 200);
    cr_assert(strstr(reply, "text/event-stream"));
    cr_assert_eq(count_of(reply, "data: [DONE]\n\n"), 1);
    cr_assert_eq(count_of(reply, "\"role\":\"assistant\""), 1);
    cr_assert_lt(strstr(reply, "\"role\":\"assistant\""), strstr(reply, "\"content\":\"h\""));
    cr_assert_eq(count_of(reply, "\"content\":\"\xc3\xb6\""), 1, "%s", reply);
    cr_assert_eq(count_of(reply, "\"finish_reason\":\"stop\""), 1);
    cr_assert_eq(count_of(reply, "\"choices\":[],\"usage\":{\"prompt_tokens\""), 1);
    cr_assert_eq(count_of(reply, "\"usage\":null"), count_of(reply, "data: {") - 1);
    cr_assert_str_eq(reply + strlen(reply) - 7, "\r\n0\r\n\r\n");
    free(reply);
    reply = client_post(&f, CHAT, "{" HI ",\"stream\":true,\"stream_options\":{}}");
    cr_assert_eq(count_of(reply, "\"usage\""), 0);
    cr_assert_eq(count_of(reply, "\"timings\""), 1);
    free(reply);
    fixture_stop(&f);
}

Test(server_reply, a_failure_is_one_error_event_or_a_status) {
    fixture f;
    fake_script script = {.fail_at = 3};
    fixture_start(&f, "abcdef", &script, NULL);
    char *reply = client_post(&f, CHAT, "{" HI ",\"stream\":true}");
    cr_assert_eq(count_of(reply, "data: {\"error\""), 1);
    cr_assert_eq(count_of(reply, "[DONE]"), 0);
    cr_assert_str_eq(reply + strlen(reply) - 7, "\r\n0\r\n\r\n");
    free(reply);
    json_decref(post(&f, CHAT, "{" HI "}", 500));
    cr_assert(fixture_wait_idle(&f));
    fixture_stop(&f);
}

Test(server_reply, progress_and_pings_fill_a_long_prefill) {
    fixture f;
    fake_script script = {.prefill_steps = 8, .step_us = 100000};
    qr_server_config options = {.ping_ms = 250};
    fixture_start(&f, "a", &script, &options);
    char *reply = client_post(&f, CHAT, "{" HI ",\"stream\":true,\"return_progress\":true}");
    cr_assert_eq(count_of(reply, "\"prompt_progress\":{\"total\""), 8);
    free(reply);
    reply = client_post(&f, CHAT, "{" HI ",\"stream\":true}");
    cr_assert_geq(count_of(reply, ": ping\n\n"), 1);
    cr_assert_eq(count_of(reply, "data: [DONE]"), 1);
    free(reply);
    fixture_stop(&f);
}

Test(server_reply, timeout_gives_what_there_is) {
    fixture f;
    char text[4000];
    memset(text, 't', sizeof text - 1);
    text[sizeof text - 1] = 0;
    fake_script script = {.context_tokens = 100000};
    fixture_start(&f, text, &script, NULL);
    json_t *root = post(&f, CHAT, "{" HI ",\"timeout\":0.05}", 200);
    cr_assert_str_eq(json_string_value(json_object_get(choice_of(root, 0), "finish_reason")), "timeout");
    cr_assert_gt(usage_of(root, "completion_tokens"), 0);
    json_decref(root);
    fixture_stop(&f);
}

Test(server_reply, a_full_queue_is_429_with_retry_after) {
    fixture f;
    fake_script script = {.hold = true, .queue_max = 1};
    fixture_start(&f, "a", &script, NULL);
    int fd = client_connect(&f);
    client_send(fd, "POST /v1/completions HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}");
    while (fake_engine_counts(f.engine).live == 0) usleep(1000);
    char *reply = client_post(&f, "/v1/completions", "{\"prompt\":\"b\"}");
    cr_assert_eq(reply_status(reply), 429);
    cr_assert(strstr(reply, "\r\nRetry-After: "));
    free(reply);
    reply = client_post(&f, "/v1/completions", "{\"prompt\":[\"b\",\"c\"]}");
    cr_assert_eq(reply_status(reply), 429);
    free(reply);
    close(fd);
    cr_assert(fixture_wait_idle(&f));
    cr_assert_eq(fake_engine_counts(f.engine).started, 0, "a queued request whose client left was started");
    fixture_stop(&f);
}
