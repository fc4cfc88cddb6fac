#ifndef FOVEA_GATEWAY_HTTP_INTERNAL_H
#define FOVEA_GATEWAY_HTTP_INTERNAL_H

/* Shared by the files of the server only: http.c listens, admit.c admits connections, connection.c
 * moves bytes, request.c reads requests, answer.c writes answers. A connection has one request at a
 * time. */
#include <netinet/in.h>
#include <sys/queue.h>

#include "gateway/http/buffer.h"
#include "gateway/http/http.h"
#include "gateway/http/parser.h"
#include "gateway/http/places.h"
#include "gateway/http/tls.h"

enum { FV_HTTP_SCRATCH = 64 << 10, FV_HTTP_ADDED_MAX = 8 };

typedef struct fv_http_connection fv_http_connection;

/* A header of an answer. */
typedef struct fv_http_added {
    char *name, *value;
} fv_http_added;

struct fv_http_request {
    fv_http *http;
    fv_http_connection *connection;
    void *user;
    fv_http_head head; /* {0}: not readable */
    char *arguments;   /* [n_arguments]: names and values, decoded, each with its '\0' */
    size_t n_arguments;
    char client[FV_CLIENT_ADDRESS_MAX];
    fv_http_place *place; /* behind a proxy; NULL: not counted */
    bool told;            /* on_end will be called */
    char *error;          /* owned; NULL: none */
    /* the body */
    char *body;
    size_t n_body, cap_body; /* n_body counts bytes passed to on_body, too */
    void (*on_body)(void *user, fv_http_request *r, const char *bytes, size_t n);
    bool reads, complete, continued;
    double spent_s; /* time spent on the body before a pause */
    double read_s;
    /* the answer */
    fv_http_added added[FV_HTTP_ADDED_MAX];
    int32_t n_added;
    unsigned status;
    bool chunked, ended, was_full;
};

TAILQ_HEAD(fv_http_list, fv_http_connection);

struct fv_http_connection {
    uv_poll_t poll; /* first */
    fv_http *http;
    TAILQ_ENTRY(fv_http_connection) link, due_link;
    int fd, events;
    bool idle, due;   /* in which lists */
    bool busy, again; /* being served; to be served once more */
    char peer[INET6_ADDRSTRLEN];
    bool proxy;               /* a trusted proxy */
    fv_http_place *place;     /* NULL: not counted */
    fv_http_session *session; /* NULL: plain text */
    fv_http_parser parser;
    fv_http_buffer in, out, wire; /* not yet parsed; not yet encrypted or sent; encrypted */
    const char *fresh;            /* [n_fresh] not yet parsed, in the server's scratch */
    size_t n_fresh;
    fv_http_request *request; /* NULL: waiting for one */
    bool answered;            /* at least one request */
    bool last;                /* ends after this answer */
    bool lingers, shut;       /* waits for the client to close; sending side is shut */
    bool eof, gone;           /* the client has closed; the connection is to be closed */
    double idle_s, heard_s;   /* idle or lingering since; last bytes received */
    double reading_s;         /* reading a request since; 0: not reading */
    size_t discarded;
    uint64_t sent;    /* bytes written to the socket */
    uint64_t taken;   /* bytes acknowledged by the client at checked_s */
    double checked_s; /* last progress; 0: nothing to send */
};

struct fv_http {
    fv_http_options opt;
    fv_http_tls *tls; /* NULL: plain text */
    uv_poll_t poll;
    uv_timer_t tick;
    uv_idle_t turn; /* serves `due` */
    char address[272];
    int listen_fd;        /* -1: after fv_http_leave */
    bool ends_keep_alive; /* answers end their connections */
    bool deaf;            /* out of files: not accepting until the next tick */
    fv_http_places peers, clients;
    struct fv_http_list active, idle, due; /* idle: longest idle first */
    int32_t n_connection, n_told, n_handle;
    size_t bodies;    /* bytes of stored bodies */
    double refused_s; /* when a refusal was logged last */
    int64_t date_s;
    char date[40]; /* header Date at date_s */
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
    char scratch[FV_HTTP_SCRATCH];
};

/* http.c */
void fv_http_handle_closed(fv_http *h);
void fv_http_turn_soon(fv_http *h); /* serves `due` on the loop's next turn */

/* admit.c. Takes fd; closes it if the connection is not admitted. */
void fv_http_connection_open(fv_http *h, int fd, const struct sockaddr *from);
void fv_http_log_refused(fv_http *h, const char *peer); /* with the last error as reason */

/* connection.c */
void fv_http_connection_begin(fv_http_connection *c); /* once admitted */
void fv_http_connection_close(fv_http_connection *c); /* at once; ends its request */
void fv_http_connection_tick(fv_http_connection *c, double now_s);
void fv_http_serve(fv_http_connection *c);
void fv_http_due(fv_http_connection *c); /* serves it soon, not within this call */

/* request.c. Takes *head; {0}: a request that could not be read. NULL: out of memory. */
fv_http_request *fv_http_request_new(fv_http_connection *c, fv_http_head *head);
void fv_http_request_free(fv_http_request *r);
void fv_http_begin_request(fv_http_request *r); /* after its headers */
/* Adds a piece of the body. left: bytes known to follow it. */
void fv_http_add_piece(fv_http_request *r, const char *bytes, size_t n, size_t left);
void fv_http_complete_request(fv_http_request *r);
void fv_http_report(fv_http_request *r); /* counts it: on_end will be called */

/* answer.c. Answers with an error in OpenAI's schema; closes the connection unless the whole
 * request was read. sentence: without quotation marks. */
void fv_http_refuse(fv_http_request *r, unsigned status, const char *sentence);
void fv_http_continue(fv_http_request *r); /* "100 Continue" */

#endif
