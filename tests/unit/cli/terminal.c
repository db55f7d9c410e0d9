#include "runtime/cli/terminal.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(cli_terminal, escape_sequences_never_reach_the_screen) {
    static const char text[] = "caf\xc3\xa9\n\t\x1b[2J\r\x07\xc2\x9b"
                               "0m\xff\xf0\x9f\x98\x80";
    char *out = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&out, &size);
    qr_terminal_write(file, text, sizeof text - 1);
    fclose(file);
    cr_assert_str_eq(out, "caf\xc3\xa9\n\t?[2J???0m?\xf0\x9f\x98\x80");
    free(out);
}

Test(cli_terminal, ctrl_c_is_an_event) {
    int fd = qr_interrupt_open();
    cr_assert_geq(fd, 0);
    cr_assert(!qr_interrupt_take(fd));
    cr_assert_eq(kill(getpid(), SIGINT), 0);
    cr_assert(qr_interrupt_take(fd));
    cr_assert(!qr_interrupt_take(fd));
    cr_assert(!qr_interrupt_take(-1));
    close(fd);
}
