/* Runs libcurl's multi interface on libuv: curl names the sockets and the timeout it waits for, and
 * the loop reports their events. */
#include "gateway/fetch/fetch.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "common/grow.h"
#include "gateway/fetch/address.h"

struct fv_fetcher {
    fv_fetcher_options opt;
    CURLM *multi;
    uv_timer_t timer;
    int32_t n_running, n_handle;
    size_t held; /* bytes of all fetches */
    void (*closed)(void *user);
    void *closed_user;
};

struct fv_fetch {
    fv_fetcher *fetcher;
    fv_fetched done;
    void *user;
    CURL *easy;
    CURLU *url;
    double until_s;
    int32_t n_redirect;
    bool running;
    bool refused; /* its address may not be connected to */
    bool too_large, too_many, no_memory;
    size_t n_received; /* bytes of all bodies, redirects included */
    uint8_t *bytes;    /* [n] of the answer */
    size_t n, cap;
};

/* Watches a socket of curl's. */
typedef struct watch {
    uv_poll_t poll; /* first */
    fv_fetcher *fetcher;
    curl_socket_t fd;
} watch;

/* ---- which URLs ------------------------------------------------------------------------- */

/* Accepts an entry only as curl would print it, because is_listed compares with what curl
 * prints. */
fv_status fv_fetch_host_check(const char *entry) {
    char text[300], *host = NULL, *port = NULL;
    CURLU *url = curl_url();
    if (!url) return FV_FAIL(FV_ENOMEM, "out of memory for a host name");
    bool good = snprintf(text, sizeof text, "http://%s/", entry) < (int)sizeof text &&
                curl_url_set(url, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK;
    if (good && curl_url_get(url, CURLUPART_PORT, &port, 0) == CURLUE_OK)
        snprintf(text, sizeof text, "%s:%s", host, port);
    else if (good)
        snprintf(text, sizeof text, "%s", host);
    good = good && strcasecmp(text, entry) == 0;
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(url);
    if (good) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--allow-image-hosts %s: must be NAME or NAME:PORT", entry);
}

static bool is_listed(const fv_fetcher *f, const char *host, const char *port, bool own_port) {
    char both[FV_FETCH_URL_MAX + 8];
    snprintf(both, sizeof both, "%s:%s", host, port);
    for (int32_t i = 0; i < f->opt.n_host; i++)
        if (strcasecmp(f->opt.hosts[i], both) == 0 ||
            (own_port && strcasecmp(f->opt.hosts[i], host) == 0))
            return true;
    return false;
}

/* Checks scheme, host and port; a redirect may not lead from https to http. */
static fv_status check_url(const fv_fetcher *f, CURLU *url, const char *scheme_before) {
    char *scheme = NULL, *host = NULL, *port = NULL;
    fv_status st = FV_OK;
    if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK) {
        st = FV_FAIL(FV_EINVAL, "the URL has no host");
        goto out;
    }
    bool https = strcmp(scheme, "https") == 0;
    if (!https && strcmp(scheme, "http") != 0)
        st = FV_FAIL(FV_EINVAL, "only http and https URLs are fetched");
    else if (!https && strcmp(scheme_before, "https") == 0)
        st = FV_FAIL(FV_EINVAL, "the URL redirects from https to http");
    else if (!is_listed(f, host, port, strcmp(port, https ? "443" : "80") == 0))
        st = FV_FAIL(FV_EINVAL, "host %s:%s is not in --allow-image-hosts", host, port);
out:
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    return st;
}

static fv_status set_url(fv_fetch *t, const char *text) {
    char *before = NULL;
    fv_status st;
    curl_url_get(t->url, CURLUPART_SCHEME, &before, 0);
    if (strlen(text) > FV_FETCH_URL_MAX)
        st = FV_FAIL(FV_EINVAL, "the URL is longer than %d bytes", FV_FETCH_URL_MAX);
    else if (curl_url_set(t->url, CURLUPART_URL, text, CURLU_DISALLOW_USER) != CURLUE_OK)
        st = FV_FAIL(FV_EINVAL, "not a valid http or https URL");
    else
        st = check_url(t->fetcher, t->url, before ? before : "");
    curl_free(before);
    return st;
}

/* ---- curl's callbacks -------------------------------------------------------------------- */

