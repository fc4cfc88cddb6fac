#ifndef FOVEA_TESTS_SUPPORT_HTTP_RIG_H
#define FOVEA_TESTS_SUPPORT_HTTP_RIG_H

/* An HTTP server (gateway/http/http.h) on a loop that the test runs, and clients that send raw
 * bytes, in plain text or over TLS. A wait of more than a minute fails the test. */
#include <openssl/types.h>

#include "gateway/http/http.h"

typedef struct http_client http_client;

typedef struct http_rig {
    uv_loop_t loop;
    fv_http *server;
    fv_tls *files;        /* NULL: plain text */
    http_client *clients; /* open ones: http_rig_close closes them */
    bool closed;
} http_rig;

/* opt: loop, listen and tls are set here; limits of 0 become ones that no test reaches. */
void http_rig_open(http_rig *g, const fv_http_options *opt, bool tls);
void http_rig_close(http_rig *g);
void http_rig_turn(http_rig *g);
void http_rig_wait(http_rig *g, const int32_t *count, int32_t at_least);

struct http_client {
    http_client *next;
    http_rig *rig;
    int fd;
    SSL *ssl;         /* NULL: plain text */
    const char *what; /* what it has sent, for messages; NULL: unnamed */
    size_t n;
    char got[1 << 18]; /* [n], and a '\0' */
};

/* from: the client's address; NULL: 127.0.0.1. */
http_client *http_client_open(http_rig *g, const char *from);
void http_client_send(http_client *c, const void *bytes, size_t n);
void http_client_say(http_client *c, const char *text);
bool http_client_read(http_client *c);                     /* what is there; false: the end */
void http_client_expect(http_client *c, const char *text); /* reads until it is in `got` */
void http_client_expect_end(http_client *c);
int http_client_count(const http_client *c, const char *text); /* in `got` */
void http_client_close(http_client *c);

#endif
