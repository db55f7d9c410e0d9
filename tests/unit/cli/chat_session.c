#include "runtime/cli/chat_session.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static qr_chat_session talk(void) {
    qr_chat_session session;
    cr_assert_eq(qr_chat_session_init(&session), QUIRE_OK);
    cr_assert_eq(qr_chat_session_add(&session, "user", "caf\xc3\xa9", 5), QUIRE_OK);
    cr_assert_eq(qr_chat_session_add(&session, "assistant", "a\0b", 3), QUIRE_OK);
    return session;
}

Test(cli_chat_session, the_system_message_comes_first_and_survives_a_reset) {
    qr_chat_session session = talk();
    cr_assert_null(qr_chat_session_system(&session));
    cr_assert_eq(qr_chat_session_set_system(&session, "Be brief."), QUIRE_OK);
    cr_assert_eq(qr_chat_session_set_system(&session, "Be kind."), QUIRE_OK);
    cr_assert_eq(qr_chat_session_count(&session), 3);
    cr_assert_str_eq(qr_chat_session_system(&session), "Be kind.");
    qr_chat_session_reset(&session);
    cr_assert_eq(qr_chat_session_count(&session), 1);
    cr_assert_eq(qr_chat_session_set_system(&session, NULL), QUIRE_OK);
    cr_assert_eq(qr_chat_session_count(&session), 0);
    qr_chat_session_drop_last(&session);
    qr_chat_session_deinit(&session);
}

Test(cli_chat_session, bytes_that_are_not_utf8_are_refused) {
    qr_chat_session session = talk();
    cr_assert_eq(qr_chat_session_add(&session, "user", "\xff", 1), QUIRE_INVALID);
    cr_assert_eq(qr_chat_session_set_system(&session, "\xff"), QUIRE_INVALID);
    cr_assert_eq(qr_chat_session_count(&session), 2);
    qr_chat_session_deinit(&session);
}

Test(cli_chat_session, a_saved_conversation_loads_equal_and_is_private) {
    char path[] = "/tmp/quire-chat-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    qr_chat_session session = talk(), loaded;
    quire_error error;
    struct stat info;
    cr_assert_eq(qr_chat_session_save(&session, "m", path, &error), QUIRE_OK, "%s", error.text);
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0600);
    cr_assert_eq(qr_chat_session_init(&loaded), QUIRE_OK);
    cr_assert_eq(qr_chat_session_load(&loaded, path, &error), QUIRE_OK, "%s", error.text);
    cr_assert(json_equal(session.messages, loaded.messages));
    qr_chat_session_deinit(&session);
    qr_chat_session_deinit(&loaded);
    unlink(path);
}

Test(cli_chat_session, a_save_follows_links_and_replaces_nothing_but_files) {
    qr_chat_session session = talk();
    quire_error error = {0};
    char folder[] = "/tmp/quire-session-XXXXXX", fifo[64], file[64], link[64];
    struct stat info;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    cr_expect_eq(qr_chat_session_save(&session, "m", fifo, &error), QUIRE_IO);
    cr_expect_eq(qr_chat_session_save(&session, "m", folder, &error), QUIRE_IO);
    cr_expect(lstat(fifo, &info) == 0 && S_ISFIFO(info.st_mode), "what is no file stays as it is");
    cr_assert_eq(qr_chat_session_save(&session, "m", file, &error), QUIRE_OK);
    cr_assert_eq(symlink(file, link), 0);
    cr_assert_eq(truncate(file, 0), 0);
    cr_assert_eq(qr_chat_session_save(&session, "m", link, &error), QUIRE_OK, "%s", error.text);
    cr_expect(lstat(link, &info) == 0 && S_ISLNK(info.st_mode), "the link stays");
    cr_expect(stat(file, &info) == 0 && info.st_size > 0, "its file is written");
    unlink(fifo), unlink(file), unlink(link);
    cr_expect_eq(rmdir(folder), 0, "nothing is left beside them");
    qr_chat_session_deinit(&session);
}

Test(cli_chat_session, only_a_regular_file_is_loaded, .timeout = 20) {
    qr_chat_session session = talk();
    quire_error error = {0};
    char folder[] = "/tmp/quire-session-XXXXXX", fifo[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {fifo, folder, "/dev/zero"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        cr_expect_eq(qr_chat_session_load(&session, paths[i], &error), QUIRE_IO, "%s", paths[i]);
        cr_expect_str_eq(error.source, paths[i]);
        cr_expect_str_eq(error.text, "is not a regular file");
    }
    cr_assert_eq(qr_chat_session_count(&session), 2);
    unlink(fifo), rmdir(folder);
    qr_chat_session_deinit(&session);
}

Test(cli_chat_session, a_broken_file_leaves_the_session_as_it_was) {
    static const char *const contents[] = {"",
                                           "[",
                                           "{}",
                                           "{\"messages\": 3}",
                                           "{\"messages\": [1]}",
                                           "{\"messages\": [{\"role\": \"user\"}]}",
                                           "{\"messages\": [{\"role\": \"root\", \"content\": \"x\"}]}",
                                           "{\"messages\": [{\"role\": \"user\", \"content\": []}]}"};
    qr_chat_session session = talk();
    quire_error error;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        char path[] = "/tmp/quire-chat-XXXXXX";
        int fd = mkstemp(path);
        cr_assert_eq(write(fd, contents[i], strlen(contents[i])), (ssize_t)strlen(contents[i]));
        close(fd);
        cr_expect_eq(qr_chat_session_load(&session, path, &error), QUIRE_FORMAT, "%s", contents[i]);
        cr_expect_str_eq(error.source, path);
        unlink(path);
    }
    cr_assert_eq(qr_chat_session_load(&session, "/nowhere/x", &error), QUIRE_IO);
    cr_assert_str_eq(error.text, "cannot be opened: No such file or directory");
    cr_assert_eq(qr_chat_session_save(&session, "m", "/nowhere/x", &error), QUIRE_IO);
    cr_assert_eq(qr_chat_session_count(&session), 2);
    qr_chat_session_deinit(&session);
}
