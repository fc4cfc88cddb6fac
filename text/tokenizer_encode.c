/* Text -> ids, as a pipeline of the reference's stages:
 *
 *   text --(repair UTF-8)--> added tokens of the raw text --> normaliser --> added tokens of the
 *   normalised text --> pre-tokeniser steps --> BPE of each word --> ids around it all
 *
 * The pre-tokeniser runs depth first: each step hands its pieces, one by one, to the next step
 * and the last hands words to BPE, so nothing is kept but one buffer per step that rewrites its
 * text. The reference runs it breadth first, over lists of pieces; the order of the words is the
 * same. One encoder per call: any thread. */
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "text/tokenizer_internal.h"

typedef struct encoder {
    const fv_tokenizer *tok;
    const fv_text_marks *marks; /* NULL: none are given */
    fv_text_marks moved;        /* marks of the repaired text */
    fv_tok_bytes moved_user;
    fv_tok_ids ids;
    fv_tok_bpe_scratch bpe;
    fv_tok_unigram_scratch unigram;
    fv_tok_bytes repaired, normalized, tmp;
    fv_tok_bytes step[FV_TOK_STEPS_MAX];
} encoder;

static bool starts_with(const char *s, size_t n, const char *prefix, size_t n_prefix) {
    return n >= n_prefix && memcmp(s, prefix, n_prefix) == 0;
}

/* Runs step k on a piece. `first`: the piece begins where the given text began. */
static fv_status pre_tokenize(encoder *e, int32_t k, const char *s, size_t n, bool first);

static fv_status split(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    for (size_t at = 0, len; at < n; at += len) {
        len = fv_tok_pattern_match(e->tok->pre[k].pattern, s + at, n - at);
        FV_TRY(pre_tokenize(e, k + 1, s + at, len, first && at == 0));
    }
    return FV_OK;
}

/* Splits into matches and the gaps between them, as the reference's iterator does: an empty match right
 * after another match is ignored. */
static fv_status regex_split(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    const fv_tok_pre *p = &e->tok->pre[k];
    size_t done = 0, at = 0, start, end, len;
    int32_t cp;
    for (bool any = false; at <= n; at = end) {
        FV_TRY(fv_tok_regex_find(p->regex, s, n, at, &start, &end));
        if (start == n && end == n) break;
        if (start == end && any && end == done) {
            fv_utf8_next(s + end, n - end, &cp, &len);
            end += len;
            continue;
        }
        if (p->keep_gaps)
            FV_TRY(pre_tokenize(e, k + 1, s + done, start - done, first && done == 0));
        if (p->keep_matches)
            FV_TRY(pre_tokenize(e, k + 1, s + start, end - start, first && start == 0));
        any = true;
        done = end;
    }
    return p->keep_gaps ? pre_tokenize(e, k + 1, s + done, n - done, first && done == 0) : FV_OK;
}

static fv_status digits(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    size_t from = 0, at = 0, len;
    bool was_number = false;
    for (; at < n; at += len) {
        int32_t cp;
        fv_utf8_next(s + at, n - at, &cp, &len);
        bool number = fv_uni_number(cp);
        if (at > from && (number != was_number || (number && e->tok->pre[k].individual))) {
            FV_TRY(pre_tokenize(e, k + 1, s + from, at - from, first && from == 0));
            from = at;
        }
        was_number = number;
    }
    return pre_tokenize(e, k + 1, s + from, n - from, first && from == 0);
}

static fv_status metaspace(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    const fv_tok_pre *p = &e->tok->pre[k];
    fv_tok_bytes *b = &e->step[k];
    bool prepend =
        p->scheme == FV_TOK_PREPEND_ALWAYS || (p->scheme == FV_TOK_PREPEND_FIRST && first);
    b->n = 0;
    if (prepend && s[0] != ' ' && !starts_with(s, n, p->mark, p->n_mark))
        FV_TRY(fv_tok_put(b, p->mark, p->n_mark));
    FV_TRY(fv_tok_replace(s, n, " ", 1, p->mark, p->n_mark, SIZE_MAX, b));
    return pre_tokenize(e, k + 1, b->data, b->n, first);
}

