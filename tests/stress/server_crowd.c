/* server_crowd.c - many clients at once against the server with a fake engine, then a drain in their midst: for the thread
 * sanitizer, which watches the loop, its worker threads, the engine's thread and the hand-over between them. A plain main. */
#include "tests/unit/server/server_fixture.h"

#include "base/assertion.h"
#include "base/random.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 8, ROUNDS = 40, LARGE = 40000 };

typedef struct crowd {
    fixture f;
    atomic_int answered, left;
} crowd;

typedef struct crowd_client {
    crowd *crowd;
    pthread_t thread;
    qr_random random;
} crowd_client;

static char *make_body(qr_random *random) {
    char *body = malloc(LARGE + 200);
    size_t at = (size_t)sprintf(body, "{\"max_tokens\":5,\"n\":%u,\"stream\":%s,\"prompt\":\"xyz\",\"user\":\"",
                                1 + qr_random_below(random, 3), qr_random_below(random, 2) ? "true" : "false");
    size_t size = qr_random_below(random, 3) ? 10 : LARGE; /* large ones go to a worker thread */
    memset(body + at, 'x', size);
    strcpy(body + at + size, "\"}");
    return body;
}

static void leave_early(const crowd *c, const char *body) {
    char head[100];
    int fd = client_connect(&c->f);
    snprintf(head, sizeof head, "POST /v1/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n", strlen(body));
    client_send(fd, head);
    client_send(fd, body);
    usleep(300);
    close(fd);
}

static void *client_run(void *argument) {
    crowd_client *client = argument;
    for (int round = 0; round < ROUNDS; round++) {
        char *body = make_body(&client->random);
        if (qr_random_below(&client->random, 4) == 0) {
            leave_early(client->crowd, body);
            atomic_fetch_add(&client->crowd->left, 1);
        } else {
            char *reply = client_post(&client->crowd->f, "/v1/completions", body);
            QR_ASSERT(reply_status(reply) == 200);
            atomic_fetch_add(&client->crowd->answered, 1);
            free(reply);
        }
        free(body);
    }
    return NULL;
}

int main(void) {
    static crowd c;
    static crowd_client clients[CLIENTS];
    fake_script script = {.context_tokens = 100000, .prefill_steps = 2};
    fixture_start(&c.f, "abcdefgh", &script, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (crowd_client){.crowd = &c, .random = {(uint64_t)i}};
        QR_ASSERT(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    QR_ASSERT(fixture_wait_idle(&c.f));
    QR_ASSERT(c.answered + c.left == CLIENTS * ROUNDS);
    char *body = make_body(&clients[0].random);
    for (int i = 0; i < 5; i++) leave_early(&c, body); /* some are on worker threads when the drain begins */
    free(body);
    fixture_stop(&c.f);
    printf("%d answered, %d left early\n", c.answered, c.left);
    return 0;
}
