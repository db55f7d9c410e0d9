/* reply_json.c - see reply_json.h. */
#include "runtime/server/reply_json.h"

#include "base/clock.h"
#include "runtime/model/model.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- shared parts ---- */

static void reply_open(qr_json *json, const qr_reply *reply, bool chunk) {
    const char *object = !reply->generation->chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    qr_json_open(json, '{');
    qr_json_put_text(json, "id", reply->id);
    qr_json_put_text(json, "object", object);
    qr_json_put_uint(json, "created", reply->created_s);
    qr_json_put_text(json, "model", quire_model_get_info(reply->server->model)->name);
    qr_json_put_text(json, "system_fingerprint", reply->server->fingerprint);
}

static void put_usage(qr_json *json, const qr_usage *usage) {
    qr_json_key(json, "usage");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "prompt_tokens", usage->prompt_tokens);
    qr_json_put_uint(json, "completion_tokens", usage->completion_tokens);
    qr_json_put_uint(json, "total_tokens", usage->prompt_tokens + usage->completion_tokens);
    qr_json_key(json, "prompt_tokens_details");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "cached_tokens", usage->cached_tokens);
    qr_json_close(json, '}');
    qr_json_close(json, '}');
}

static double per_second(uint64_t tokens, uint64_t time_us) { return time_us ? (double)tokens * 1e6 / (double)time_us : 0; }

static void put_timings(qr_json *json, const qr_usage *usage) {
    uint64_t computed = usage->prompt_tokens - usage->cached_tokens;
    qr_json_key(json, "timings");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "cache_n", usage->cached_tokens);
    qr_json_put_uint(json, "prompt_n", computed);
    qr_json_put_real(json, "prompt_ms", (double)usage->prefill_us / 1000);
    qr_json_put_uint(json, "predicted_n", usage->completion_tokens);
    qr_json_put_real(json, "predicted_ms", (double)usage->decode_us / 1000);
    qr_json_put_real(json, "prompt_per_second", per_second(computed, usage->prefill_us));
    qr_json_put_real(json, "predicted_per_second", per_second(usage->completion_tokens, usage->decode_us));
    qr_json_close(json, '}');
}

/* Where the matched tokens came from. */
static void put_tiers(qr_json *json, const quire_kv_match *match) {
    qr_json_key(json, "tiers");
    qr_json_open(json, '{');
    qr_json_put_uint(json, "device", match->token_count - match->host_tokens - match->disk_tokens);
    qr_json_put_uint(json, "host", match->host_tokens);
    qr_json_put_uint(json, "disk", match->disk_tokens);
    qr_json_close(json, '}');
}

/* The first position that was cached in no tier, whatever came of what was stored. What is loaded is the back of that, and its
 * front is computed meanwhile and counts as stored: so the end lies behind both, also of a load that was given up. A tail is
 * part of the block in which what is stored begins. */
static uint32_t divergent_position(const quire_kv_match *match) {
    return match->stored_tokens ? match->token_count - match->tail_tokens + match->stored_tokens : match->token_count;
}

/* Why each prompt's hit was as long as it was. */
static void put_explanation(qr_json *json, const qr_reply *reply) {
    qr_json_key(json, "kv");
    qr_json_open(json, '[');
    for (uint32_t i = 0; i < reply->generation->prompt_count; i++) {
        const quire_kv_match *match = &reply->parts[i].match;
        qr_json_open(json, '{');
        qr_json_put_uint(json, "prompt_index", i);
        qr_json_put_uint(json, "prompt_tokens", reply->generation->prompts[i].tokens.count);
        qr_json_put_uint(json, "matched_tokens", match->token_count);
        qr_json_put_uint(json, "matched_blocks", match->block_count);
        qr_json_put_uint(json, "tail_tokens", match->tail_tokens);
        qr_json_put_uint(json, "stored_tokens", match->stored_tokens);
        put_tiers(json, match);
        qr_json_put_uint(json, "first_divergent_position", divergent_position(match));
        qr_json_put_text(json, "cause", quire_kv_miss_name(match->miss));
        qr_json_close(json, '}');
    }
    qr_json_close(json, ']');
}

