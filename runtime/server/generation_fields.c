/* generation_fields.c - the request fields that chat and completions share (docs/HTTP_API.md lists ranges and defaults).
 *
 * Every check is here, in front of the engine; messages name the field.
 */
#include "runtime/server/generation.h"

#include "runtime/model/model.h"

#include <stdlib.h>
#include <string.h>

/* What the table fills; defaults are set before. */
typedef struct scalar_fields {
    qr_text model, user, cache_salt;
    int64_t max_tokens, max_completion_tokens, min_tokens, n, best_of, top_k, seed, priority;
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty, timeout;
    bool stream, echo, ignore_eos, return_progress, return_token_ids, return_logits_digest, explain_cache;
    bool skip_special_tokens;
} scalar_fields;

static const double INT32_LIMIT = 2147483647.0;

#define FIELD(member, kind, least, most) \
    { #member, QR_FIELD_##kind, offsetof(scalar_fields, member), (least), (most) }

static bool scalars_read(const json_t *body, scalar_fields *into, qr_http_error *error) {
    const qr_field fields[] = {
        FIELD(model, STRING, 0, 0),
        FIELD(user, STRING, 0, 0),
        FIELD(cache_salt, STRING, 0, 0),
        FIELD(max_tokens, INT, 0, INT32_LIMIT),
        FIELD(max_completion_tokens, INT, 0, INT32_LIMIT),
        FIELD(min_tokens, INT, 0, INT32_LIMIT),
        FIELD(n, INT, 1, QUIRE_CHOICES_MAX),
        FIELD(best_of, INT, 1, QUIRE_CHOICES_MAX),
        FIELD(top_k, INT, -1, INT32_LIMIT),
        FIELD(seed, INT, -9.3e18, 9.3e18),
        FIELD(priority, INT, -INT32_LIMIT, INT32_LIMIT),
        FIELD(temperature, REAL, 0, 2),
        FIELD(top_p, REAL, 0, 1),
        FIELD(min_p, REAL, 0, 1),
        FIELD(presence_penalty, REAL, -2, 2),
        FIELD(frequency_penalty, REAL, -2, 2),
        FIELD(repetition_penalty, REAL, 0.01, 10),
        FIELD(timeout, REAL, 0.001, 1e6),
        FIELD(stream, BOOL, 0, 0),
        FIELD(echo, BOOL, 0, 0),
        FIELD(ignore_eos, BOOL, 0, 0),
        FIELD(return_progress, BOOL, 0, 0),
        FIELD(return_token_ids, BOOL, 0, 0),
        FIELD(return_logits_digest, BOOL, 0, 0),
        FIELD(explain_cache, BOOL, 0, 0),
        FIELD(skip_special_tokens, BOOL, 0, 0),
    };
    return qr_json_read_fields(body, fields, sizeof fields / sizeof *fields, into, error);
}

/* ---- lists ---- */

static bool stop_check(const json_t *value, qr_http_error *error) {
    if (!json_is_string(value)) return qr_http_refuse(error, 400, "stop", "stop must be a string or a list of strings");
    if (json_string_length(value) == 0) return qr_http_refuse(error, 400, "stop", "stop must not hold an empty string");
    if (json_string_length(value) <= QR_STOP_BYTES_MAX) return true;
    return qr_http_refuse(error, 400, "stop", "stop has a string of more than %d bytes", QR_STOP_BYTES_MAX);
}

/* A stop string that is the name of a control token stops on the token itself, whose text is never shown. */
static bool stop_add_control(qr_generation *g, const qr_tokenizer *tokenizer, qr_text text, qr_http_error *error) {
    quire_token token = qr_tokenizer_find(tokenizer, text.data, text.size);
    if (token < 0 || !qr_tokenizer_is_control(tokenizer, token)) return true;
    if (qr_token_buffer_append(&g->stop_tokens, &token, 1) == QUIRE_OK) return true;
    return qr_http_refuse(error, 503, NULL, "out of memory");
}

static bool stops_read(qr_generation *g, const json_t *body, const qr_tokenizer *tokenizer, qr_http_error *error) {
    const json_t *stop = qr_json_member(body, "stop");
    size_t count = json_is_array(stop) ? json_array_size(stop) : stop != NULL;
    if (count == 0) return true;
    if (count > QR_STOP_STRINGS_MAX)
        return qr_http_refuse(error, 400, "stop", "stop has more than %d strings", QR_STOP_STRINGS_MAX);
    qr_text texts[QR_STOP_STRINGS_MAX];
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!stop_check(value, error)) return false;
        texts[i] = qr_json_string_of(value);
        if (!stop_add_control(g, tokenizer, texts[i], error)) return false;
    }
    quire_status status = qr_stop_set_create(texts, (uint32_t)count, &g->stops);
    return status == QUIRE_OK || qr_http_refuse_status(error, status, NULL, "stop");
}

