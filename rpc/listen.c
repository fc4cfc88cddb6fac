/* Checks addresses, and finds out why a server could not listen: binds a socket as gRPC did and reads
 * errno. */
#include "rpc/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Splits "HOST:PORT" or "[HOST]:PORT"; false: it is neither. */
static bool split(const char *address, char host[256], const char **port) {
    const char *colon = strrchr(address, ':');
    if (!colon || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    size_t n = (size_t)(colon - address);
    if (n >= 2 && address[0] == '[' && colon[-1] == ']') {
        address++;
        n -= 2;
    }
    if (n == 0 || n >= 256) return false;
    memcpy(host, address, n);
    host[n] = '\0';
    *port = colon + 1;
    return true;
}

/* Says what is wrong with an address; NULL: nothing. */
static const char *fault(const char *address) {
    char host[256];
    const char *port;
    if (split(address, host, &port)) {
        bool fits = strlen(port) <= 5 && strtol(port, NULL, 10) <= 65535;
        return fits ? NULL : "the port must be 0..65535";
    }
    const char *colon = strrchr(address, ':');
    if (!colon || strchr(colon, ']')) return "the port is missing";
    return colon == address ? "the host is missing" : "not HOST:PORT";
}

static bool is_path(const char *address) { return strncmp(address, "unix:", 5) == 0; }

fv_status fv_rpc_listen_check(const char *address) {
    const char *why = is_path(address) ? NULL : fault(address);
    if (!why) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "cannot listen on '%s': %s; write HOST:PORT, as in 0.0.0.0:50051 (port 0: any "
                   "that is free)",
                   address, why);
}

bool fv_rpc_listen_is_local(const char *address) {
    char host[256];
    const char *port;
    struct in_addr v4;
    struct in6_addr v6;
    if (is_path(address)) return true;
    if (!split(address, host, &port)) return false;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcmp(host, "localhost") == 0;
}

fv_status fv_rpc_target_check(const char *address) {
    const char *why = is_path(address) ? NULL : fault(address);
    if (!why) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "'%s' is not a server address: %s; write HOST:PORT, such as "
                   "127.0.0.1:8200",
                   address, why);
}

static fv_status failure(const char *address, int reason) {
    if (reason == EADDRINUSE)
        return FV_FAIL(
            FV_EIO,
            "cannot listen on %s: the port is in use; stop what listens there, or choose "
            "another one (port 0: any that is free)",
            address);
    if (reason == EADDRNOTAVAIL)
        return FV_FAIL(FV_EIO, "cannot listen on %s: the address is not one of this machine",
                       address);
    return FV_FAIL(FV_EIO, "cannot listen on %s: %s", address, strerror(reason));
}

static int port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char port[8];
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return 0;
    return atoi(port);
}

fv_status fv_rpc_listen_socket(const char *address, int *out, int *port) {
    char host[256];
    const char *wanted;
    FV_TRY(fv_rpc_listen_check(address));
    if (!split(address, host, &wanted))
        return FV_FAIL(FV_EINVAL, "cannot listen on '%s': write HOST:PORT", address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int err = getaddrinfo(host, wanted, &hints, &found), on = 1;
    if (err != 0) return FV_FAIL(FV_EIO, "cannot listen on %s: %s", address, gai_strerror(err));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool listens = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0;
    int reason = errno;
    freeaddrinfo(found);
    if (!listens) {
        if (fd >= 0) close(fd);
        return failure(address, reason);
    }
    *out = fd;
    *port = port_of(fd);
    return FV_OK;
}

fv_status fv_rpc_listen_error(const char *address) {
    int fd, port;
    if (is_path(address))
        return FV_FAIL(FV_EIO,
                       "cannot listen on %s: check that its directory exists and is writable",
                       address);
    fv_status st = fv_rpc_listen_socket(address, &fd, &port);
    if (st != FV_OK) return st;
    close(fd);
    return FV_FAIL(FV_EIO, "cannot listen on %s: gRPC refused it", address);
}
