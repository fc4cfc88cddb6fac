#ifndef FOVEA_GATEWAY_FETCH_FETCH_H
#define FOVEA_GATEWAY_FETCH_FETCH_H

/* FETCH: fetches the bytes at http(s) URLs that clients name, without opening a way into the
 * network around this machine (server-side request forgery):
 *
 *   the URL           http or https, no user name; its host and port are on the operator's list
 *   the address       must be public; checked where libcurl opens the socket, so it is the one that
*                     is connected to, whatever the name resolves to later (DNS rebinding)
 *   a redirect        is a new URL with the same rules, and never leads from https to http
 *   proxies, cookies, .netrc, other protocols, encodings: none
 *
 * Bytes, time, redirects and concurrent fetches are bounded. Nothing blocks: libcurl's threads
 * resolve names. Loop thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "common/status.h"

enum {
    FV_FETCH_URL_MAX = 4096,   /* bytes of a URL */
    FV_FETCH_REDIRECTS = 3,    /* of one fetch */
    FV_FETCH_RUNNING_MAX = 256 /* at a time */
};

typedef struct fv_fetcher fv_fetcher; /* opaque */
typedef struct fv_fetch fv_fetch;     /* opaque */

typedef struct fv_fetcher_options {
    uv_loop_t *loop; /* borrowed */
    /* [n_host] "NAME" for the scheme's default port, or "NAME:PORT"; borrowed */
    const char *const *hosts;
    int32_t n_host;
    size_t bytes_max; /* of one fetch; more are FV_ENOMEM */
    size_t bytes_all; /* of all fetches not freed yet; more are FV_EBUSY */
    int64_t ms;       /* for one fetch, redirects included */
    const char *ca;   /* PEM file of trusted authorities for https; NULL: the system's */
    bool (*may_connect)(const struct sockaddr *a); /* NULL: fv_address_is_public. For tests */
} fv_fetcher_options;

/* FV_EINVAL unless `entry` may be one of `hosts`. */
fv_status fv_fetch_host_check(const char *entry);

fv_status fv_fetcher_open(const fv_fetcher_options *opt, fv_fetcher **out);

/* All fetches must have been freed. Calls `closed` on the loop once `f` is freed; at once where `f`
 * is NULL. */
void fv_fetcher_close(fv_fetcher *f, void (*closed)(void *user), void *user);

/* The fetch owns bytes [n]. After a failure, fv_last_error says why; FV_EINVAL: the URL or its
 * server is to blame. */
typedef void (*fv_fetched)(void *user, fv_status st, const uint8_t *bytes, size_t n);

/* Calls `done` once, later, unless *out is freed before. FV_EINVAL: the URL may not be fetched.
 * FV_EBUSY: FV_FETCH_RUNNING_MAX are running. */
fv_status fv_fetch_start(fv_fetcher *f, const char *url, fv_fetched done, void *user,
                         fv_fetch **out);
/* Gives the bytes (free them); call once, in `done` or later. They count against bytes_all until
 * `t` is freed. */
uint8_t *fv_fetch_take(fv_fetch *t);

void fv_fetch_free(fv_fetch *t); /* ends a running fetch; may be called in `done`. NULL is fine */

#endif
