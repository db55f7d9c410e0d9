#include "tests/support/engine_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CLIENT_REQUIRE(condition, ...)                      \
    do {                                                    \
        if (!(condition)) {                                 \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                   \
            fprintf(stderr, " (" #condition ")\n");         \
            abort();                                        \
        }                                                   \
    } while (0)

enum { EVENTS = 64, PATIENCE_S = 120 };

void engine_client_init(engine_client *client, uint32_t answer_count) {
    *client = (engine_client){.answer_count = answer_count};
    client->answers = calloc(answer_count, sizeof *client->answers);
    CLIENT_REQUIRE(client->answers && sem_init(&client->woken, 0, 0) == 0, "no memory");
}

void engine_client_wake(void *context) {
    engine_client *client = context;
    sem_post(&client->woken);
}

void engine_client_open(engine_client *client, const quire_engine_config *config, quire_model *model) {
    quire_engine_config mine = *config;
    quire_error error;
    mine.wake = engine_client_wake;
    mine.wake_context = client;
    quire_status status = quire_engine_create(&mine, model, &client->engine, &error);
    CLIENT_REQUIRE(status == QUIRE_OK, "%s", error.text);
}

void engine_client_close(engine_client *client) {
    quire_engine_destroy(client->engine);
    client->engine = NULL;
}

void engine_client_deinit(engine_client *client) {
    engine_client_close(client);
    sem_destroy(&client->woken);
    free(client->answers);
}

quire_status engine_client_submit(engine_client *client, const quire_request *request, quire_error *error) {
    CLIENT_REQUIRE(request->id < client->answer_count && !client->answers[request->id].submitted, "id %llu",
                   (unsigned long long)request->id);
    quire_status status = quire_engine_submit(client->engine, request, error);
    if (status == QUIRE_OK) {
        client->answers[request->id].submitted = true;
        client->open++;
    }
    return status;
}

static void take_token(client_answer *answer, const quire_event *e) {
    client_choice *c = &answer->choices[e->choice];
    CLIENT_REQUIRE(answer->started && !c->done && c->count < CLIENT_TOKENS_MAX && e->position == c->count, "token %u",
                   e->position);
    c->digests[c->count] = e->logits_digest;
    c->logprobs[c->count] = e->logprob;
    c->tokens[c->count++] = e->token;
}

static void take_event(engine_client *client, const quire_event *e) {
    CLIENT_REQUIRE(e->request_id < client->answer_count && e->choice < CLIENT_CHOICES_MAX, "unknown request");
    client_answer *answer = &client->answers[e->request_id];
    CLIENT_REQUIRE(answer->submitted && !answer->done, "request %llu: event after DONE", (unsigned long long)e->request_id);
    switch (e->kind) {
    case QUIRE_EVENT_STARTED:
        CLIENT_REQUIRE(!answer->started, "started twice");
        answer->started = true;
        answer->match = e->match;
        break;
    case QUIRE_EVENT_PROGRESS: break;
    case QUIRE_EVENT_PROMPT_TOKEN: answer->prompt_scores++; break;
    case QUIRE_EVENT_TOKEN: take_token(answer, e); break;
    case QUIRE_EVENT_CHOICE_DONE:
        CLIENT_REQUIRE(!answer->choices[e->choice].done, "choice done twice");
        answer->choices[e->choice].done = true;
        answer->choices[e->choice].finish = e->finish;
        break;
    case QUIRE_EVENT_DONE:
        answer->done = true;
        answer->end = *e;
        client->open--;
        break;
    }
}

static bool wait_woken(engine_client *client, int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    while (sem_timedwait(&client->woken, &until) != 0) {
        if (errno != EINTR) return false;
    }
    return true;
}

static size_t take_all(engine_client *client) {
    quire_event events[EVENTS];
    size_t count, total = 0;
    while ((count = quire_engine_poll(client->engine, events, EVENTS)) > 0) {
        for (size_t i = 0; i < count; i++) take_event(client, &events[i]);
        total += count;
    }
    return total;
}

size_t engine_client_poll(engine_client *client, int timeout_ms) {
    size_t count = take_all(client);
    if (count > 0 || timeout_ms == 0 || !wait_woken(client, timeout_ms)) return count;
    return take_all(client);
}

/* A wake-up may be about events that were taken already, so time is measured, not counted. */
void engine_client_wait(engine_client *client) {
    time_t heard = time(NULL);
    while (client->open > 0) {
        if (engine_client_poll(client, 1000) > 0) heard = time(NULL);
        CLIENT_REQUIRE(time(NULL) - heard < PATIENCE_S, "%u requests are open and nothing happens", client->open);
    }
}

void engine_client_check_idle(engine_client *client) {
    quire_engine_stats stats;
    quire_error error;
    engine_client_wait(client);
    for (int tries = 0;; tries++) {
        quire_engine_get_stats(client->engine, &stats);
        if (stats.idle) break;
        CLIENT_REQUIRE(tries < 10000, "the engine never gets idle");
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    CLIENT_REQUIRE(quire_engine_check(client->engine, &error) == QUIRE_OK, "%s", error.text);
    CLIENT_REQUIRE(stats.running == 0 && stats.waiting == 0 && stats.paused == 0, "requests are left");
    CLIENT_REQUIRE(stats.kv.block_used == 0 && stats.kv.sequence_count == 0, "%u blocks are in use", stats.kv.block_used);
}
