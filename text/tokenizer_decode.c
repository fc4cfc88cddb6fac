/* Ids -> text, as a stream.
 *
 * The reference's decoders are functions from a list of tokens to a list of tokens. Here each is
 * a stage that gets its tokens one by one and passes on what can no longer change:
 *
 *   push(id) --token--> stage 0 --fragments--> stage 1 --> ... --> out
 *
 * Fuse and ByteLevel make one endless token out of all; it travels in fragments, each of whole
 * characters, and `more` says that its end is still to come. A stage holds back what the
 * reference could still change: ByteFallback a run of byte tokens (one bad byte at its end turns
 * all of it into U+FFFD), ByteLevel a character whose bytes are not all there, Strip the
 * characters that it would cut if the text ended here.
 *
 * Decoding a whole list pushes all of it, so that the two cannot differ. One thread per stream. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_internal.h"

typedef struct stage {
    fv_tok_bytes held;
    int32_t count;   /* JOIN, METASPACE: tokens so far; STRIP: characters cut at the start */
    int32_t waiting; /* STRIP: characters that are cut if the token ends */
    bool inside;     /* STRIP: past the characters that can be cut at the start */
} stage;

struct fv_detokenizer {
    const fv_tokenizer *tok;
    stage stages[FV_TOK_STEPS_MAX];
    fv_tok_bytes out;
    bool skip_special;
};

/* Hands stage k a token, or with `more` a fragment of one that continues. */
static fv_status pass(fv_detokenizer *d, int32_t k, const char *s, size_t n, bool more);

static fv_status join(fv_detokenizer *d, int32_t k, const char *s, size_t n, bool more) {
    if (d->stages[k].count) FV_TRY(pass(d, k + 1, " ", 1, true));
    d->stages[k].count = 1;
    return pass(d, k + 1, s, n, more);
}

