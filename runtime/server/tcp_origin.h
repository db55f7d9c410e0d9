/* tcp_origin.h - keeps web pages away from a TCP listener that asks for no key.
 *
 * A page in a browser of this machine can send requests to loopback, and by DNS rebinding (its own name, pointed at
 * 127.0.0.1 after it was loaded) it can read the answers too. Its requests give themselves away: a request to another origin
 * carries Origin, and one to the page's own carries the page's name as Host. Programs send neither; HTTP/1.0 without Host is
 * fine. This is no authentication: whoever may connect and is not a browser is answered.
 *
 * Thread: any.
 */
#ifndef QR_SERVER_TCP_ORIGIN_H
#define QR_SERVER_TCP_ORIGIN_H

#include "runtime/server/http_error.h"

/* host, origin: the values of the headers, or NULL; listen: HOST:PORT or [IPV6]:PORT of the listener. Host may be
 * `localhost`, any address of 127.0.0.0/8, [::1] in any spelling, or the listener's host, each with any port (a tunnel's) or
 * none. false: refused with 403, param names the header. */
bool qr_tcp_origin_check(const char *listen, const char *host, const char *origin, qr_http_error *error);

#endif
