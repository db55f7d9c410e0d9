/* engine_client.h - an owner of an engine for tests: submits, polls when woken, records every answer. Aborts with a message
 * when an event breaks the contract (after DONE, out of order, of an unknown request). */
#ifndef QR_TESTS_ENGINE_CLIENT_H
#define QR_TESTS_ENGINE_CLIENT_H

#include <semaphore.h>

#include <quire/engine.h>

enum { CLIENT_TOKENS_MAX = 600, CLIENT_CHOICES_MAX = 4 };

typedef struct client_choice {
    quire_token tokens[CLIENT_TOKENS_MAX];
    uint64_t digests[CLIENT_TOKENS_MAX];
    float logprobs[CLIENT_TOKENS_MAX];
    uint32_t count;
    quire_finish finish;
    bool done;
} client_choice;

typedef struct client_answer {
    bool submitted, started, done;
    uint32_t prompt_scores;
    quire_event end; /* DONE */
    quire_kv_match match;
    client_choice choices[CLIENT_CHOICES_MAX];
} client_answer;

typedef struct engine_client {
    quire_engine *engine;
    sem_t woken;
    client_answer *answers; /* [answer_count] by request id */
    uint32_t answer_count, open;
} engine_client;

/* The client's wake goes into a config before the engine is made; then open with that engine. */
void engine_client_init(engine_client *client, uint32_t answer_count);
void engine_client_wake(void *client);
void engine_client_open(engine_client *client, const quire_engine_config *config, quire_model *model);
/* Destroys the engine. Leaves the answers, which engine_client_deinit frees. */
void engine_client_close(engine_client *client);
void engine_client_deinit(engine_client *client);

/* Submits; the id must be free. */
quire_status engine_client_submit(engine_client *client, const quire_request *request, quire_error *error);
/* Takes what is there; waits at most timeout_ms for the first event. Returns events taken. */
size_t engine_client_poll(engine_client *client, int timeout_ms);
/* Until every submitted request is done. */
void engine_client_wait(engine_client *client);
/* Until the engine says that it is idle; then every check. */
void engine_client_check_idle(engine_client *client);
#endif
