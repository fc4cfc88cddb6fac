/* Finds out why a server could not listen: binds a socket as gRPC did and reads errno. An address
 * in, a sentence out. */
#include "rpc/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* "HOST:PORT" or "[HOST]:PORT" into its parts. */
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

/* What is wrong with it, NULL: nothing. */
static const char *fault(const char *address) {
    char host[256];
    const char *port;
    if (split(address, host, &port)) {
        bool fits = strlen(port) <= 5 && strtol(port, NULL, 10) <= 65535;
        return fits ? NULL : "the port must be 0..65535";
    }
    const char *colon = strrchr(address, ':');
    if (!colon || strchr(colon, ']')) return "the port is missing";
    return colon == address ? "the host is missing" : "that is no HOST:PORT";
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
                   "'%s' is no address of a server: %s; write HOST:PORT, as in "
                   "127.0.0.1:8200",
                   address, why);
}

fv_status fv_rpc_listen_error(const char *address) {
    if (is_path(address))
        return FV_FAIL(FV_EIO, "cannot listen on %s: is its folder there, and may we write to it?",
                       address);
    char host[256];
    const char *port;
    if (!split(address, host, &port)) return fv_rpc_listen_check(address);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int err = getaddrinfo(host, port, &hints, &found);
    if (err != 0) return FV_FAIL(FV_EIO, "cannot listen on %s: %s", address, gai_strerror(err));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int reason = fd < 0 ? errno : 0;
    if (fd >= 0) {
        int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) reason = errno;
        close(fd);
    }
    freeaddrinfo(found);
    if (reason == EADDRINUSE)
        return FV_FAIL(
            FV_EIO,
            "cannot listen on %s: the port is in use; stop what listens there, or choose "
            "another with --listen HOST:PORT (port 0: any that is free)",
            address);
    if (reason == EADDRNOTAVAIL)
        return FV_FAIL(FV_EIO, "cannot listen on %s: the address is not one of this machine",
                       address);
    return FV_FAIL(FV_EIO, "cannot listen on %s: %s", address,
                   reason ? strerror(reason) : "gRPC refused it");
}
