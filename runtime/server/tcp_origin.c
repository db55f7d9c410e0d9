/* tcp_origin.c - see tcp_origin.h. */
#include "runtime/server/tcp_origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

enum { HOST_BYTES = 256 };

/* The part before the port, brackets included. false: neither HOST, HOST:PORT, [IPV6] nor [IPV6]:PORT. */
static bool authority_host(const char *authority, char host[HOST_BYTES]) {
    size_t size = strcspn(authority, authority[0] == '[' ? "]" : ":");
    size += authority[size] == ']';
    const char *port = authority + size;
    if (*port == ':') port += 1 + strspn(port + 1, "0123456789");
    if (*port || size >= HOST_BYTES) return false;
    memcpy(host, authority, size);
    host[size] = 0;
    return true;
}

/* Only spellings that no resolver is asked about, and localhost. */
static bool host_is_loopback(const char *host) {
    struct in_addr four;
    struct in6_addr six;
    char inner[HOST_BYTES] = "";
    size_t size = strlen(host);
    if (strcasecmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    if (host[0] != '[' || host[size - 1] != ']') return false;
    memcpy(inner, host + 1, size - 2);
    return inet_pton(AF_INET6, inner, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool host_is_ours(const char *host, const char *listen) {
    char asked[HOST_BYTES], own[HOST_BYTES];
    if (!authority_host(host, asked)) return false;
    return host_is_loopback(asked) || (authority_host(listen, own) && strcasecmp(asked, own) == 0);
}

bool qr_tcp_origin_check(const char *listen, const char *host, const char *origin, qr_http_error *error) {
    if (origin)
        return qr_http_refuse(error, 403, "Origin", "the header Origin: web pages are answered over TCP only with an API key");
    if (host && !host_is_ours(host, listen))
        return qr_http_refuse(error, 403, "Host", "the header Host: without API keys this machine is called localhost, not %s",
                              host);
    return true;
}
