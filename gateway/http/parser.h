#ifndef FOVEA_GATEWAY_HTTP_PARSER_H
#define FOVEA_GATEWAY_HTTP_PARSER_H

/* Parses the bytes of a connection into requests by llhttp, strict by default, and checks what
 * llhttp leaves to its callers:
 *
 *   Host            exactly one, and a valid one; HTTP/1.0 may have none (RFC 9112, section 3.2)
 *   the target      a path, "*" of OPTIONS, or http(s)://HOST/... of the same host as the header
 *   the length      Transfer-Encoding only "chunked", and only in HTTP/1.1 (section 6.1)
 *   repetitions     none of headers that decide who calls and how long a request is
 *   trailers        none; chunk extensions, blank lines and headers are bounded
 *
 *   before --> HEAD --> PIECE ... PIECE --> DONE      MORE: all bytes were used
 *
 * Stores only the headers of one request. Any thread. */
#include <llhttp.h>

#include "common/status.h"

enum {
    FV_HTTP_HEADERS = 32 << 10,   /* bytes of a request's line and headers */
    FV_HTTP_EXTENSIONS = 4 << 10, /* of all chunk extensions of a body */
};

/* A request's line and headers. Owns text: the target, then names and values in turn, each with its
 * '\0'. */
typedef struct fv_http_head {
    char *text;
    size_t n_text, fields; /* bytes; offset of the first name */
    const char *method;
    char *path;      /* within text: the target without scheme and host */
    size_t body;     /* bytes: Content-Length; SIZE_MAX: chunked */
    bool keeps;      /* keep-alive: another request may follow */
    bool continues;  /* the client waits for "100 Continue" */
    bool version_10; /* HTTP/1.0 */
} fv_http_head;

/* _find returns the first value of a header; NULL: none. _next gives the next name and value after
 * *at, which begins as 0; false: no more. */
const char *fv_http_head_find(const fv_http_head *h, const char *name);
bool fv_http_head_next(const fv_http_head *h, size_t *at, const char **name, const char **value);
void fv_http_head_free(fv_http_head *h); /* {0} afterwards */

typedef enum fv_http_event {
    FV_HTTP_MORE = 0, /* all bytes were used */
    FV_HTTP_HEAD,     /* the head is complete: fv_http_parser_take */
    FV_HTTP_PIECE,    /* piece [n_piece] of the body, within the given bytes */
    FV_HTTP_DONE,     /* the request is complete; fv_http_parser_begin before the next */
    FV_HTTP_BAD,      /* see status and why; nothing more can be parsed */
} fv_http_event;

typedef struct fv_http_parser {
    llhttp_t llhttp;
    fv_http_head head;
    size_t cap_text, head_bytes, n_protocol, extension_bytes;
    const char *base; /* start of the bytes being parsed */
    size_t blank;     /* bytes of a blank line before the request */
    bool begun;       /* the request line has begun */
    bool in_name;     /* a name is open, or has no value yet */
    fv_http_event event;
    const char *piece;    /* borrowed */
    size_t n_piece, left; /* left: bytes of the body or its chunk that follow the piece */
    unsigned status;      /* HTTP status to answer after FV_HTTP_BAD */
    char why[256];        /* a sentence without quotation marks */
} fv_http_parser;

void fv_http_parser_begin(fv_http_parser *p); /* p: {0}, or after FV_HTTP_DONE */
void fv_http_parser_free(fv_http_parser *p);

/* Parses up to the next event; *used: how many of the n bytes were read; n may be 0. Call it until
 * it returns MORE or BAD. */
fv_http_event fv_http_parse(fv_http_parser *p, const char *bytes, size_t n, size_t *used);

/* After FV_HTTP_HEAD: gives the head. */
fv_http_head fv_http_parser_take(fv_http_parser *p);

#endif