/* Checks the address that curl is about to connect to. */
static curl_socket_t on_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a) {
    fv_fetch *t = user;
    (void)purpose;
    if (!t->fetcher->opt.may_connect(&a->addr)) {
        t->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* Bodies of redirects and errors count against the limit but are not kept. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *user) {
    fv_fetch *t = user;
    fv_fetcher *f = t->fetcher;
    long status = 0;
    (void)size; /* always 1 */
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->n_received += n;
    t->too_large = t->n_received > f->opt.bytes_max;
    if (t->too_large) return 0;
    if (status != 200) return n;
    t->too_many = n > f->opt.bytes_all - f->held;
    t->no_memory = !t->too_many && fv_grow(&t->bytes, &t->cap, t->n + n, 1) != FV_OK;
    if (t->too_many || t->no_memory) return 0;
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    f->held += n;
    return n;
}

/* ---- running ---------------------------------------------------------------------------- */

static void take_ended(fv_fetcher *f);

static void act(fv_fetcher *f, curl_socket_t fd, int events) {
    int running;
    curl_multi_socket_action(f->multi, fd, events, &running);
    take_ended(f);
}

static void on_timer(uv_timer_t *timer) { act(timer->data, CURL_SOCKET_TIMEOUT, 0); }

static int on_time(CURLM *multi, long ms, void *user) {
    fv_fetcher *f = user;
    (void)multi;
    if (ms < 0)
        uv_timer_stop(&f->timer);
    else
        uv_timer_start(&f->timer, on_timer, (uint64_t)ms, 0);
    return 0;
}

static void on_poll(uv_poll_t *p, int status, int events) {
    const watch *w = (watch *)p;
    int flags = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
                (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);
    act(w->fetcher, w->fd, status < 0 ? CURL_CSELECT_ERR : flags);
}

static void handle_gone(fv_fetcher *f) {
    if (--f->n_handle > 0) return;
    void (*closed)(void *) = f->closed;
    void *user = f->closed_user;
    free(f);
    closed(user);
}

static void on_watch_closed(uv_handle_t *h) {
    watch *w = (watch *)h;
    fv_fetcher *f = w->fetcher;
    free(w);
    handle_gone(f);
}

/* Watches a socket. Where there is no memory for that, the fetch times out. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *of_socket) {
    fv_fetcher *f = user;
    watch *w = of_socket;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        curl_multi_assign(f->multi, fd, NULL);
        if (w) uv_close((uv_handle_t *)&w->poll, on_watch_closed);
        return 0;
    }
    if (!w) {
        w = calloc(1, sizeof *w);
        if (!w || uv_poll_init_socket(f->opt.loop, &w->poll, fd) != 0) {
            free(w);
            return 0;
        }
        w->fetcher = f;
        w->fd = fd;
        f->n_handle++;
        curl_multi_assign(f->multi, fd, w);
    }
    uv_poll_start(&w->poll,
                  (what & CURL_POLL_IN ? UV_READABLE : 0) |
                      (what & CURL_POLL_OUT ? UV_WRITABLE : 0),
                  on_poll);
    return 0;
}

static void remove_from_curl(fv_fetch *t) {
    if (!t->running) return;
    t->running = false;
    t->fetcher->n_running--;
    curl_multi_remove_handle(t->fetcher->multi, t->easy);
}

static fv_status add_to_curl(fv_fetch *t) {
    double left_ms = 1e3 * (t->until_s - fv_clock_s());
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, left_ms < 1 ? 1L : (long)left_ms);
    curl_easy_setopt(t->easy, CURLOPT_CURLU, t->url);
    if (curl_multi_add_handle(t->fetcher->multi, t->easy) != CURLM_OK)
        return FV_FAIL(FV_ENOMEM, "out of memory for fetching an image");
    t->running = true;
    t->fetcher->n_running++;
    return FV_OK;
}

/* ---- the end of a transfer -------------------------------------------------------------- */

static fv_status failure(const fv_fetch *t, CURLcode code, const char *host) {
    if (t->too_large || code == CURLE_FILESIZE_EXCEEDED)
        return FV_FAIL(FV_ENOMEM, "the image is larger than %zu bytes", t->fetcher->opt.bytes_max);
    if (t->too_many) return FV_FAIL(FV_EBUSY, "too many images are being fetched; try again later");
    if (t->no_memory) return FV_FAIL(FV_ENOMEM, "out of memory for fetching an image");
    if (t->refused)
        return FV_FAIL(FV_EINVAL,
                       "%s resolves to an address that is not public, so it is not fetched", host);
    if (code == CURLE_COULDNT_RESOLVE_HOST)
        return FV_FAIL(FV_EINVAL, "the host name %s cannot be resolved", host);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return FV_FAIL(FV_EINVAL, "%s did not send the image within %lld ms", host,
                       (long long)t->fetcher->opt.ms);
    return FV_FAIL(FV_EINVAL, "the image cannot be fetched from %s: %s", host,
                   curl_easy_strerror(code));
}

static fv_status follow(fv_fetch *t, const char *url) {
    if (++t->n_redirect > FV_FETCH_REDIRECTS)
        return FV_FAIL(FV_EINVAL, "the URL redirects more than %d times", FV_FETCH_REDIRECTS);
    FV_TRY(set_url(t, url));
    return add_to_curl(t);
}

/* *again: the fetch goes on with a redirect. */
static fv_status end_transfer(fv_fetch *t, CURLcode code, bool *again) {
    char *host = NULL, *next = NULL;
    long status = 0;
    fv_status st = FV_OK;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &next);
    curl_url_get(t->url, CURLUPART_HOST, &host, 0);
    *again = code == CURLE_OK && next != NULL;
    if (code != CURLE_OK)
        st = failure(t, code, host ? host : "the host");
    else if (next)
        st = follow(t, next);
    else if (status != 200)
        st = FV_FAIL(FV_EINVAL, "%s answered with HTTP status %ld", host ? host : "the host",
                     status);
    curl_free(host);
    *again &= st == FV_OK;
    return st;
}

