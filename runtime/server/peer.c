/* peer.c - see peer.h. */
#include "runtime/server/peer.h"

#include <quire/kv.h>

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

qr_peer qr_peer_of_unix(int fd) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0) return (qr_peer){.is_unix = false};
    return (qr_peer){.is_unix = true, .uid = credentials.uid, .pid = credentials.pid};
}

bool qr_peer_is_owner(const qr_peer *peer) { return peer->is_unix && peer->uid == geteuid(); }

static void key_part(qr_bytes *key, const void *data, size_t size) {
    uint64_t length = size;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)(length >> (8 * i));
    qr_bytes_append(key, prefix, sizeof prefix);
    qr_bytes_append(key, data, size);
}

_Static_assert(QR_SALT_BYTES_MAX + 3 * 8 + 4 <= QUIRE_NAMESPACE_KEY_MAX, "three lengths, a salt and a uid");

void qr_namespace_key(qr_text salt, const qr_peer *peer, bool by_uid, qr_bytes *key) {
    if (salt.size == 0 && !by_uid) return;
    key_part(key, salt.data, salt.size);
    key_part(key, "", 0);
    if (!by_uid) key_part(key, "", 0);
    else if (peer->is_unix)
        key_part(key,
                 (unsigned char[]){(unsigned char)peer->uid, (unsigned char)(peer->uid >> 8), (unsigned char)(peer->uid >> 16),
                                   (unsigned char)(peer->uid >> 24)},
                 4);
    else key_part(key, "tcp", 3);
}
