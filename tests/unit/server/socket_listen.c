#include "runtime/server/socket_listen.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[64], path[108];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/quire-test-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s.sock", folder);
}

static quire_status try_open(const char *at, qr_unix_socket *socket, quire_error *error) {
    *error = (quire_error){0};
    return qr_unix_socket_open(at, 0600, socket, error);
}

/* A socket file whose process has died. */
static void leave_dead_socket(const char *at) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", at);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(fd, 1), 0);
    close(fd);
}

Test(server_socket_listen, removes_only_what_it_made) {
    make_folder();
    qr_unix_socket s;
    quire_error error;
    leave_dead_socket(path);
    cr_assert_eq(try_open(path, &s, &error), QUIRE_OK, "%s", error.text);
    qr_unix_socket again;
    cr_assert_eq(try_open(path, &again, &error), QUIRE_IO);
    cr_assert(strstr(error.text, "already running"));
    cr_assert_eq(access(path, F_OK), 0, "the second start took the first one's socket");
    qr_unix_socket_close(&s);
    cr_assert_lt(access(path, F_OK), 0);
    cr_assert_eq(rmdir(folder), 0, "something was left behind");
}

Test(server_socket_listen, leaves_files_folders_and_links_alone) {
    make_folder();
    qr_unix_socket s;
    quire_error error;
    close(open(path, O_CREAT | O_WRONLY, 0600));
    cr_assert_eq(try_open(path, &s, &error), QUIRE_IO);
    cr_assert_str_eq(error.source, path);
    cr_assert_eq(access(path, F_OK), 0);
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(try_open(path, &s, &error), QUIRE_IO);
    cr_assert_eq(rmdir(path), 0);
    char target[128];
    snprintf(target, sizeof target, "%s/target", folder);
    leave_dead_socket(target);
    cr_assert_eq(symlink(target, path), 0);
    cr_assert_eq(try_open(path, &s, &error), QUIRE_IO);
    struct stat info;
    cr_assert_eq(lstat(path, &info), 0);
    cr_assert(S_ISLNK(info.st_mode));
    unlink(path);
    unlink(target);
    cr_assert_eq(rmdir(folder), 0);
}

Test(server_socket_listen, leaves_a_live_socket_of_another_program_alone) {
    make_folder();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(fd, 1), 0);
    qr_unix_socket s;
    quire_error error;
    cr_assert_eq(try_open(path, &s, &error), QUIRE_IO);
    cr_assert_eq(access(path, F_OK), 0);
    close(fd);
    unlink(path);
    cr_assert_eq(rmdir(folder), 0);
}

Test(server_socket_listen, mode_holds_whatever_the_umask) {
    static const mode_t masks[] = {0, 022, 077, 0777}, modes[] = {0600, 0660, 0666};
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++) {
            make_folder();
            mode_t old = umask(masks[i]);
            qr_unix_socket s;
            quire_error error = {0};
            cr_assert_eq(qr_unix_socket_open(path, modes[k], &s, &error), QUIRE_OK, "%s", error.text);
            umask(old);
            struct stat info;
            cr_assert_eq(stat(path, &info), 0);
            cr_assert_eq(info.st_mode & 0777, modes[k]);
            qr_unix_socket_close(&s);
            rmdir(folder);
        }
    }
}

Test(server_socket_listen, names_paths_that_are_too_long) {
    char name[200];
    qr_unix_socket s;
    quire_error error;
    memset(name, 'x', sizeof name);
    memcpy(name, "/tmp/", 5);
    name[108] = 0;
    cr_assert_eq(try_open(name, &s, &error), QUIRE_INVALID);
    cr_assert(strstr(error.text, name));
    name[107] = 0;
    cr_assert_eq(try_open(name, &s, &error), QUIRE_OK, "%s", error.text);
    qr_unix_socket_close(&s);
    cr_assert_eq(try_open("", &s, &error), QUIRE_INVALID);
}

Test(server_socket_listen, makes_a_private_folder_and_refuses_an_open_one) {
    make_folder();
    char inner[108];
    snprintf(inner, sizeof inner, "%s/inner/s.sock", folder);
    qr_unix_socket s;
    quire_error error;
    cr_assert_eq(try_open(inner, &s, &error), QUIRE_OK, "%s", error.text);
    qr_unix_socket_close(&s);
    struct stat info;
    *strrchr(inner, '/') = 0;
    cr_assert_eq(stat(inner, &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0700);
    cr_assert_eq(chmod(inner, 0777), 0);
    strcat(inner, "/s.sock");
    cr_assert_eq(try_open(inner, &s, &error), QUIRE_IO);
    *strrchr(inner, '/') = 0;
    rmdir(inner);
    rmdir(folder);
}

Test(server_socket_listen, reads_tcp_addresses) {
    static const char *const bad[] = {"",       ":80",    "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999",
                                      "::1:80", "name:1", "[::1:80"};
    quire_error error;
    int fd, port;
    bool loopback;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(qr_tcp_listen(bad[i], &fd, &loopback, &port, &error), QUIRE_INVALID, "%s", bad[i]);
        cr_assert_eq(fd, -1);
    }
    cr_assert_eq(qr_tcp_listen("127.0.0.1:0", &fd, &loopback, &port, &error), QUIRE_OK);
    cr_assert(loopback && port > 0);
    close(fd);
    cr_assert_eq(qr_tcp_listen("0.0.0.0:0", &fd, &loopback, &port, &error), QUIRE_OK);
    cr_assert(!loopback);
    close(fd);
}