static void take_ended(fv_fetcher *f) {
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(f->multi, &left))) {
        fv_fetch *t = NULL;
        bool again;
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode code = m->data.result; /* removing the transfer frees m */
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        remove_from_curl(t);
        fv_status st = end_transfer(t, code, &again);
        if (!again) t->done(t->user, st, t->bytes, st == FV_OK ? t->n : 0);
    }
}

/* ---- fetches ---------------------------------------------------------------------------- */

static bool set_options(fv_fetch *t) {
    CURL *e = t->easy;
    bool ok = true;
#define SET(option, value) ok = ok && curl_easy_setopt(e, option, value) == CURLE_OK
    SET(CURLOPT_PRIVATE, t);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    SET(CURLOPT_OPENSOCKETDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_bytes);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, ""); /* ignores the environment's proxy */
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* ending a fetch does not wait for the resolver's thread */
    SET(CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->fetcher->opt.bytes_max);
    SET(CURLOPT_USERAGENT, "fovea-gateway");
    if (t->fetcher->opt.ca) {
        SET(CURLOPT_CAINFO, t->fetcher->opt.ca);
        SET(CURLOPT_CAPATH, NULL);
        SET(CURLOPT_CA_CACHE_TIMEOUT, 0L); /* rereads a replaced file */
    }
#undef SET
    return ok;
}

fv_status fv_fetch_start(fv_fetcher *f, const char *url, fv_fetched done, void *user,
                         fv_fetch **out) {
    if (f->n_running >= FV_FETCH_RUNNING_MAX)
        return FV_FAIL(FV_EBUSY, "too many images are being fetched; try again later");
    fv_fetch *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for fetching an image");
    *t = (fv_fetch){.fetcher = f,
                    .done = done,
                    .user = user,
                    .easy = curl_easy_init(),
                    .url = curl_url(),
                    .until_s = fv_clock_s() + 1e-3 * (double)f->opt.ms};
    fv_status st = FV_OK;
    if (!t->easy || !t->url || !set_options(t))
        st = FV_FAIL(FV_ENOMEM, "out of memory for fetching an image");
    if (st == FV_OK) st = set_url(t, url);
    if (st == FV_OK) st = add_to_curl(t);
    if (st != FV_OK) {
        fv_fetch_free(t);
        return st;
    }
    *out = t;
    return FV_OK;
}

uint8_t *fv_fetch_take(fv_fetch *t) {
    uint8_t *bytes = t->bytes;
    t->bytes = NULL;
    return bytes;
}

void fv_fetch_free(fv_fetch *t) {
    if (!t) return;
    remove_from_curl(t);
    curl_easy_cleanup(t->easy);
    curl_url_cleanup(t->url);
    t->fetcher->held -= t->n;
    free(t->bytes);
    free(t);
}

/* ---- opening and closing ---------------------------------------------------------------- */

fv_status fv_fetcher_open(const fv_fetcher_options *opt, fv_fetcher **out) {
    fv_fetcher *f = calloc(1, sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for fetching images");
    f->opt = *opt;
    if (!f->opt.may_connect) f->opt.may_connect = fv_address_is_public;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(f->multi = curl_multi_init())) {
        free(f);
        return FV_FAIL(FV_ENOMEM, "libcurl cannot be initialized");
    }
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION, on_time);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERDATA, f);
    uv_timer_init(opt->loop, &f->timer);
    f->timer.data = f;
    f->n_handle = 1;
    *out = f;
    return FV_OK;
}

static void on_timer_closed(uv_handle_t *h) { handle_gone(h->data); }

void fv_fetcher_close(fv_fetcher *f, void (*closed)(void *user), void *user) {
    if (!f) {
        closed(user);
        return;
    }
    f->closed = closed;
    f->closed_user = user;
    curl_multi_cleanup(f->multi);
    curl_global_cleanup();
    uv_close((uv_handle_t *)&f->timer, on_timer_closed);
}
