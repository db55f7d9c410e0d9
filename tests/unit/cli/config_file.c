#include "runtime/cli/config_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

typedef struct entries {
    int count;
    char text[512];
} entries;

static quire_status keep(void *context, const char *key, const char *value, unsigned line, quire_error *error) {
    entries *all = context;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof all->text - used, "%u:%s=%s;", line, key, value);
    all->count++;
    return strcmp(key, "stop") == 0 ? qr_fail(error, QUIRE_INVALID, NULL, QR_NO_OFFSET, "told to stop") : QUIRE_OK;
}

static quire_status read_text(const char *content, size_t size, entries *all, quire_error *error) {
    char path[] = "/tmp/quire-config-XXXXXX", *text = NULL;
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, content, size), (ssize_t)size);
    close(fd);
    *all = (entries){0};
    qr_error_clear(error);
    quire_status status = qr_config_file_read(path, keep, all, &text, error);
    free(text);
    unlink(path);
    return status;
}

Test(cli_config_file, entries_come_in_order_with_their_lines) {
    static const char content[] =
        "# a comment\n\n  model = /a b/c=d.gguf  \r\ncontext=8192\n\tlog-level\t=\twarn\nempty =\nlast = 1";
    entries all;
    quire_error error;
    cr_assert_eq(read_text(content, sizeof content - 1, &all, &error), QUIRE_OK, "%s", error.text);
    cr_assert_str_eq(all.text, "3:model=/a b/c=d.gguf;4:context=8192;5:log-level=warn;6:empty=;7:last=1;");
}

Test(cli_config_file, what_is_wrong_is_named_with_its_line) {
    static const struct {
        const char *content, *said;
        quire_status status;
    } rows[] = {
        {"a = 1\nnonsense\n", "line 2", QUIRE_FORMAT},
        {"\n\n = 3\n", "line 3", QUIRE_FORMAT},
        {"a = 1\nstop = 2\nb = 3\n", "told to stop", QUIRE_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        entries all;
        quire_error error;
        cr_expect_eq(read_text(rows[i].content, strlen(rows[i].content), &all, &error), rows[i].status);
        cr_expect_not_null(strstr(error.text, rows[i].said), "%s", error.text);
        cr_expect_leq(all.count, 2);
    }
}

Test(cli_config_file, binary_huge_and_missing_files_are_refused) {
    entries all;
    quire_error error;
    char *text = (char *)1;
    cr_assert_eq(read_text("a = 1\0b", 7, &all, &error), QUIRE_FORMAT);
    size_t size = (1 << 20) + 1;
    char *huge = malloc(size);
    memset(huge, '#', size);
    cr_assert_eq(read_text(huge, size, &all, &error), QUIRE_FORMAT);
    cr_assert_eq(read_text(huge, size - 1, &all, &error), QUIRE_OK);
    free(huge);
    cr_assert_eq(qr_config_file_read("/nowhere/at/all", keep, &all, &text, &error), QUIRE_IO);
    cr_assert_null(text);
    cr_assert_str_eq(error.source, "/nowhere/at/all");
}