static fv_status cut(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    const fv_tok_pre *p = &e->tok->pre[k];
    for (size_t at = 0, end; at < n; at = end) {
        size_t from = at + (starts_with(s + at, n - at, p->mark, p->n_mark) ? p->n_mark : 0);
        const char *hit = memmem(s + from, n - from, p->mark, p->n_mark);
        end = hit ? (size_t)(hit - s) : n;
        FV_TRY(pre_tokenize(e, k + 1, s + at, end - at, first && at == 0));
    }
    return FV_OK;
}

static fv_status words(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    size_t from = 0, len;
    for (size_t at = 0; at <= n; at += len) {
        int32_t cp = ' ';
        len = 1;
        if (at < n) fv_utf8_next(s + at, n - at, &cp, &len);
        if (!fv_uni_space(cp)) continue;
        FV_TRY(pre_tokenize(e, k + 1, s + from, at - from, first && from == 0));
        from = at + len;
    }
    return FV_OK;
}

static fv_status lead_space(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    if (s[0] == ' ') return pre_tokenize(e, k + 1, s, n, first);
    fv_tok_bytes *b = &e->step[k];
    b->n = 0;
    FV_TRY(fv_tok_put(b, " ", 1));
    FV_TRY(fv_tok_put(b, s, n));
    return pre_tokenize(e, k + 1, b->data, b->n, first);
}

static fv_status byte_level(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    fv_tok_bytes *b = &e->step[k];
    b->n = 0;
    FV_TRY(fv_grow(&b->data, &b->cap, 2 * n, 1));
    for (size_t i = 0; i < n; i++)
        b->n += fv_utf8_put(fv_tok_byte_cp((unsigned char)s[i]), b->data + b->n);
    return pre_tokenize(e, k + 1, b->data, b->n, first);
}

static fv_status pre_tokenize(encoder *e, int32_t k, const char *s, size_t n, bool first) {
    if (n == 0) return FV_OK;
    if (k == e->tok->n_pre && e->tok->unigram)
        return fv_tok_unigram_encode(e->tok, s, n, &e->unigram, &e->ids);
    if (k == e->tok->n_pre) return fv_tok_bpe(e->tok, s, n, &e->bpe, &e->ids);
    switch (e->tok->pre[k].kind) {
    case FV_TOK_PRE_SPLIT: return split(e, k, s, n, first);
    case FV_TOK_PRE_REGEX: return regex_split(e, k, s, n, first);
    case FV_TOK_PRE_DROP: return FV_OK;
    case FV_TOK_PRE_DIGITS: return digits(e, k, s, n, first);
    case FV_TOK_PRE_METASPACE: return metaspace(e, k, s, n, first);
    case FV_TOK_PRE_CUT: return cut(e, k, s, n, first);
    case FV_TOK_PRE_SPACE: return lead_space(e, k, s, n, first);
    case FV_TOK_PRE_WORDS: return words(e, k, s, n, first);
    case FV_TOK_PRE_BYTE_LEVEL: return byte_level(e, k, s, n, first);
    }
    return FV_OK;
}

/* Encodes s[0..n), which begins at byte `at` of the text. */
static fv_status encode_piece(encoder *e, const char *s, size_t n, size_t at, fv_tok_edges edges) {
    const bool first = at == 0;
    FV_TRY(fv_tok_normalize(e->tok, s, n, edges, &e->normalized, &e->tmp));
    const char *text = e->normalized.data;
    fv_text_marks marks;
    fv_tok_added_iter it = {.vocab = &e->tok->vocab, .raw = s, .n_raw = n};
    if (e->marks) {
        marks = (fv_text_marks){.user = e->marks->user + at, .literal = e->marks->literal};
        it.marks = &marks;
    }
    for (int32_t i = 0; i < e->tok->n_norm; i++)
        it.respelled |= e->tok->norm[i].kind != FV_TOK_NORM_PREPEND &&
                        e->tok->norm[i].kind != FV_TOK_NORM_REPLACE;
    fv_tok_piece p;
    while (fv_tok_added_next(&e->tok->normalized, text, e->normalized.n, &it, &p)) {
        if (p.added)
            FV_TRY(fv_tok_put_id(&e->ids, p.added->id));
        else
            FV_TRY(pre_tokenize(e, 0, text + p.start, p.end - p.start, first && p.start == 0));
    }
    return FV_OK;
}