static void put_figures(qr_json *json, const qr_reply *reply) {
    qr_usage usage = qr_reply_usage(reply);
    put_timings(json, &usage);
    if (reply->generation->explain_cache) put_explanation(json, reply);
}

static void put_ids(qr_json *json, const char *key, const quire_token *tokens, size_t count) {
    qr_json_key(json, key);
    qr_json_open(json, '[');
    for (size_t i = 0; i < count; i++) qr_json_int(json, tokens[i]);
    qr_json_close(json, ']');
}

/* One list for one prompt, a list of lists for several. */
static void put_prompt_ids(qr_json *json, const qr_reply *reply) {
    const qr_generation *g = reply->generation;
    if (g->prompt_count == 1) return put_ids(json, "prompt_token_ids", g->prompts[0].tokens.tokens, g->prompts[0].tokens.count);
    qr_json_key(json, "prompt_token_ids");
    qr_json_open(json, '[');
    for (uint32_t i = 0; i < g->prompt_count; i++) {
        qr_json_open(json, '[');
        for (size_t k = 0; k < g->prompts[i].tokens.count; k++) qr_json_int(json, g->prompts[i].tokens.tokens[k]);
        qr_json_close(json, ']');
    }
    qr_json_close(json, ']');
}

/* ---- a choice ---- */

static void put_logprobs(qr_json *json, const qr_reply *reply, const qr_choice *choice) {
    const qr_generation *g = reply->generation;
    const qr_tokenizer *tokenizer = qr_model_tokenizer(reply->server->model);
    qr_json_key(json, "logprobs");
    if (!g->logprobs) qr_json_null(json);
    else if (g->chat) qr_logprobs_chat(json, choice, tokenizer, g->return_token_ids);
    else qr_logprobs_text(json, choice, tokenizer, g->return_token_ids);
}

static void put_digests(qr_json *json, const qr_choice *choice) {
    const uint64_t *digests = (const uint64_t *)(const void *)choice->digests.data;
    qr_json_key(json, "logits_digest");
    qr_json_open(json, '[');
    for (size_t i = 0; i < choice->digests.size / sizeof *digests; i++) {
        char text[17];
        snprintf(text, sizeof text, "%016" PRIx64, digests[i]);
        qr_json_text(json, text);
    }
    qr_json_close(json, ']');
}

static void put_choice_extras(qr_json *json, const qr_reply *reply, const qr_choice *choice) {
    if (reply->generation->return_token_ids)
        put_ids(json, "token_ids", (const quire_token *)(const void *)choice->tokens.data,
                choice->tokens.size / sizeof(quire_token));
    if (reply->generation->request.logits_digest) put_digests(json, choice);
}

static void put_text(qr_json *json, const char *key, const qr_choice *choice) {
    qr_json_key(json, key);
    qr_json_string(json, choice->text.data ? choice->text.data : "", choice->text.size);
}

static void put_whole_choice(qr_json *json, const qr_reply *reply, const qr_choice *choice) {
    qr_json_open(json, '{');
    qr_json_put_uint(json, "index", choice->index);
    if (reply->generation->chat) {
        qr_json_key(json, "message");
        qr_json_open(json, '{');
        qr_json_put_text(json, "role", "assistant");
        put_text(json, "content", choice);
        qr_json_put_null(json, "refusal");
        qr_json_close(json, '}');
    } else {
        put_text(json, "text", choice);
    }
    put_logprobs(json, reply, choice);
    qr_json_put_text(json, "finish_reason", qr_finish_name(choice->finish));
    put_choice_extras(json, reply, choice);
    qr_json_close(json, '}');
}

void qr_reply_json_body(const qr_reply *reply, qr_bytes *out) {
    qr_json json = {.out = out};
    qr_usage usage = qr_reply_usage(reply);
    reply_open(&json, reply, false);
    qr_json_key(&json, "choices");
    qr_json_open(&json, '[');
    for (uint32_t i = 0; i < reply->choice_count; i++) put_whole_choice(&json, reply, &reply->choices[i]);
    qr_json_close(&json, ']');
    put_usage(&json, &usage);
    if (reply->generation->return_token_ids) put_prompt_ids(&json, reply);
    put_figures(&json, reply);
    qr_json_close(&json, '}');
}

