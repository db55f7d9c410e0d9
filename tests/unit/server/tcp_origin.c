#include "runtime/server/tcp_origin.h"

#include <criterion/criterion.h>
#include <string.h>

static bool allows(const char *listen, const char *host, const char *origin, const char *param) {
    qr_http_error error = {0};
    bool allowed = qr_tcp_origin_check(listen, host, origin, &error);
    cr_assert_eq(error.status, allowed ? 0 : 403, "Host: %s", host);
    cr_assert_str_eq(error.param, allowed ? "" : param);
    cr_assert(allowed || strstr(error.message, param));
    return allowed;
}

Test(server_tcp_origin, loopback_by_any_name_and_port_is_ours) {
    static const char *const good[] = {"localhost", "LocalHost:8080", "127.0.0.1",         "127.0.0.1:80",
                                       "127.9.8.7", "[::1]",          "[::1]:8080",        "[0:0:0:0:0:0:0:1]:1",
                                       "[0::1]",    "127.0.0.1:",     "127.255.255.255:1", NULL};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert(allows("127.0.0.1:8080", good[i], NULL, ""), "%s", good[i]);
}

Test(server_tcp_origin, every_other_host_is_refused) {
    static const char *const bad[] = {
        "",
        ":8080",
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "evil.localhost",
        "127.0.0.1.evil.example",
        "128.0.0.1",
        "0.0.0.0",
        "127.0.0.1@evil.example",
        "127.0.0.1:80:80",
        "127.0.0.1:80x",
        "127.0.0.1 evil.example",
        "::1",
        "[::1",
        "[::1]x",
        "[]",
        "[",
        "[::2]:8080",
        "[::ffff:192.168.0.1]",
        "[localhost]",
    };
    char huge[1024] = "";
    memset(huge, '1', sizeof huge - 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert(!allows("127.0.0.1:8080", bad[i], NULL, "Host"), "%s", bad[i]);
    cr_assert(!allows("127.0.0.1:8080", huge, NULL, "Host"));
    huge[0] = '[';
    cr_assert(!allows("127.0.0.1:8080", huge, NULL, "Host"));
}

Test(server_tcp_origin, the_host_that_it_listens_on_is_ours) {
    cr_assert(allows("127.1:8080", "127.1:8080", NULL, ""));
    cr_assert(allows("127.1:8080", "127.1", NULL, ""));
    cr_assert(allows("[fd00::A]:80", "[FD00::a]:80", NULL, ""));
    cr_assert(!allows("127.1:8080", "127.2", NULL, "Host"));
    cr_assert(!allows("127.0.0.1:8080", "127.1:8080", NULL, "Host"));
}

Test(server_tcp_origin, any_origin_is_refused_even_our_own) {
    static const char *const origins[] = {"https://evil.example", "null", "", "http://localhost:8080", "http://127.0.0.1:8080"};
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        cr_assert(!allows("127.0.0.1:8080", "127.0.0.1:8080", origins[i], "Origin"));
        cr_assert(!allows("127.0.0.1:8080", NULL, origins[i], "Origin"));
    }
}