static bool stop_tokens_read(qr_generation *g, const json_t *body, const qr_tokenizer *tokenizer, qr_http_error *error) {
    const json_t *ids = qr_json_member(body, "stop_token_ids");
    if (!ids) return true;
    if (json_array_size(ids) + QR_STOP_STRINGS_MAX > QUIRE_STOP_TOKENS_MAX)
        return qr_http_refuse(error, 400, "stop_token_ids", "stop_token_ids has more than %d ids",
                              QUIRE_STOP_TOKENS_MAX - QR_STOP_STRINGS_MAX);
    return qr_json_read_tokens(ids, "stop_token_ids", qr_tokenizer_token_count(tokenizer), &g->stop_tokens, error);
}

static bool bias_entry(const char *key, const json_t *value, uint32_t vocabulary, quire_logit_bias *entry,
                       qr_http_error *error) {
    size_t digits = strspn(key, "0123456789");
    unsigned long id = digits && digits <= 9 && !key[digits] ? strtoul(key, NULL, 10) : vocabulary;
    if (id >= vocabulary)
        return qr_http_refuse(error, 400, "logit_bias", "logit_bias: \"%.40s\" is not a token id below %u", key, vocabulary);
    double bias = json_number_value(value);
    if (!json_is_number(value) || bias < -100 || bias > 100)
        return qr_http_refuse(error, 400, "logit_bias", "logit_bias[\"%.40s\"] must be a number between -100 and 100", key);
    *entry = (quire_logit_bias){(quire_token)id, (float)bias};
    return true;
}

static bool bias_read(qr_generation *g, const json_t *body, uint32_t vocabulary, qr_http_error *error) {
    const json_t *bias = qr_json_member(body, "logit_bias");
    if (!bias) return true;
    size_t count = json_object_size(bias);
    if (!json_is_object(bias)) return qr_http_refuse(error, 400, "logit_bias", "logit_bias must be an object of token ids");
    if (count > QUIRE_BIAS_MAX)
        return qr_http_refuse(error, 400, "logit_bias", "logit_bias has more than %d entries", QUIRE_BIAS_MAX);
    if (count == 0) return true;
    g->bias = malloc(count * sizeof *g->bias);
    if (!g->bias) {
        qr_http_refuse(error, 503, NULL, "out of memory");
        return false;
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)bias, key, value) {
        if (!bias_entry(key, value, vocabulary, &g->bias[g->request.sampling.bias_count], error)) return false;
        g->request.sampling.bias_count++;
    }
    return true;
}

/* ---- logprobs ---- */