/* ---- chunks ---- */

/* usage is null in all chunks but the one that has it, when it was asked for. */
static void chunk_close(qr_json *json, const qr_reply *reply) {
    if (reply->generation->include_usage) qr_json_put_null(json, "usage");
    qr_json_close(json, '}');
}

static void chunk_choice_open(qr_json *json, const qr_reply *reply, uint32_t index) {
    reply_open(json, reply, true);
    qr_json_key(json, "choices");
    qr_json_open(json, '[');
    qr_json_open(json, '{');
    qr_json_put_uint(json, "index", index);
}

static void chunk_choice_close(qr_json *json, const char *finish) {
    qr_json_put_text(json, "finish_reason", finish);
    qr_json_close(json, '}');
    qr_json_close(json, ']');
}

static void put_empty_delta(qr_json *json, const qr_reply *reply) {
    if (reply->generation->chat) {
        qr_json_key(json, "delta");
        qr_json_open(json, '{');
        qr_json_close(json, '}');
    } else {
        qr_json_put_text(json, "text", "");
    }
    qr_json_put_null(json, "logprobs");
}

void qr_reply_json_role(const qr_reply *reply, const qr_choice *choice, qr_bytes *out) {
    qr_json json = {.out = out};
    chunk_choice_open(&json, reply, choice->index);
    qr_json_key(&json, "delta");
    qr_json_open(&json, '{');
    qr_json_put_text(&json, "role", "assistant");
    qr_json_put_text(&json, "content", "");
    qr_json_close(&json, '}');
    qr_json_put_null(&json, "logprobs");
    chunk_choice_close(&json, NULL);
    if (reply->generation->return_token_ids && choice->index == 0) put_prompt_ids(&json, reply);
    chunk_close(&json, reply);
}

void qr_reply_json_chunk(const qr_reply *reply, const qr_choice *choice, qr_bytes *out) {
    qr_json json = {.out = out};
    chunk_choice_open(&json, reply, choice->index);
    if (reply->generation->chat) {
        qr_json_key(&json, "delta");
        qr_json_open(&json, '{');
        put_text(&json, "content", choice);
        qr_json_close(&json, '}');
    } else {
        put_text(&json, "text", choice);
    }
    put_logprobs(&json, reply, choice);
    put_choice_extras(&json, reply, choice);
    chunk_choice_close(&json, NULL);
    chunk_close(&json, reply);
}

void qr_reply_json_finish(const qr_reply *reply, const qr_choice *choice, bool figures, qr_bytes *out) {
    qr_json json = {.out = out};
    chunk_choice_open(&json, reply, choice->index);
    put_empty_delta(&json, reply);
    chunk_choice_close(&json, qr_finish_name(choice->finish));
    if (!reply->generation->chat && reply->generation->return_token_ids && choice->index == 0) put_prompt_ids(&json, reply);
    if (figures) put_figures(&json, reply);
    chunk_close(&json, reply);
}

void qr_reply_json_progress(const qr_reply *reply, uint32_t part, uint32_t processed_tokens, qr_bytes *out) {
    qr_json json = {.out = out};
    chunk_choice_open(&json, reply, part * reply->generation->n);
    put_empty_delta(&json, reply);
    chunk_choice_close(&json, NULL);
    qr_json_key(&json, "prompt_progress");
    qr_json_open(&json, '{');
    qr_json_put_uint(&json, "total", reply->generation->prompts[part].tokens.count);
    qr_json_put_uint(&json, "cache", reply->parts[part].match.token_count);
    qr_json_put_uint(&json, "processed", processed_tokens);
    qr_json_put_uint(&json, "time_ms", (qr_clock_us() - reply->arrived_us) / 1000);
    qr_json_close(&json, '}');
    chunk_close(&json, reply);
}

void qr_reply_json_usage(const qr_reply *reply, qr_bytes *out) {
    qr_json json = {.out = out};
    qr_usage usage = qr_reply_usage(reply);
    reply_open(&json, reply, true);
    qr_json_key(&json, "choices");
    qr_json_open(&json, '[');
    qr_json_close(&json, ']');
    put_usage(&json, &usage);
    put_figures(&json, reply);
    qr_json_close(&json, '}');
}
