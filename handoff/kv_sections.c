/* Serializes the payloads of sections without rows, field by field, and checks compatibility. Any thread. */
#include "handoff/kv_sections.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "grammar/grammar.h"
#include "handoff/bytes.h"

enum { HELLO_FIXED = 44, PROMPT_FIXED = 56, BIAS_BYTES = 8, BIAS_MAX = 1 << 16 };

/* ---- compatibility --------------------------------------------------------------------- */

fv_status fv_compat_make(const fv_compat_fields *f, fv_compat *out) {
    if (f->n_layer < 1 || f->n_layer > UINT16_MAX || f->n_kv < 1 || f->n_kv > UINT16_MAX ||
        f->d_head < 1 || fv_wire_dtype_named(f->dtype) == FV_WIRE_NONE || strchr(f->model, '\n'))
        return FV_FAIL(FV_EINVAL,
                       "a KV packet cannot hold %d layers of %d KV heads x %d numbers in %s",
                       f->n_layer, f->n_kv, f->d_head, f->dtype);
    char latent[17] = "none";
    if (f->latent) snprintf(latent, sizeof latent, "%016llx", (unsigned long long)f->latent);
    int n = snprintf(out->text, sizeof out->text,
                     "protocol=%d\nmodel=%s\nlayers=%d\nkv_heads=%d\nhead_dim=%d\ndtype=%s\n"
                     "layout=head,key,value\nrows=raw.1,packed.5,lead.1,tally.1\ncompute=%s\n"
                     "latent=%s\ngrammar=%d\n",
                     FV_WIRE_PROTOCOL, f->model, f->n_layer, f->n_kv, f->d_head, f->dtype,
                     f->compute, latent, FV_GRAMMAR_VERSION);
    if (n < 0 || (size_t)n >= sizeof out->text)
        return FV_FAIL(FV_EINVAL, "the model's fingerprint is too long: %zu characters",
                       strlen(f->model));
    out->hash = XXH64(out->text, (size_t)n, 0);
    return FV_OK;
}

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* The line of `text` that begins with the same key as `line`, or "" at its end. */
static const char *line_like(const char *text, const char *line) {
    size_t key = strcspn(line, "=\n") + 1;
    while (*text && strncmp(text, line, key) != 0) text = next_line(text);
    return text;
}

static const char *value_of(const char *line) {
    if (*line == '\0') return "unknown";
    line += strcspn(line, "=\n");
    return line + (*line == '=');
}

static bool same_line(const char *a, const char *b) {
    size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && memcmp(a, b, n) == 0;
}

/* Whether two fingerprints are of the same checkpoint with other adapters (model/engine.h). */
static bool other_adapters(const char *a, const char *b) {
    static const char mark[] = "+lora.";
    size_t n[2] = {strcspn(a, "\n"), strcspn(b, "\n")};
    const char *at[2] = {memmem(a, n[0], mark, sizeof mark - 1),
                         memmem(b, n[1], mark, sizeof mark - 1)};
    if (at[0]) n[0] = (size_t)(at[0] - a);
    if (at[1]) n[1] = (size_t)(at[1] - b);
    return (at[0] || at[1]) && n[0] == n[1] && memcmp(a, b, n[0]) == 0;
}

/* The option that sets a field, for messages; a and b are its values. */
static const char *option_of(const char *line, const char *a, const char *b) {
    return strncmp(line, "compute=", 8) == 0                         ? " (--compute, --isa)"
           : strncmp(line, "dtype=", 6) == 0                         ? " (--kv-dtype)"
           : strncmp(line, "model=", 6) == 0 && other_adapters(a, b) ? " (--adapter)"
                                                                     : "";
}

