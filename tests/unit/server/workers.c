#include "runtime/server/workers.h"
#include "runtime/server/server.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/resource.h>

/* A thread's stack is as large as this limit, so none can be had. */
Test(server_workers, a_server_that_cannot_start_them_is_refused_with_the_numbers) {
    quire_error error = {0};
    struct rlimit limit, before;
    cr_assert_eq(getrlimit(RLIMIT_STACK, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 50;
    if (limit.rlim_cur > limit.rlim_max) cr_skip_test("the stack is limited");
    cr_assert_eq(setrlimit(RLIMIT_STACK, &limit), 0);
    cr_expect_eq(qr_workers_start(&error), QUIRE_IO);
    cr_expect_not_null(strstr(error.text, "it needs 4 worker threads and could start 0"), "%s", error.text);
    qr_server *server;
    qr_server_config config = {.socket_path = "/tmp/quire-never.sock"};
    cr_expect_eq(qr_server_create(&config, &server, &error), QUIRE_IO);
    cr_assert_eq(setrlimit(RLIMIT_STACK, &before), 0);
    cr_expect_eq(qr_workers_start(&error), QUIRE_OK);
    cr_expect_eq(qr_workers_start(&error), QUIRE_OK, "once more, for another server");
}
