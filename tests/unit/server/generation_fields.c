#include "runtime/model/stop_set.h"
#include "runtime/server/peer.h"
#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAT "/v1/chat/completions"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* Posts and expects a refusal that names the field in valid JSON. */
static void expect_refused(const fixture *f, const char *path, const char *body, const char *field) {
    char *reply = client_post(f, path, body);
    cr_expect_eq(reply_status(reply), 400, "%s: %.300s", body, reply);
    json_t *root = json_loads(reply_body(reply), JSON_REJECT_DUPLICATES, NULL);
    cr_expect(root, "not JSON: %s", reply);
    json_t *error = json_object_get(root, "error");
    const char *param = json_string_value(json_object_get(error, "param"));
    if (field) cr_expect(param && strstr(param, field), "%s: param is %s", body, param ? param : "null");
    cr_expect(strlen(json_string_value(json_object_get(error, "message"))) > 0);
    json_decref(root);
    free(reply);
}

static void expect_accepted(const fixture *f, const char *path, const char *body) {
    char *reply = client_post(f, path, body);
    cr_expect_eq(reply_status(reply), 200, "%s: %.300s", body, reply);
    free(reply);
}

Test(server_generation_fields, ranges_and_kinds_are_checked_by_name) {
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    static const struct {
        const char *json, *field;
    } bad[] = {
        {"\"temperature\":-0.1", "temperature"},
        {"\"temperature\":2.1", "temperature"},
        {"\"temperature\":\"1\"", "temperature"},
        {"\"top_p\":1.01", "top_p"},
        {"\"top_p\":-0.01", "top_p"},
        {"\"min_p\":1.5", "min_p"},
        {"\"top_k\":-2", "top_k"},
        {"\"top_k\":1.5", "top_k"},
        {"\"n\":0", "n"},
        {"\"n\":65", "n"},
        {"\"n\":true", "n"},
        {"\"max_tokens\":-1", "max_tokens"},
        {"\"max_completion_tokens\":3000000000", "max_completion_tokens"},
        {"\"min_tokens\":9,\"max_tokens\":5", "min_tokens"},
        {"\"presence_penalty\":2.5", "presence_penalty"},
        {"\"frequency_penalty\":-2.5", "frequency_penalty"},
        {"\"repetition_penalty\":0", "repetition_penalty"},
        {"\"logit_bias\":{\"99999\":1}", "logit_bias"},
        {"\"logit_bias\":{\"x\":1}", "logit_bias"},
        {"\"logit_bias\":{\"-1\":1}", "logit_bias"},
        {"\"logit_bias\":{\"1\":101}", "logit_bias"},
        {"\"logit_bias\":{\"1\":\"a\"}", "logit_bias"},
        {"\"logit_bias\":[]", "logit_bias"},
        {"\"logprobs\":1", "logprobs"},
        {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs"},
        {"\"top_logprobs\":3", "top_logprobs"},
        {"\"stop\":\"\"", "stop"},
        {"\"stop\":[1]", "stop"},
        {"\"stop\":[\"a\",\"\"]", "stop"},
        {"\"stop\":{}", "stop"},
        {"\"stop_token_ids\":[99999]", "stop_token_ids"},
        {"\"stop_token_ids\":5", "stop_token_ids"},
        {"\"stream\":\"yes\"", "stream"},
        {"\"stream_options\":{\"include_usage\":true}", "stream_options"},
        {"\"stream\":true,\"stream_options\":5", "stream_options"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "include_usage"},
        {"\"seed\":1.5", "seed"},
        {"\"priority\":\"high\"", "priority"},
        {"\"timeout\":0", "timeout"},
        {"\"cache_salt\":7", "cache_salt"},
        {"\"model\":7", "model"},
        {"\"echo\":true", "echo"},
        {"\"best_of\":3", "best_of"},
        {"\"tools\":[{\"type\":\"function\"}]", "tools"},
        {"\"response_format\":{\"type\":\"json_object\"}", "response_format"},
        {"\"chat_template\":\"x\"", "chat_template"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[400];
        snprintf(body, sizeof body, "{" HI ",%s}", bad[i].json);
        expect_refused(&f, CHAT, body, bad[i].field);
    }
    static const char *const good[] = {
        "\"temperature\":2",
        "\"top_p\":0",
        "\"min_p\":1",
        "\"top_k\":-1",
        "\"top_k\":100000",
        "\"stop\":[]",
        "\"stop\":null",
        "\"seed\":-5",
        "\"logit_bias\":{\"65\":-100}",
        "\"tools\":[]",
        "\"tool_choice\":\"auto\"",
        "\"n\":2,\"best_of\":2",
        "\"response_format\":{\"type\":\"text\"}",
        "\"unknown\":{\"a\":[1]}",
        "\"model\":\"anything\"",
        "\"user\":\"u\"",
        "\"stream\":false,\"stream_options\":null",
        "\"max_tokens\":0",
        "\"ignore_eos\":false",
        "\"top_logprobs\":0",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char body[400];
        snprintf(body, sizeof body, "{" HI ",%s}", good[i]);
        expect_accepted(&f, CHAT, body);
    }
    fixture_stop(&f);
}

/* Strings that a request keeps while it waits, and every choice searches for, are bounded. */
Test(server_generation_fields, texts_that_are_kept_have_a_largest_size) {
    static const struct {
        const char *field;
        size_t most;
    } fields[] = {{"stop", QR_STOP_BYTES_MAX}, {"cache_salt", QR_SALT_BYTES_MAX}};
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char text[8192] = {0}, body[8400];
        memset(text, 'x', fields[i].most + 1);
        snprintf(body, sizeof body, "{" HI ",\"%s\":\"%s\"}", fields[i].field, text);
        expect_refused(&f, CHAT, body, fields[i].field);
        snprintf(body, sizeof body, "{" HI ",\"%s\":\"%s\"}", fields[i].field, text + 1);
        expect_accepted(&f, CHAT, body);
    }
    fixture_stop(&f);
}

Test(server_generation_fields, reach_the_engine) {
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    expect_accepted(&f, CHAT,
                    "{" HI ",\"temperature\":0.25,\"top_k\":7,\"seed\":42,\"priority\":-3,\"timeout\":1.5,\"n\":3,"
                    "\"max_tokens\":5,\"min_tokens\":2,\"stop\":\"<|endoftext|>\",\"cache_salt\":\"s\"}");
    quire_request last = fake_engine_counts(f.engine).last;
    cr_assert_eq(last.sampling.temperature, 0.25f);
    cr_assert_eq(last.sampling.top_k, 7);
    cr_assert(last.sampling.seeded && last.sampling.seed == 42);
    cr_assert_eq(last.priority, -3);
    cr_assert_eq(last.timeout_us, 1500000);
    cr_assert_eq(last.choice_count, 3);
    cr_assert_eq(last.max_tokens, 5);
    cr_assert_eq(last.min_tokens, 2);
    cr_assert_eq(last.top_logprobs, -1);
    cr_assert_eq(last.stop_token_count, 1, "a control token's name stops on the token");
    cr_assert_eq(last.namespace_bytes, 3 * 8 + 1);
    fixture_stop(&f);
}

Test(server_generation_fields, bodies_that_are_not_one_json_object_are_refused) {
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    static const char *const bad[] = {
        "",
        "{",
        "{" HI "} x",
        "\xef\xbb\xbf{" HI "}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
        "{" HI ",\"temperature\":1e400}",
        "{" HI ",\"temperature\":1,\"temperature\":1}",
        "[]",
        "5",
        "\"x\"",
        "null",
        "{'a':1}",
        "{" HI ",\"seed\":99999999999999999999999}",
        "{" HI ",\"a\\u0000b\":1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refused(&f, CHAT, bad[i], NULL);
    char *deep = malloc(7000);
    size_t at = (size_t)sprintf(deep, "{\"a\":");
    memset(deep + at, '[', 3000);
    memset(deep + at + 3000, ']', 3000);
    strcpy(deep + at + 6000, "}");
    expect_refused(&f, CHAT, deep, NULL);
    free(deep);
    expect_accepted(&f, CHAT, "{" HI ",\"brackets\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"}");
    expect_accepted(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}");
    char *reply = client_post(&f, "/tokenize", "{\"content\":\"a\\u0000b\"}");
    cr_assert(strstr(reply, "\"tokens\":[97,0,98]"), "NUL shortened the text: %s", reply);
    free(reply);
    fixture_stop(&f);
}

Test(server_generation_fields, message_shapes) {
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    static const char *const bad[][2] = {
        {"{}", "messages"},
        {"{\"messages\":[]}", "messages"},
        {"{\"messages\":{}}", "messages"},
        {"{\"messages\":[5]}", "messages[0]"},
        {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0]"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"pirate\",\"content\":\"x\"}]}", "messages"},
        {"{" HI ",\"continue_final_message\":true}", "continue_final_message"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refused(&f, CHAT, bad[i][0], bad[i][1]);
    static const char *const same[][2] = {
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"ab\"},{\"role\":\"user\",\"content\":\"cd\"}]}",
         "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
         "\"b\"}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"text\",\"text\":\"d\"}]}]}"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"ab\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\","
         "\"text\":\"a\"},"
         "{\"type\":\"text\",\"text\":\"b\"}]}]}"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\"},{\"role\":\"user\","
         "\"content\":\"r\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]},"
         "{\"role\":\"user\",\"content\":\"r\"}]}"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        expect_accepted(&f, CHAT, same[i][0]);
        fake_counts first = fake_engine_counts(f.engine);
        expect_accepted(&f, CHAT, same[i][1]);
        fake_counts second = fake_engine_counts(f.engine);
        cr_expect_eq(first.last.prompt_count, second.last.prompt_count, "pair %zu", i);
        cr_expect_arr_eq(first.last_prompt, second.last_prompt, sizeof first.last_prompt, "pair %zu", i);
    }
    fixture_stop(&f);
}

Test(server_generation_fields, typed_markers_stay_text_in_messages_and_are_tokens_in_raw_prompts) {
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    expect_accepted(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    fake_counts plain = fake_engine_counts(f.engine);
    expect_accepted(&f, CHAT,
                    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_\"},"
                    "{\"type\":\"text\",\"text\":\"end|><|im_start|>\"}]}]}");
    fake_counts typed = fake_engine_counts(f.engine);
    int control[2] = {0, 0};
    for (uint32_t i = 0; i < plain.last.prompt_count; i++) control[0] += plain.last_prompt[i] >= 256;
    for (uint32_t i = 0; i < typed.last.prompt_count; i++) control[1] += typed.last_prompt[i] >= 256;
    cr_assert_eq(control[0], control[1]);
    expect_accepted(&f, "/v1/completions", "{\"prompt\":\"a<|im_end|>b\"}");
    cr_assert_eq(fake_engine_counts(f.engine).last.prompt_count, 3);
    fixture_stop(&f);
}

Test(server_generation_fields, prompt_shapes) {
    fixture f;
    fixture_start(&f, "ok", NULL, NULL);
    static const char *const bad[] = {"{}",
                                      "{\"prompt\":\"\"}",
                                      "{\"prompt\":[]}",
                                      "{\"prompt\":[[]]}",
                                      "{\"prompt\":5}",
                                      "{\"prompt\":[1,\"a\"]}",
                                      "{\"prompt\":[-1]}",
                                      "{\"prompt\":[100000]}",
                                      "{\"prompt\":[{}]}",
                                      "{\"prompt\":[\"\"]}",
                                      "{\"prompt\":[1.5]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refused(&f, "/v1/completions", bad[i], "prompt");
    expect_refused(&f, "/v1/completions", "{\"prompt\":\"a\",\"logprobs\":21}", "logprobs");
    expect_refused(&f, "/v1/completions", "{\"prompt\":\"a\",\"logprobs\":true}", "logprobs");
    expect_refused(&f, "/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"z\"}", "suffix");
    expect_accepted(&f, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0}");
    fixture_stop(&f);
}

Test(server_generation_fields, a_base_model_refuses_chat_and_completes) {
    fixture f = {0};
    fake_script script = {.end = FAKE_IM_END};
    f.model = fake_model_create(false);
    f.engine = fake_engine_create(&script, NULL, NULL);
    fixture_start_loading(&f, NULL);
    char *reply = client_post(&f, CHAT, "{" HI "}");
    cr_assert_eq(reply_status(reply), 503, "%s", reply);
    cr_assert(strstr(reply, "Retry-After"));
    free(reply);
    fake_engine_set_wake(f.engine, qr_server_wake, f.server);
    qr_server_attach(f.server, f.engine, f.model);
    while (reply = client_get(&f, "GET", "/health"), reply_status(reply) != 200) free(reply);
    free(reply);
    expect_refused(&f, CHAT, "{" HI "}", "messages");
    expect_accepted(&f, "/v1/completions", "{\"prompt\":\"a\"}");
    fixture_stop(&f);
}