static fv_status replace(fv_detokenizer *d, int32_t k, const char *s, size_t n, bool more) {
    const fv_tok_dec *p = &d->tok->dec[k];
    fv_tok_bytes *b = &d->stages[k].held;
    b->n = 0;
    FV_TRY(fv_tok_replace(s, n, p->a, p->n_a, p->b, p->n_b, SIZE_MAX, b));
    return pass(d, k + 1, b->data, b->n, more);
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Ends a run of byte tokens: one token if it is UTF-8, otherwise one U+FFFD per byte. */
static fv_status end_byte_run(fv_detokenizer *d, int32_t k) {
    fv_tok_bytes *run = &d->stages[k].held;
    size_t n = run->n;
    run->n = 0;
    if (n == 0) return FV_OK;
    if (fv_utf8_valid(run->data, n) == n) return pass(d, k + 1, run->data, n, false);
    for (size_t i = 0; i < n; i++) FV_TRY(pass(d, k + 1, "\xEF\xBF\xBD", 3, false));
    return FV_OK;
}

/* Returns the byte of "<0xE4>", -1 for other tokens. */
static int byte_of(const char *s, size_t n) {
    bool shape = n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>';
    int high = shape ? hex(s[3]) : -1, low = shape ? hex(s[4]) : -1;
    return high >= 0 && low >= 0 ? high << 4 | low : -1;
}

static fv_status byte_fallback(fv_detokenizer *d, int32_t k, const char *s, size_t n) {
    int byte = byte_of(s, n);
    if (byte >= 0) return fv_tok_put(&d->stages[k].held, &(char){(char)byte}, 1);
    FV_TRY(end_byte_run(d, k));
    return pass(d, k + 1, s, n, false);
}

/* Appends the token's bytes, or its text as it is if some character of it stands for no byte. */
static fv_status token_bytes(const char *s, size_t n, fv_tok_bytes *out) {
    size_t before = out->n;
    for (size_t at = 0, len; at < n; at += len) {
        int32_t cp;
        fv_utf8_next(s + at, n - at, &cp, &len);
        int32_t byte = fv_tok_cp_byte(cp);
        if (byte < 0) {
            out->n = before;
            return fv_tok_put(out, s, n);
        }
        char c = (char)byte;
        FV_TRY(fv_tok_put(out, &c, 1));
    }
    return FV_OK;
}

/* Passes on all whole characters, U+FFFD for each longest beginning of one that is not; an
 * unfinished one at the end stays, or is bad as well when `last`. */
static fv_status drain(fv_detokenizer *d, int32_t k, bool last) {
    fv_tok_bytes *b = &d->stages[k].held;
    size_t at = 0, len;
    int32_t cp;
    while (at < b->n) {
        size_t good = fv_utf8_valid(b->data + at, b->n - at);
        if (good) FV_TRY(pass(d, k + 1, b->data + at, good, true));
        at += good;
        if (at == b->n) break;
        if (fv_utf8_next(b->data + at, b->n - at, &cp, &len) == FV_UTF8_SHORT && !last) break;
        FV_TRY(pass(d, k + 1, "\xEF\xBF\xBD", 3, true));
        at += len;
    }
    if (at) memmove(b->data, b->data + at, b->n - at);
    b->n -= at;
    return FV_OK;
}

static fv_status byte_level(fv_detokenizer *d, int32_t k, const char *s, size_t n) {
    FV_TRY(token_bytes(s, n, &d->stages[k].held));
    return drain(d, k, false);
}

/* Cuts up to `start` characters `a` at the start of a token, up to `stop` at its end. */
static fv_status strip(fv_detokenizer *d, int32_t k, const char *s, size_t n, bool more) {
    const fv_tok_dec *p = &d->tok->dec[k];
    stage *st = &d->stages[k];
    for (size_t at = 0, len; at < n; at += len) {
        int32_t cp;
        fv_utf8_next(s + at, n - at, &cp, &len);
        bool match = len == p->n_a && memcmp(s + at, p->a, len) == 0;
        if (match && !st->inside && st->count < p->start) {
            st->count++;
            continue;
        }
        st->inside = true;
        if (match && st->waiting < p->stop) {
            st->waiting++;
            continue;
        }
        /* If `stop` of them wait already, one more match passes, which equals passing the oldest. */
        for (; !match && st->waiting; st->waiting--) FV_TRY(pass(d, k + 1, p->a, p->n_a, true));
        FV_TRY(pass(d, k + 1, s + at, len, true));
    }
    if (more) return FV_OK;
    st->count = st->waiting = 0;
    st->inside = false;
    return pass(d, k + 1, "", 0, false);
}

static fv_status metaspace(fv_detokenizer *d, int32_t k, const char *s, size_t n, bool more) {
    const fv_tok_dec *p = &d->tok->dec[k];
    stage *st = &d->stages[k];
    bool keep = st->count || p->keep_first;
    st->held.n = 0;
    FV_TRY(fv_tok_replace(s, n, p->a, p->n_a, " ", keep ? 1 : 0, SIZE_MAX, &st->held));
    if (!more) st->count = 1;
    return pass(d, k + 1, st->held.data, st->held.n, more);
}

static fv_status pass(fv_detokenizer *d, int32_t k, const char *s, size_t n, bool more) {
    if (k == d->tok->n_dec) return fv_tok_put(&d->out, s, n);
    switch (d->tok->dec[k].kind) {
    case FV_TOK_DEC_JOIN: return join(d, k, s, n, more);
    case FV_TOK_DEC_REPLACE: return replace(d, k, s, n, more);
    case FV_TOK_DEC_BYTE_FALLBACK: return byte_fallback(d, k, s, n);
    case FV_TOK_DEC_FUSE: return n ? pass(d, k + 1, s, n, true) : FV_OK;
    case FV_TOK_DEC_STRIP: return strip(d, k, s, n, more);
    case FV_TOK_DEC_BYTE_LEVEL: return byte_level(d, k, s, n);
    case FV_TOK_DEC_METASPACE: return metaspace(d, k, s, n, more);
    }
    return FV_OK;
}

fv_status fv_detokenizer_open(const fv_tokenizer *tok, bool skip_special, fv_detokenizer **out) {
    fv_detokenizer *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "out of memory for a detokenizer");
    d->tok = tok;
    d->skip_special = skip_special;
    *out = d;
    return FV_OK;
}

void fv_detokenizer_close(fv_detokenizer *d) {
    if (!d) return;
    for (int32_t k = 0; k < FV_TOK_STEPS_MAX; k++) free(d->stages[k].held.data);
    free(d->out.data);
    free(d);
}

static fv_status push_id(fv_detokenizer *d, int32_t id) {
    const fv_tok_vocab *v = &d->tok->vocab;
    if (id < 0 || id >= v->n || !(v->tokens[id].flags & FV_TOK_USED))
        return FV_FAIL(FV_EINVAL, "id %d is not in the vocabulary", id);
    const fv_tok_entry *t = &v->tokens[id];
    if (d->skip_special && t->flags & FV_TOK_SKIP) return FV_OK;
    return pass(d, 0, t->shown, t->n_shown, false);
}

/* Ends the stages in order, as the next stage may still change the text that one releases. */
static fv_status end_stream(fv_detokenizer *d) {
    for (int32_t k = 0; k < d->tok->n_dec; k++) {
        fv_tok_dec_kind kind = d->tok->dec[k].kind;
        if (kind == FV_TOK_DEC_BYTE_FALLBACK) FV_TRY(end_byte_run(d, k));
        if (kind == FV_TOK_DEC_BYTE_LEVEL) FV_TRY(drain(d, k, true));
        if (kind == FV_TOK_DEC_BYTE_LEVEL || kind == FV_TOK_DEC_FUSE)
            FV_TRY(pass(d, k + 1, "", 0, false));
        d->stages[k].count = 0;
    }
    return FV_OK;
}