fv_status fv_compat_check(const fv_compat *mine, const fv_compat *theirs) {
    if (mine->hash == theirs->hash) return FV_OK;
    const char *lists[2] = {mine->text, theirs->text};
    for (int side = 0; side < 2; side++)
        for (const char *line = lists[side]; *line; line = next_line(line)) {
            const char *other = line_like(lists[1 - side], line);
            if (same_line(line, other)) continue;
            const char *ours = value_of(side == 0 ? line : other);
            const char *yours = value_of(side == 0 ? other : line);
            return FV_REFUSE(INCOMPATIBLE, "%.*s is %.*s, and must be %.*s%s",
                             (int)strcspn(line, "=\n"), line, (int)strcspn(yours, "\n"), yours,
                             (int)strcspn(ours, "\n"), ours, option_of(line, ours, yours));
        }
    return FV_REFUSE(INCOMPATIBLE,
                     "the compatibility hash %016llx does not match its lines: the sender is "
                     "damaged or of another version",
                     (unsigned long long)theirs->hash);
}

/* ---- HELO ------------------------------------------------------------------------------ */

size_t fv_hello_bytes(const fv_hello *h) { return HELLO_FIXED + strlen(h->policy); }

void fv_hello_put(const fv_hello *h, uint8_t *out) {
    fv_put_u64(&out, h->compat.hash);
    fv_put_u64(&out, h->bytes_visual);
    fv_put_u64(&out, h->bytes_tables);
    fv_put_u32(&out, h->n_text);
    fv_put_u32(&out, h->n_visual);
    fv_put_u32(&out, h->max_tokens);
    fv_put_u32(&out, h->n_reused_text);
    fv_put_u32(&out, (uint32_t)strlen(h->policy));
    fv_put_bytes(&out, h->policy, strlen(h->policy));
}

fv_status fv_hello_get(const uint8_t *p, size_t n, fv_hello *out, size_t *n_policy) {
    if (n < HELLO_FIXED) return FV_REFUSE(MALFORMED, "section HELO has %zu bytes", n);
    fv_hello h = {0};
    h.compat.hash = fv_get_u64(&p);
    h.bytes_visual = fv_get_u64(&p);
    h.bytes_tables = fv_get_u64(&p);
    h.n_text = fv_get_u32(&p);
    h.n_visual = fv_get_u32(&p);
    h.max_tokens = fv_get_u32(&p);
    h.n_reused_text = fv_get_u32(&p);
    uint32_t policy = fv_get_u32(&p);
    if (policy != n - HELLO_FIXED)
        return FV_REFUSE(MALFORMED, "section HELO has %zu bytes with a policy of %u", n, policy);
    h.policy = (const char *)p;
    *n_policy = policy;
    *out = h;
    return FV_OK;
}

/* ---- LEAD ------------------------------------------------------------------------------ */

void fv_wire_lead_put(const fv_wire_lead *w, uint8_t *out) {
    fv_put_u32(&out, w->source_layer);
    fv_put_u32(&out, w->text);
}

fv_status fv_wire_lead_get(const uint8_t *p, fv_wire_lead *out) {
    fv_wire_lead w = {.source_layer = fv_get_u32(&p)};
    uint32_t text = fv_get_u32(&p);
    if (text > 1)
        return FV_REFUSE(MALFORMED, "section LEAD: the flag for text keys is %u, expected 0 or 1",
                         text);
    w.text = text;
    *out = w;
    return FV_OK;
}

/* ---- PRMT ------------------------------------------------------------------------------ */

size_t fv_wire_prompt_bytes(uint32_t n, int32_t n_bias) {
    return PROMPT_FIXED + (size_t)n * 5 + (size_t)n_bias * BIAS_BYTES;
}

void fv_wire_prompt_put(const fv_wire_prompt *p, uint8_t *out) {
    const fv_wire_sampling *s = &p->sampling;
    fv_put_u32(&out, p->n);
    fv_put_u32(&out, (uint32_t)p->next);
    fv_put_f32(&out, s->repetition_penalty);
    fv_put_f32(&out, s->frequency_penalty);
    fv_put_f32(&out, s->presence_penalty);
    fv_put_f32(&out, s->temperature);
    fv_put_f32(&out, s->min_p);
    fv_put_f32(&out, s->top_p);
    fv_put_u32(&out, (uint32_t)s->top_k);
    fv_put_u32(&out, (uint32_t)s->n_logprobs);
    fv_put_u32(&out, (uint32_t)s->n_bias);
    fv_put_u32(&out, 0);
    fv_put_u64(&out, s->seed);
    if (s->n_bias) fv_put_bytes(&out, s->bias, (size_t)s->n_bias * BIAS_BYTES);
    fv_put_bytes(&out, p->ids, (size_t)p->n * 4);
    fv_put_bytes(&out, p->seg, p->n);
}

