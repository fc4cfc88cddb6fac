#ifndef FOVEA_GATEWAY_FETCH_FETCH_H
#define FOVEA_GATEWAY_FETCH_FETCH_H

/* FETCH: the bytes at http(s) URLs that clients name, without becoming a way into the network around
 * this machine (server-side request forgery):
 *
 *   the URL           http or https, no user name; its host and port are on the operator's list
 *   the address       checked where libcurl opens the socket, so it is the one that is connected to,
 *                     whatever a name resolves to at another time (DNS rebinding); public ones only
 *   a redirect        is a new URL with the same rules, and never leads from https to http
 *   proxies, cookies, .netrc, other protocols, encodings: none
 *
 * Bytes, time, redirects and the number at a time are bounded. Nothing here blocks: names are resolved on
 * libcurl's threads. Loop thread. */
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
    /* [n_host] "NAME", which allows the scheme's own port, or "NAME:PORT"; borrowed */
    const char *const *hosts;
    int32_t n_host;
    size_t bytes_max; /* of one fetch; more are FV_ENOMEM */
    size_t bytes_all; /* of all that have not been freed; more are FV_EBUSY */
    int64_t ms;       /* for one fetch, redirects included */
    const char
        *ca; /* PEM file of the authorities that https is checked against; NULL: the system's */
    bool (*may_connect)(const struct sockaddr *a); /* NULL: fv_address_is_public. For tests */
} fv_fetcher_options;

/* FV_EINVAL unless it can be an entry of `hosts`. */
fv_status fv_fetch_host_check(const char *entry);

fv_status fv_fetcher_open(const fv_fetcher_options *opt, fv_fetcher **out);

/* All fetches have been freed. `closed` runs on the loop when `f` is freed. NULL is fine: at once. */
void fv_fetcher_close(fv_fetcher *f, void (*closed)(void *user), void *user);

/* bytes [n] are the fetch's. A failure has its sentence in fv_last_error: FV_EINVAL if the URL is to
 * blame, or who answers there. */
typedef void (*fv_fetched)(void *user, fv_status st, const uint8_t *bytes, size_t n);

/* Calls `done` once, later, unless it is freed before. FV_EINVAL: a URL that may not be fetched. FV_EBUSY:
 * FV_FETCH_RUNNING_MAX are running. */
fv_status fv_fetch_start(fv_fetcher *f, const char *url, fv_fetched done, void *user,
                         fv_fetch **out);
/* From `done` on, once: gives its bytes (free). They count in the fetcher's limit until it is freed. */
uint8_t *fv_fetch_take(fv_fetch *t);

void fv_fetch_free(fv_fetch *t); /* ends it if it runs; in `done`, too. NULL is fine */

#endif
