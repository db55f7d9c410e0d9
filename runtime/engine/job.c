#include "runtime/engine/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/assertion.h"
#include "base/checked.h"
#include "base/memory.h"

/* Where the parts of a job lie behind its choices, in one allocation. */
typedef struct job_layout {
    size_t tokens, bias, stop, key, total;
    size_t tokens_per_choice;
} job_layout;

static bool layout_add(size_t *total, size_t count, size_t size, size_t *offset) {
    size_t bytes;
    *offset = qr_align_up(*total, 8);
    return qr_mul_size(count, size, &bytes) && qr_add_size(*offset, bytes, total);
}

static bool job_layout_make(const quire_request *r, uint32_t limit, job_layout *l) {
    size_t choices, all_tokens;
    l->total = sizeof(qr_job);
    l->tokens_per_choice = (size_t)r->prompt_count + limit;
    return layout_add(&l->total, r->choice_count, sizeof(qr_choice), &choices) &&
           qr_mul_size(l->tokens_per_choice, r->choice_count, &all_tokens) &&
           layout_add(&l->total, all_tokens, sizeof(quire_token), &l->tokens) &&
           layout_add(&l->total, r->sampling.bias_count, sizeof(quire_logit_bias), &l->bias) &&
           layout_add(&l->total, r->stop_token_count, sizeof(quire_token), &l->stop) &&
           layout_add(&l->total, r->namespace_bytes, 1, &l->key);
}

static void copy_bytes(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

static void choice_init(qr_choice *c, qr_job *job, uint32_t index, quire_token *tokens) {
    const quire_request *r = &job->request;
    qr_list_init(&c->queue_node);
    c->job = job;
    c->index = index;
    c->state = index == 0 ? QR_CHOICE_QUEUED : QR_CHOICE_EMBRYO;
    c->tokens = tokens;
    c->known = r->prompt_count;
    if (index == 0) copy_bytes(tokens, r->prompt, r->prompt_count * sizeof(quire_token));
}

qr_job *qr_job_create(const quire_request *request, uint32_t capacity_tokens) {
    QR_ASSERT(request->prompt_count >= 1 && request->prompt_count < capacity_tokens);
    QR_ASSERT(request->choice_count >= 1 && request->choice_count <= QUIRE_CHOICES_MAX);
    uint32_t room = capacity_tokens - request->prompt_count;
    uint32_t limit = request->max_tokens < room ? request->max_tokens : room;
    job_layout l;
    if (!job_layout_make(request, limit, &l)) return NULL;
    qr_job *job = calloc(1, l.total); /* pages nobody has written cost nothing: a waiting job pays for one prompt */
    if (!job) return NULL;
    char *base = (char *)job;
    qr_list_init(&job->node);
    qr_list_init(&job->owner_node);
    job->request = *request;
    job->limit = limit;
    job->live = request->choice_count;
    job->forked = request->choice_count == 1;
    quire_token *tokens = (quire_token *)(void *)(base + l.tokens);
    for (uint32_t i = 0; i < request->choice_count; i++)
        choice_init(&job->choices[i], job, i, tokens + i * l.tokens_per_choice);
    copy_bytes(base + l.bias, request->sampling.bias, request->sampling.bias_count * sizeof(quire_logit_bias));
    copy_bytes(base + l.stop, request->stop_tokens, request->stop_token_count * sizeof(quire_token));
    copy_bytes(base + l.key, request->namespace_key, request->namespace_bytes);
    job->request.prompt = tokens;
    job->request.sampling.bias = (const quire_logit_bias *)(const void *)(base + l.bias);
    job->request.stop_tokens = (const quire_token *)(const void *)(base + l.stop);
    job->request.namespace_key = base + l.key;
    return job;
}

void qr_job_destroy(qr_job *job) { free(job); }