fv_status fv_wire_prompt_get(const uint8_t *p, size_t n, fv_wire_prompt *out) {
    if (n < PROMPT_FIXED) return FV_REFUSE(MALFORMED, "section PRMT has %zu bytes", n);
    fv_wire_prompt w = {0};
    w.n = fv_get_u32(&p);
    w.next = (int32_t)fv_get_u32(&p);
    w.sampling.repetition_penalty = fv_get_f32(&p);
    w.sampling.frequency_penalty = fv_get_f32(&p);
    w.sampling.presence_penalty = fv_get_f32(&p);
    w.sampling.temperature = fv_get_f32(&p);
    w.sampling.min_p = fv_get_f32(&p);
    w.sampling.top_p = fv_get_f32(&p);
    w.sampling.top_k = (int32_t)fv_get_u32(&p);
    w.sampling.n_logprobs = (int32_t)fv_get_u32(&p);
    uint32_t n_bias = fv_get_u32(&p), reserved = fv_get_u32(&p);
    w.sampling.seed = fv_get_u64(&p);
    if (reserved || n_bias > BIAS_MAX || n != fv_wire_prompt_bytes(w.n, (int32_t)n_bias))
        return FV_REFUSE(MALFORMED, "section PRMT has %zu bytes for %u tokens", n, w.n);
    w.sampling.n_bias = (int32_t)n_bias;
    w.sampling.bias = p;
    p += n_bias * BIAS_BYTES;
    w.ids = p;
    w.seg = p + (size_t)w.n * 4;
    *out = w;
    return FV_OK;
}

/* ---- GRDT ------------------------------------------------------------------------------ */

size_t fv_wire_grids_bytes(uint32_t n_grid) { return 4 + (size_t)n_grid * 20; }

void fv_wire_grids_put(const fv_rope_map *m, uint8_t *out) {
    fv_put_u32(&out, (uint32_t)m->n);
    for (int32_t i = 0; i < m->n_grid; i++) {
        const fv_rope_grid *g = &m->grid[i];
        fv_put_bytes(&out, (const int32_t[]){g->first, g->t, g->h, g->w}, 16);
        fv_put_f32(&out, g->step);
    }
}

fv_status fv_wire_grids_get(const uint8_t *p, uint32_t n_grid, uint32_t most, fv_rope_grid *grid,
                            fv_rope_map *out) {
    uint32_t n = fv_get_u32(&p);
    for (uint32_t i = 0; i < n_grid; i++) {
        int32_t at[4];
        fv_get_bytes(&p, at, sizeof at);
        grid[i] = (fv_rope_grid){.first = at[0], .t = at[1], .h = at[2], .w = at[3]};
        grid[i].step = fv_get_f32(&p);
    }
    if (n > most)
        return FV_REFUSE(MALFORMED, "section GRDT is for %u prompt tokens, but the prompt has %u",
                         n, most);
    if (fv_rope_map_make(grid, (int32_t)n_grid, (int32_t)n, out) == FV_OK) return FV_OK;
    return FV_REFUSE(MALFORMED, "section GRDT: %s", fv_last_error());
}

/* ---- PACK ------------------------------------------------------------------------------ */

enum {
    PACKED_FIXED = 52,
    PACKED_ANCHORED = 1,
    PACKED_IMPORTANCE = 2,
    PACKED_RANKED = 4,
    PACKED_CODED = 8,
    PACKED_MERGED = 16,
    PACKED_LATENT = 32,
    PACKED_EXACT = 64,
    PACKED_FLAGS = 127
};

size_t fv_wire_packed_bytes(uint32_t n, uint32_t n_anchor) {
    return PACKED_FIXED + 4 * (2 * ((size_t)n + (size_t)n_anchor) + 1);
}

static void put_or_zero(uint8_t **out, const void *from, uint32_t n) {
    if (from)
        fv_put_bytes(out, from, (size_t)n * 4);
    else
        for (uint32_t i = 0; i < n; i++) fv_put_u32(out, 0);
}

