#include "runtime/server/peer.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct key {
    qr_bytes bytes;
} key;

static key key_of(const char *salt, qr_peer peer, bool by_uid) {
    key k = {{0}};
    qr_namespace_key((qr_text){salt, strlen(salt)}, &peer, by_uid, &k.bytes);
    return k;
}

static bool same(key a, key b) {
    return a.bytes.size == b.bytes.size && (a.bytes.size == 0 || memcmp(a.bytes.data, b.bytes.data, a.bytes.size) == 0);
}

Test(server_peer, different_tuples_have_different_keys) {
    qr_peer one = {.is_unix = true, .uid = 1}, two = {.is_unix = true, .uid = 2}, tcp = {.is_unix = false};
    key keys[] = {
        key_of("", one, false), key_of("a", one, false),   key_of("", one, true),
        key_of("", two, true),  key_of("", tcp, true),     key_of("a", one, true),
        key_of("a", tcp, true), key_of("tcp", one, false), key_of("aa", one, false),
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t k = 0; k < i; k++) cr_assert(!same(keys[i], keys[k]), "%zu and %zu", i, k);
    cr_assert_eq(keys[0].bytes.size, 0, "no salt and no user is the empty key");
    key again = key_of("a", two, false);
    cr_assert(same(again, keys[1]), "without by_uid the user does not matter");
    qr_bytes_deinit(&again.bytes);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) qr_bytes_deinit(&keys[i].bytes);
}

Test(server_peer, the_kernel_says_who_is_there) {
    int pair[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    qr_peer peer = qr_peer_of_unix(pair[0]);
    cr_assert(peer.is_unix && peer.uid == geteuid() && peer.pid == getpid());
    cr_assert(qr_peer_is_owner(&peer));
    peer.uid++;
    cr_assert(!qr_peer_is_owner(&peer));
    cr_assert(!qr_peer_is_owner(&(qr_peer){.is_unix = false, .uid = geteuid()}));
    close(pair[0]);
    close(pair[1]);
}
