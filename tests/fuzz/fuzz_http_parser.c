/* Any bytes as a connection's requests, at once and in pieces, as the first byte says: both must
 * give the same requests, heads of bounded size, and heads that agree with their own headers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gateway/http/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

/* A checksum and counts of the parsed requests. */
typedef struct story {
    uint64_t sum;
    size_t n_head, n_body, n_done;
    unsigned status; /* of the refusal; 0: none */
} story;

static void add(story *s, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) s->sum = (s->sum ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
}

static void check_head(story *s, fv_http_head h) {
    const char *name, *value;
    size_t n_host = 0, n_length = 0, n_coding = 0;
    expect(h.n_text <= FV_HTTP_HEADERS && h.path >= h.text && (*h.path == '/' || *h.path == '*'));
    for (size_t at = 0; fv_http_head_next(&h, &at, &name, &value);) {
        expect(*name && !strpbrk(name, " \t:") && !strpbrk(value, "\r\n"));
        n_host += strcasecmp(name, "Host") == 0;
        n_length += strcasecmp(name, "Content-Length") == 0;
        n_coding += strcasecmp(name, "Transfer-Encoding") == 0;
        if (strcasecmp(name, "Content-Length") == 0)
            expect(strtoull(value, NULL, 10) == h.body &&
                   strspn(value, "0123456789") == strlen(value));
    }
    expect(n_host == 1 || (n_host == 0 && h.version_10));
    expect(n_length + n_coding <= 1 && (n_coding == 1) == (h.body == SIZE_MAX));
    s->n_head++;
    add(s, h.text, h.n_text);
    add(s, &h.body, sizeof h.body);
    fv_http_head_free(&h);
}

/* Takes an event; false: stops reading. */
static bool take(fv_http_parser *p, story *s, fv_http_event event) {
    if (event == FV_HTTP_HEAD) check_head(s, fv_http_parser_take(p));
    if (event == FV_HTTP_PIECE) {
        s->n_body += p->n_piece;
        add(s, p->piece, p->n_piece);
    }
    if (event == FV_HTTP_DONE) {
        s->n_done++;
        fv_http_parser_begin(p);
    }
    if (event == FV_HTTP_BAD) {
        s->status = p->status;
        expect(p->status >= 400 && p->why[0] && !strpbrk(p->why, "\"\\"));
    }
    return event != FV_HTTP_BAD;
}

static story read_all(const uint8_t *data, size_t n, size_t step) {
    fv_http_parser p = {0};
    story s = {0};
    bool reads = true;
    fv_http_parser_begin(&p);
    for (size_t at = 0; at < n && reads; at += step) {
        size_t most = n - at < step ? n - at : step, used, done = 0;
        char *piece = malloc(most); /* freed at once: the parser must keep no pointer */
        expect(piece != NULL);
        memcpy(piece, data + at, most);
        for (fv_http_event event = FV_HTTP_HEAD; reads && event != FV_HTTP_MORE; done += used) {
            event = fv_http_parse(&p, piece + done, most - done, &used);
            expect(used <= most - done);
            expect(event != FV_HTTP_MORE || used == most - done);
            reads = take(&p, &s, event);
        }
        free(piece);
    }
    fv_http_parser_free(&p);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    story whole = read_all(data + 1, n - 1, n), pieces = read_all(data + 1, n - 1, 1 + data[0] % 9);
    expect(whole.sum == pieces.sum && whole.n_head == pieces.n_head &&
           whole.n_body == pieces.n_body && whole.n_done == pieces.n_done &&
           whole.status == pieces.status);
    return 0;
}