/* Writes anchors and ranks even if there are none, so that the length follows from two numbers. */
void fv_wire_packed_put(const fv_wire_packed *w, uint8_t *out) {
    fv_put_u32(&out, w->n);
    fv_put_u32(&out, w->n_anchor);
    fv_put_u32(&out, w->source_layer);
    fv_put_u32(&out, (w->anchored ? PACKED_ANCHORED : 0) | (w->importance ? PACKED_IMPORTANCE : 0) |
                         (w->ranked ? PACKED_RANKED : 0) | (w->coded ? PACKED_CODED : 0) |
                         (w->merged ? PACKED_MERGED : 0) | (w->latent ? PACKED_LATENT : 0) |
                         (w->exact ? PACKED_EXACT : 0));
    for (int k = 0; k < 2; k++) {
        fv_put_u32(&out, w->part[k].rank);
        fv_put_u32(&out, w->part[k].rank2);
        fv_put_u32(&out, w->part[k].bits);
        fv_put_u32(&out, w->part[k].n_outlier);
    }
    fv_put_u32(&out, w->n_source);
    fv_put_bytes(&out, w->first, ((size_t)w->n_anchor + 1) * 4);
    put_or_zero(&out, w->anchored ? w->anchor : NULL, w->n_anchor);
    fv_put_bytes(&out, w->pos, (size_t)w->n * 4);
    put_or_zero(&out, w->ranked ? w->rank : NULL, w->n);
}

fv_status fv_wire_packed_get(const uint8_t *p, size_t n, fv_wire_packed *out) {
    if (n < PACKED_FIXED) return FV_REFUSE(MALFORMED, "section PACK has %zu bytes", n);
    const uint32_t FORMS = PACKED_CODED | PACKED_MERGED | PACKED_LATENT; /* at most one */
    fv_wire_packed w = {0};
    w.n = fv_get_u32(&p);
    w.n_anchor = fv_get_u32(&p);
    w.source_layer = fv_get_u32(&p);
    uint32_t flags = fv_get_u32(&p);
    for (int k = 0; k < 2; k++) {
        w.part[k].rank = fv_get_u32(&p);
        w.part[k].rank2 = fv_get_u32(&p);
        w.part[k].bits = fv_get_u32(&p);
        w.part[k].n_outlier = fv_get_u32(&p);
    }
    w.n_source = fv_get_u32(&p);
    if (n != fv_wire_packed_bytes(w.n, w.n_anchor) || flags & ~(uint32_t)PACKED_FLAGS ||
        (flags & FORMS) & ((flags & FORMS) - 1) ||
        (flags & (PACKED_EXACT | PACKED_LATENT)) == PACKED_EXACT)
        return FV_REFUSE(MALFORMED, "section PACK has %zu bytes for %u tokens in %u blocks", n, w.n,
                         w.n_anchor);
    w.anchored = flags & PACKED_ANCHORED;
    w.importance = flags & PACKED_IMPORTANCE;
    w.first = p;
    w.anchor = p + ((size_t)w.n_anchor + 1) * 4;
    w.ranked = flags & PACKED_RANKED;
    w.coded = flags & PACKED_CODED;
    w.merged = flags & PACKED_MERGED;
    w.latent = flags & PACKED_LATENT;
    w.exact = flags & PACKED_EXACT;
    w.pos = p + (2 * (size_t)w.n_anchor + 1) * 4;
    w.rank = p + (2 * (size_t)w.n_anchor + 1 + w.n) * 4;
    *out = w;
    return FV_OK;
}

/* ---- TOKN ------------------------------------------------------------------------------ */

void fv_first_token_put(const fv_first_token *t, uint8_t *out) {
    fv_put_u32(&out, (uint32_t)t->id);
    fv_put_f32(&out, t->logprob);
    fv_put_u64(&out, t->step);
}

fv_first_token fv_first_token_get(const uint8_t *p) {
    fv_first_token t;
    t.id = (int32_t)fv_get_u32(&p);
    t.logprob = fv_get_f32(&p);
    t.step = fv_get_u64(&p);
    return t;
}
