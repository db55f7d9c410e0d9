#include "runtime/server/api_keys.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static quire_status load(const char *text, mode_t mode, qr_api_keys *keys) {
    char path[] = "/tmp/quire-keys-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
    quire_error error;
    quire_status status = qr_api_keys_load(path, keys, &error);
    unlink(path);
    return status;
}

Test(server_api_keys, allows_only_whole_keys) {
    qr_api_keys keys;
    cr_assert_eq(load("# comment\n\nfirst\r\nsecond", 0600, &keys), QUIRE_OK);
    cr_assert_eq(keys.count, 2);
    static const char *const good[] = {"Bearer first", "bearer second", "Bearer   first"};
    static const char *const bad[] = {"Bearer firs",      "Bearer firstfirst", "Bearer ",      "first",
                                      "Bearer # comment", "Basic first",       "Bearer sfirst"};
    for (size_t i = 0; i < 3; i++) cr_assert(qr_api_keys_allow(&keys, good[i]), "%s", good[i]);
    for (size_t i = 0; i < 7; i++) cr_assert(!qr_api_keys_allow(&keys, bad[i]), "%s", bad[i]);
    cr_assert(!qr_api_keys_allow(&keys, NULL));
    qr_api_keys_deinit(&keys);
    cr_assert(qr_api_keys_allow(&keys, NULL), "no key is needed where none is set");
}

Test(server_api_keys, blanks_around_a_key_do_not_count) {
    qr_api_keys keys;
    cr_assert_eq(load("first \t\n  second\n \t \n  # comment\n", 0600, &keys), QUIRE_OK);
    cr_assert_eq(keys.count, 2);
    cr_assert(qr_api_keys_allow(&keys, "Bearer first") && qr_api_keys_allow(&keys, "Bearer second"));
    cr_assert(!qr_api_keys_allow(&keys, "Bearer "));
    qr_api_keys_deinit(&keys);
}

Test(server_api_keys, refuses_files_that_cannot_be_meant) {
    qr_api_keys keys;
    quire_error error;
    cr_assert_eq(load("key\n", 0644, &keys), QUIRE_FORMAT);
    cr_assert_eq(load("# only this\n", 0600, &keys), QUIRE_FORMAT);
    cr_assert_eq(qr_api_keys_load("/nowhere/keys", &keys, &error), QUIRE_IO);
    cr_assert_eq(keys.count, 0);
}