/* Whether a piece is a token that SentencePiece's normalizer sees as part of the text. */
static bool is_inside(const fv_tokenizer *tok, const fv_tok_piece *p) {
    return p->added && tok->vocab.tokens[p->added->id].flags & FV_TOK_INSIDE;
}

static fv_status encode_text(encoder *e, const char *s, size_t n) {
    fv_tok_added_iter it = {.marks = e->marks, .vocab = &e->tok->vocab};
    fv_tok_edges edges = {.start = true, .first = true};
    fv_tok_piece p, next;
    for (bool more = fv_tok_added_next(&e->tok->raw, s, n, &it, &p); more; p = next) {
        more = fv_tok_added_next(&e->tok->raw, s, n, &it, &next);
        const bool inside = is_inside(e->tok, &p);
        edges.end = !more || (next.added && !is_inside(e->tok, &next));
        if (inside && edges.start) {
            fv_tok_edges front = {.start = true, .first = edges.first};
            FV_TRY(encode_piece(e, s + p.start, 0, p.start, front)); /* the space before it */
        }
        if (p.added)
            FV_TRY(fv_tok_put_id(&e->ids, p.added->id));
        else
            FV_TRY(encode_piece(e, s + p.start, p.end - p.start, p.start, edges));
        if (inside && edges.end)
            FV_TRY(encode_piece(e, s + p.end, 0, p.end, (fv_tok_edges){.end = true}));
        edges.start = p.added && !inside;
        edges.first = false;
    }
    return FV_OK;
}

/* Writes U+FFFD for each byte that is part of no character. */
static fv_status repair(const char *s, size_t n, fv_tok_bytes *out) {
    for (size_t at = 0; at < n;) {
        size_t good = fv_utf8_valid(s + at, n - at);
        FV_TRY(fv_tok_put(out, s + at, good));
        at += good;
        if (at == n) break;
        FV_TRY(fv_tok_put(out, "\xEF\xBF\xBD", 3));
        at++;
    }
    return FV_OK;
}

/* Makes the marks of the repaired text: U+FFFD has the mark of the byte that it replaces. */
static fv_status move_marks(encoder *e, const char *s, size_t n) {
    const char *user = (const char *)e->marks->user;
    for (size_t at = 0; at < n; at++) {
        size_t good = fv_utf8_valid(s + at, n - at);
        FV_TRY(fv_tok_put(&e->moved_user, user + at, good));
        at += good;
        if (at == n) break;
        const char three[] = {user[at], user[at], user[at]};
        FV_TRY(fv_tok_put(&e->moved_user, three, 3));
    }
    e->moved = (fv_text_marks){(const uint8_t *)e->moved_user.data, e->marks->literal};
    e->marks = &e->moved;
    return FV_OK;
}

static fv_status encode(encoder *e, const char *text, size_t n, bool add_special) {
    if (n > FV_TOK_TEXT_BYTES_MAX)
        return FV_FAIL(FV_EINVAL, "the text has %zu bytes; the tokenizer's limit is %d", n,
                       FV_TOK_TEXT_BYTES_MAX);
    if (fv_utf8_valid(text, n) != n) {
        FV_TRY(repair(text, n, &e->repaired));
        if (e->marks) FV_TRY(move_marks(e, text, n));
        text = e->repaired.data;
        n = e->repaired.n;
    }
    const fv_tokenizer *tok = e->tok;
    for (int32_t i = 0; i < tok->n_post; i++) {
        if (tok->post[i] < 0)
            FV_TRY(encode_text(e, text, n));
        else if (add_special)
            FV_TRY(fv_tok_put_id(&e->ids, tok->post[i]));
    }
    if (e->ids.n > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "the text has %zu tokens, which is too many", e->ids.n);
    return FV_OK;
}

