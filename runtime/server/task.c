/* task.c - see task.h. */
#include "runtime/server/task.h"

#include "base/clock.h"
#include "runtime/server/generation.h"
#include "runtime/server/server_internal.h"

#include <stdlib.h>
#include <string.h>

qr_task *qr_task_create(qr_server *server, qr_connection *connection, const qr_route *route) {
    qr_task *task = calloc(1, sizeof *task);
    if (!task) return NULL;
    task->server = server;
    task->connection = connection;
    task->route = route;
    task->arrived_us = qr_clock_us();
    qr_list_init(&task->wait.node);
    return task;
}

void qr_task_destroy(qr_task *task) {
    if (!task) return;
    qr_server_body_released(task->server, task->body.size);
    qr_list_remove(&task->wait.node);
    free(task->name);
    free(task->query);
    qr_bytes_deinit(&task->body);
    qr_bytes_deinit(&task->answer);
    qr_generation_destroy(task->generation);
    free(task);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool qr_percent_decode(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = hex_value(from[1]), low = high < 0 ? -1 : hex_value(from[2]);
        if (low < 0 || high * 16 + low == 0) return false;
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = 0;
    return true;
}

bool qr_task_query(const qr_task *task, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    for (const char *at = task->query; at && *at; at += strspn(at, "&")) {
        size_t pair = strcspn(at, "&");
        if (pair > length && at[length] == '=' && memcmp(at, name, length) == 0 && pair - length - 1 < size) {
            memcpy(value, at + length + 1, pair - length - 1);
            value[pair - length - 1] = 0;
            return qr_percent_decode(value);
        }
        at += pair;
    }
    return false;
}