static fv_status give(fv_detokenizer *d, fv_status st, const char **text, size_t *bytes) {
    if (st == FV_OK) st = fv_tok_put(&d->out, "", 0);
    if (st != FV_OK) return st;
    *text = d->out.data;
    *bytes = d->out.n;
    return FV_OK;
}

fv_status fv_detokenizer_push(fv_detokenizer *d, int32_t id, const char **text, size_t *bytes) {
    d->out.n = 0;
    return give(d, push_id(d, id), text, bytes);
}

static uint32_t characters(const char *text, size_t n) {
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Characters of a run of bytes before another byte, or before its end, where a bad run has one for each byte. */
static uint32_t run_characters(const fv_tok_bytes *run, bool goes_on) {
    size_t good = run->n ? fv_utf8_valid(run->data, run->n) : 0;
    return good < run->n && !goes_on ? (uint32_t)run->n : characters(run->data, good);
}

uint32_t fv_detokenizer_held(const fv_detokenizer *d, int32_t id) {
    const fv_tok_vocab *v = &d->tok->vocab;
    bool byte = id >= 0 && id < v->n && v->tokens[id].flags & FV_TOK_USED &&
                byte_of(v->tokens[id].shown, v->tokens[id].n_shown) >= 0;
    uint32_t count = 0;
    for (int32_t k = 0; k < d->tok->n_dec; k++) {
        if (d->tok->dec[k].kind == FV_TOK_DEC_BYTE_FALLBACK)
            count += run_characters(&d->stages[k].held, byte);
        if (d->tok->dec[k].kind == FV_TOK_DEC_STRIP) count += (uint32_t)d->stages[k].waiting;
    }
    return count;
}

fv_status fv_detokenizer_flush(fv_detokenizer *d, const char **text, size_t *bytes) {
    d->out.n = 0;
    return give(d, end_stream(d), text, bytes);
}

fv_status fv_tokenizer_decode(const fv_tokenizer *tok, const int32_t *ids, int32_t n,
                              bool skip_special, char **text, size_t *bytes) {
    fv_detokenizer *d;
    FV_TRY(fv_detokenizer_open(tok, skip_special, &d));
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n && st == FV_OK; i++) st = push_id(d, ids[i]);
    if (st == FV_OK) st = end_stream(d);
    if (st == FV_OK) st = fv_tok_put(&d->out, "", 1);
    if (st == FV_OK) {
        *text = d->out.data;
        *bytes = d->out.n - 1;
        d->out = (fv_tok_bytes){0};
    }
    fv_detokenizer_close(d);
    return st;
}

/* Runs one token through one step, without effects that depend on its neighbours. */
static fv_status step_alone(const fv_tok_dec *p, const fv_tok_bytes *in, fv_tok_bytes *out) {
    int byte;
    switch (p->kind) {
    case FV_TOK_DEC_REPLACE:
        return fv_tok_replace(in->data, in->n, p->a, p->n_a, p->b, p->n_b, SIZE_MAX, out);
    case FV_TOK_DEC_METASPACE:
        return fv_tok_replace(in->data, in->n, p->a, p->n_a, " ", 1, SIZE_MAX, out);
    case FV_TOK_DEC_BYTE_LEVEL: return token_bytes(in->data, in->n, out);
    case FV_TOK_DEC_BYTE_FALLBACK:
        byte = byte_of(in->data, in->n);
        if (byte >= 0) return fv_tok_put(out, &(char){(char)byte}, 1);
        break;
    case FV_TOK_DEC_JOIN:
    case FV_TOK_DEC_FUSE:
    case FV_TOK_DEC_STRIP: break;
    }
    return fv_tok_put(out, in->data, in->n);
}

fv_status fv_tokenizer_token_text(const fv_tokenizer *tok, int32_t id, fv_arena *arena, char **text,
                                  size_t *bytes) {
    const fv_tok_vocab *v = &tok->vocab;
    fv_tok_bytes now = {0}, next = {0};
    fv_status st = FV_OK;
    if (id >= 0 && id < v->n && v->tokens[id].flags & FV_TOK_USED)
        st = fv_tok_put(&now, v->tokens[id].shown, v->tokens[id].n_shown);
    for (int32_t k = 0; st == FV_OK && k < tok->n_dec; k++) {
        fv_tok_bytes swap = now;
        next.n = 0;
        st = step_alone(&tok->dec[k], &now, &next);
        now = next;
        next = swap;
    }
    if (st == FV_OK) st = fv_arena_strndup(arena, now.n ? now.data : "", now.n, text);
    if (st == FV_OK) *bytes = now.n;
    free(now.data);
    free(next.data);
    return st;
}
