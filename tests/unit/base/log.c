#include "base/log.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

typedef struct pipe_log {
    int fds[2];
    qr_log log;
} pipe_log;

static pipe_log open_log(qr_log_level level) {
    pipe_log p;
    cr_assert_eq(pipe(p.fds), 0);
    p.log = (qr_log){p.fds[1], level};
    return p;
}

/* Everything written, as a string. */
static void close_log(pipe_log *p, char text[8192]) {
    close(p->fds[1]);
    ssize_t size = read(p->fds[0], text, 8191);
    text[size > 0 ? size : 0] = 0;
    close(p->fds[0]);
}

Test(base_log, a_line_has_time_level_event_and_fields) {
    pipe_log p = open_log(QR_LOG_DEBUG);
    char text[8192];
    qr_log_info(&p.log, "ready", QR_STR("socket", "/run/quire.sock"), QR_INT("blocks", -12), QR_NUM("ms", 1.5));
    close_log(&p, text);
    cr_assert_eq(text[10], 'T');
    cr_assert_str_eq(text + 23, "Z info ready socket=/run/quire.sock blocks=-12 ms=1.5\n");
}

Test(base_log, lower_levels_and_a_missing_logger_write_nothing) {
    pipe_log p = open_log(QR_LOG_WARN);
    char text[8192];
    qr_log_info(&p.log, "quiet", QR_INT("n", 1));
    qr_log_debug(&p.log, "quiet", QR_INT("n", 1));
    qr_log_error(NULL, "nobody", QR_INT("n", 1));
    close_log(&p, text);
    cr_assert_str_empty(text);
}

Test(base_log, values_from_outside_cannot_forge_fields_or_lines) {
    pipe_log p = open_log(QR_LOG_DEBUG);
    char text[8192];
    qr_log_warn(&p.log, "bad", QR_STR("path", "a b=\"c\\\"\n2026 forged"), QR_STR("empty", ""), QR_STR("null", NULL),
                QR_STR("bytes", "\xff\x1b[31m"));
    close_log(&p, text);
    cr_assert_str_eq(text + 23, "Z warn bad path=\"a b=\\\"c\\\\\\\"?2026 forged\" empty=\"\" null=\"\" bytes=??[31m\n");
}

Test(base_log, a_long_line_is_cut_at_a_character_and_still_ends) {
    char value[4000] = {0}, text[8192];
    for (size_t i = 0; i + 3 < sizeof value; i += 3) memcpy(value + i, "\xe2\x82\xac", 3);
    pipe_log p = open_log(QR_LOG_DEBUG);
    qr_log_info(&p.log, "long", QR_STR("v", value), QR_INT("after", 1));
    close_log(&p, text);
    size_t size = strlen(text);
    cr_assert_leq(size, 1024);
    cr_assert_gt(size, 1000);
    cr_assert_eq(text[size - 1], '\n');
    const char *begin = strstr(text, "v=") + 2;
    cr_assert_eq((size_t)(text + size - 1 - begin) % 3, 0);
}