fv_status fv_tokenizer_encode(const fv_tokenizer *tok, const char *text, size_t n, bool add_special,
                              int32_t **ids, int32_t *n_ids) {
    return fv_tokenizer_encode_marked(tok, text, n, add_special, NULL, ids, n_ids);
}

fv_status fv_tokenizer_encode_marked(const fv_tokenizer *tok, const char *text, size_t n,
                                     bool add_special, const fv_text_marks *marks, int32_t **ids,
                                     int32_t *n_ids) {
    encoder e = {.tok = tok, .marks = marks};
    fv_status st = fv_grow(&e.ids.data, &e.ids.cap, 16, sizeof *e.ids.data);
    if (st == FV_OK) st = encode(&e, text, n, add_special);
    fv_tok_bpe_scratch_fini(&e.bpe);
    fv_tok_unigram_scratch_fini(&e.unigram);
    free(e.repaired.data);
    free(e.moved_user.data);
    free(e.normalized.data);
    free(e.tmp.data);
    for (int32_t i = 0; i < FV_TOK_STEPS_MAX; i++) free(e.step[i].data);
    if (st != FV_OK) {
        free(e.ids.data);
        return st;
    }
    *ids = e.ids.data;
    *n_ids = (int32_t)e.ids.n;
    return FV_OK;
}

/* Returns a text to put before `text` that no token reaches across: the special token that is there, or
 * a letter before white space, or a line's end before anything else. */
static const char *anchor_for(const fv_tokenizer *tok, int32_t before, const char *text, size_t n) {
    const char *special = fv_tokenizer_special(tok, before);
    if (special[0]) return special;
    return n > 0 && strchr(" \t\r\n", text[0]) ? "a" : "\n";
}

/* Gives the ids of anchor and text without the anchor's own; if the anchor's ids would change, those of
 * the text alone. */
static fv_status encode_anchored(const fv_tokenizer *tok, const char *anchor, const char *joined,
                                 size_t n, const fv_text_marks *marks, int32_t **ids,
                                 int32_t *n_ids) {
    size_t n_anchor = strlen(anchor);
    int32_t *own, n_own;
    FV_TRY(fv_tokenizer_encode(tok, anchor, n_anchor, false, &own, &n_own));
    fv_status st = fv_tokenizer_encode_marked(tok, joined, n_anchor + n, false, marks, ids, n_ids);
    if (st == FV_OK && *n_ids >= n_own && !memcmp(*ids, own, (size_t)n_own * sizeof *own)) {
        *n_ids -= n_own;
        memmove(*ids, *ids + n_own, (size_t)*n_ids * sizeof *own);
    } else if (st == FV_OK) {
        fv_text_marks after = marks ? *marks : (fv_text_marks){0};
        if (marks) after.user += n_anchor;
        free(*ids);
        st = fv_tokenizer_encode_marked(tok, joined + n_anchor, n, false, marks ? &after : NULL,
                                        ids, n_ids);
    }
    free(own);
    return st;
}

fv_status fv_tokenizer_encode_after(const fv_tokenizer *tok, int32_t before, const char *text,
                                    size_t n, const fv_text_marks *marks, int32_t **ids,
                                    int32_t *n_ids) {
    const char *anchor = anchor_for(tok, before, text, n);
    fv_tok_bytes joined = {0}, user = {0};
    fv_text_marks moved = {.literal = marks ? marks->literal : -1};
    fv_status st = fv_tok_put(&joined, anchor, strlen(anchor));
    if (st == FV_OK) st = fv_tok_put(&joined, text, n);
    for (size_t i = 0; marks && st == FV_OK && i < strlen(anchor); i++)
        st = fv_tok_put(&user, "", 1);
    if (marks && st == FV_OK) st = fv_tok_put(&user, (const char *)marks->user, n);
    moved.user = (const uint8_t *)user.data;
    if (st == FV_OK)
        st = encode_anchored(tok, anchor, joined.data, n, marks ? &moved : NULL, ids, n_ids);
    free(joined.data);
    free(user.data);
    return st;
}
