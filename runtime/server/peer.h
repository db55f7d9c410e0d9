/* peer.h - who is at the other end of a connection, and what a request's cache namespace is made of.
 *
 * Thread: any.
 */
#ifndef QR_SERVER_PEER_H
#define QR_SERVER_PEER_H

#include "runtime/model/tokenizer.h"
#include "runtime/server/byte_buffer.h"

/* With the other parts a salt of so many bytes makes a key of at most QUIRE_NAMESPACE_KEY_MAX. */
enum { QR_SALT_BYTES_MAX = 1024 };

typedef struct qr_peer {
    bool is_unix; /* the credentials are valid: the kernel vouches for them (SO_PEERCRED) */
    unsigned uid;
    int pid;
} qr_peer;

/* fd is a connected Unix socket. */
qr_peer qr_peer_of_unix(int fd);
/* The user that this daemon runs as, over the Unix socket. */
bool qr_peer_is_owner(const qr_peer *peer);

/* Appends the namespace key: the parts salt, adapter and user, each with its length in front, so that no two different
 * tuples have the same key. All parts empty: the empty key. user is the peer's uid, "tcp" for peers without one, and
 * empty when by_uid is not set; there is no adapter yet. */
void qr_namespace_key(qr_text salt, const qr_peer *peer, bool by_uid, qr_bytes *key);

#endif
