#include "tests/unit/server/server_fixture.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void send_stream(int fd, const char *body) {
    char request[300];
    snprintf(request, sizeof request, "POST /v1/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    client_send(fd, request);
}

static void end(fixture *f) {
    quire_engine_destroy(f->engine);
    qr_server_destroy(f->server);
    fake_model_destroy(f->model);
    cr_assert_lt(access(f->path, F_OK), 0, "the socket file is still there");
    cr_assert_eq(rmdir(f->folder), 0);
}

Test(server_drain, a_model_that_cannot_be_loaded_ends_it_with_the_reason) {
    fixture f;
    fixture_start_loading(&f, NULL);
    qr_server_fail(f.server, QUIRE_FORMAT);
    fixture_stop(&f);
    cr_assert_eq(f.result, QUIRE_FORMAT);
}

Test(server_drain, running_replies_finish_and_new_ones_get_503) {
    fixture f;
    fake_script script = {.step_us = 20000};
    fixture_start(&f, "abcdefghijklmnopqrst", &script, NULL);
    int idle = client_connect(&f), running = client_connect(&f);
    send_stream(running, "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":20}");
    free(client_read(running, "data: {"));
    qr_server_stop(f.server);
    usleep(50000);
    char *reply = client_post(&f, "/v1/completions", "{\"prompt\":\"a\"}");
    cr_assert_eq(reply_status(reply), 503);
    cr_assert(strstr(reply, "Connection: close"));
    free(reply);
    reply = client_get(&f, "GET", "/health");
    cr_assert_eq(reply_status(reply), 503);
    free(reply);
    char byte;
    cr_assert_eq(read(idle, &byte, 1), 0, "idle connections close");
    reply = client_read(running, NULL);
    cr_assert(strstr(reply, "data: [DONE]\n\n\r\n0\r\n\r\n"));
    free(reply);
    close(idle);
    close(running);
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_OK);
    end(&f);
}

Test(server_drain, queued_requests_get_503) {
    fixture f;
    fake_script script = {.hold = true};
    fixture_start(&f, "abc", &script, NULL);
    int whole = client_connect(&f), stream = client_connect(&f);
    send_stream(whole, "{\"prompt\":\"a\"}");
    send_stream(stream, "{\"prompt\":\"a\",\"stream\":true}");
    while (fake_engine_counts(f.engine).live < 2) usleep(1000);
    kill(getpid(), SIGTERM);
    char *reply = client_read(whole, NULL);
    cr_assert_eq(reply_status(reply), 503);
    free(reply);
    reply = client_read(stream, NULL);
    cr_assert_eq(reply_status(reply), 503);
    free(reply);
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_OK);
    cr_assert_eq(fake_engine_counts(f.engine).started, 0);
    close(whole);
    close(stream);
    end(&f);
}

Test(server_drain, past_the_limit_a_stream_gets_one_error_and_the_end) {
    fixture f;
    fake_script script = {.step_us = 20000};
    qr_server_config options = {.drain_ms = 300};
    char text[1000];
    memset(text, 's', sizeof text - 1);
    text[sizeof text - 1] = 0;
    fixture_start(&f, text, &script, &options);
    int running = client_connect(&f);
    send_stream(running, "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":500}");
    free(client_read(running, "data: {"));
    qr_server_stop(f.server);
    char *reply = client_read(running, NULL);
    cr_assert(strstr(reply, "data: {\"error\":{"));
    cr_assert_null(strstr(reply, "[DONE]"));
    cr_assert_str_eq(reply + strlen(reply) - 7, "\r\n0\r\n\r\n");
    free(reply);
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_TIMED_OUT);
    close(running);
    end(&f);
}

Test(server_drain, a_second_signal_ends_at_once) {
    fixture f;
    fake_script script = {.step_us = 20000};
    char text[1000];
    memset(text, 's', sizeof text - 1);
    text[sizeof text - 1] = 0;
    fixture_start(&f, text, &script, NULL);
    int running = client_connect(&f);
    send_stream(running, "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":500}");
    free(client_read(running, "data: {"));
    kill(getpid(), SIGTERM);
    usleep(100000);
    kill(getpid(), SIGINT);
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_CANCELLED);
    close(running);
    end(&f);
}

static const quire_kv_tiers_stats with_disk = {.tiers[QUIRE_KV_TIER_DISK].present = true};

static fake_counts drained(const fake_script *script, const qr_server_config *options, quire_status expected) {
    fixture f;
    fixture_start(&f, "abc", script, options);
    free(client_post(&f, "/v1/completions", "{\"prompt\":\"a\"}"));
    kill(getpid(), SIGTERM);
    pthread_join(f.thread, NULL);
    fake_counts counts = fake_engine_counts(f.engine);
    cr_assert_eq(f.result, expected);
    end(&f);
    return counts;
}

Test(server_drain, hibernates_when_the_last_reply_has_ended) {
    fake_script script = {.tiers = &with_disk, .flush_steps = 200};
    qr_server_config options = {.hibernate_ms = 60000};
    fake_counts counts = drained(&script, &options, QUIRE_OK);
    cr_assert(counts.flushes == 1 && counts.stopped_flushes == 0);
}

Test(server_drain, hibernation_ends_at_its_limit) {
    fake_script script = {.tiers = &with_disk, .flush_steps = 10000000};
    qr_server_config options = {.hibernate_ms = 100};
    fake_counts counts = drained(&script, &options, QUIRE_OK);
    cr_assert(counts.flushes == 1 && counts.stopped_flushes == 1);
}

Test(server_drain, without_a_disk_or_time_nothing_hibernates) {
    fake_script script = {.flush_steps = 10000000}, disk = {.tiers = &with_disk, .flush_steps = 10000000};
    qr_server_config options = {.hibernate_ms = 60000};
    cr_assert_eq(drained(&script, &options, QUIRE_OK).flushes, 0);
    cr_assert_eq(drained(&disk, NULL, QUIRE_OK).flushes, 0);
}

Test(server_drain, a_second_signal_ends_hibernation_at_once) {
    fixture f;
    fake_script script = {.tiers = &with_disk, .flush_steps = 10000000};
    qr_server_config options = {.hibernate_ms = 60000};
    fixture_start(&f, "abc", &script, &options);
    kill(getpid(), SIGTERM);
    while (fake_engine_counts(f.engine).flushes == 0) usleep(1000);
    char *reply = client_get(&f, "GET", "/metrics");
    cr_assert_eq(reply_status(reply), 200, "whoever watches can see it");
    free(reply);
    kill(getpid(), SIGTERM);
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_CANCELLED);
    end(&f);
}

Test(server_drain, past_its_limit_it_hibernates_too) {
    fixture f;
    fake_script script = {.step_us = 20000, .tiers = &with_disk, .flush_steps = 2};
    qr_server_config options = {.drain_ms = 100, .hibernate_ms = 60000};
    fixture_start(&f, "sssssssssssssssssssssssssssssssssssssssss", &script, &options);
    int running = client_connect(&f);
    send_stream(running, "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":500}");
    free(client_read(running, "data: {"));
    qr_server_stop(f.server);
    free(client_read(running, NULL));
    pthread_join(f.thread, NULL);
    cr_assert_eq(f.result, QUIRE_TIMED_OUT);
    cr_assert_eq(fake_engine_counts(f.engine).flushes, 1);
    close(running);
    end(&f);
}