static bool chat_logprobs_read(qr_generation *g, const json_t *body, qr_http_error *error) {
    struct {
        bool logprobs;
        int64_t top;
    } into = {false, -1};
    const qr_field fields[] = {
        {"logprobs", QR_FIELD_BOOL, 0, 0, 0},
        {"top_logprobs", QR_FIELD_INT, offsetof(__typeof__(into), top), 0, QUIRE_TOP_LOGPROBS_MAX},
    };
    if (!qr_json_read_fields(body, fields, 2, &into, error)) return false;
    if (into.top > 0 && !into.logprobs)
        return qr_http_refuse(error, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    g->logprobs = into.logprobs;
    if (into.logprobs) g->request.top_logprobs = into.top < 0 ? 0 : (int32_t)into.top;
    return true;
}

static bool text_logprobs_read(qr_generation *g, const json_t *body, qr_http_error *error) {
    int64_t top = -1;
    const qr_field field = {"logprobs", QR_FIELD_INT, 0, 0, QUIRE_TOP_LOGPROBS_MAX};
    if (!qr_json_read_fields(body, &field, 1, &top, error)) return false;
    g->logprobs = top >= 0;
    g->request.top_logprobs = (int32_t)top;
    return true;
}

/* ---- streams ---- */

static bool stream_options_read(qr_generation *g, const json_t *body, qr_http_error *error) {
    const json_t *options = qr_json_member(body, "stream_options");
    if (!options) return true;
    if (!json_is_object(options)) return qr_http_refuse(error, 400, "stream_options", "stream_options must be an object");
    if (!g->stream) return qr_http_refuse(error, 400, "stream_options", "stream_options needs stream to be true");
    const qr_field field = {"include_usage", QR_FIELD_BOOL, offsetof(qr_generation, include_usage), 0, 0};
    return qr_json_read_fields(options, &field, 1, g, error);
}

/* ---- all ---- */

static void sampling_set(quire_sampling *sampling, const scalar_fields *s, bool seeded) {
    sampling->temperature = (float)s->temperature;
    sampling->top_p = (float)s->top_p;
    sampling->min_p = (float)s->min_p;
    sampling->top_k = (int32_t)s->top_k;
    sampling->presence_penalty = (float)s->presence_penalty;
    sampling->frequency_penalty = (float)s->frequency_penalty;
    sampling->repetition_penalty = (float)s->repetition_penalty;
    sampling->seeded = seeded;
    sampling->seed = (uint64_t)s->seed;
}

static void generation_set(qr_generation *g, const scalar_fields *s) {
    g->n = (uint32_t)s->n;
    g->max_tokens = s->max_completion_tokens >= 0 ? s->max_completion_tokens : s->max_tokens;
    g->stream = s->stream;
    g->echo = s->echo;
    g->return_progress = s->return_progress;
    g->return_token_ids = s->return_token_ids;
    g->explain_cache = s->explain_cache;
    g->show_control = !s->skip_special_tokens;
    g->request.min_tokens = (uint32_t)s->min_tokens;
    g->request.ignore_eos = s->ignore_eos;
    g->request.logits_digest = s->return_logits_digest;
    g->request.priority = (int32_t)s->priority;
    g->request.timeout_us = (uint64_t)(s->timeout * 1e6);
}

static bool scalars_agree(const scalar_fields *s, const qr_generation *g, qr_http_error *error) {
    if (s->best_of > 0 && s->best_of != s->n)
        return qr_http_refuse(error, 400, "best_of", "best_of is not supported, except equal to n");
    if (s->cache_salt.size > QR_SALT_BYTES_MAX)
        return qr_http_refuse(error, 400, "cache_salt", "cache_salt has more than %d bytes", QR_SALT_BYTES_MAX);
    if (s->echo && g->chat) return qr_http_refuse(error, 400, "echo", "echo is not supported in chat");
    if (s->return_progress && !s->stream)
        return qr_http_refuse(error, 400, "return_progress", "return_progress needs stream to be true");
    if (g->max_tokens >= 0 && s->min_tokens > g->max_tokens)
        return qr_http_refuse(error, 400, "min_tokens", "min_tokens is larger than max_tokens");
    return true;
}

bool qr_generation_read(qr_generation *g, const json_t *body, const qr_task *task, qr_http_error *error) {
    const qr_tokenizer *tokenizer = qr_model_tokenizer(task->model);
    uint32_t vocabulary = qr_tokenizer_token_count(tokenizer);
    scalar_fields s = {.max_tokens = -1,
                       .max_completion_tokens = -1,
                       .n = 1,
                       .temperature = 1,
                       .top_p = 1,
                       .repetition_penalty = 1,
                       .skip_special_tokens = true};
    if (!qr_generation_read_unsupported(body, g->chat, error) || !scalars_read(body, &s, error)) return false;
    generation_set(g, &s);
    sampling_set(&g->request.sampling, &s, qr_json_member(body, "seed") != NULL);
    if (!scalars_agree(&s, g, error)) return false;
    qr_namespace_key(s.cache_salt, &task->peer, task->namespace_by_uid, &g->namespace_key);
    return stops_read(g, body, tokenizer, error) && stop_tokens_read(g, body, tokenizer, error) &&
           bias_read(g, body, vocabulary, error) &&
           (g->chat ? chat_logprobs_read(g, body, error) : text_logprobs_read(g, body, error)) &&
           stream_options_read(g, body, error);
}
