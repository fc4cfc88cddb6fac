/* Cuts a prompt into segments and hashes them. The fields of a key are fixed in number and order, or preceded by
 * their number, and fv_digest separates them. */
#include "kv/cache/chain.h"

#include "kernels/ops.h"
#include "kv/kv.h"

_Static_assert(FV_KV_BLOCK == 64, "fv_chain_links_max counts with it");

/* The state of the cutting: the rows before `end` are in links. */
typedef struct cutter {
    const fv_chain_prompt *prompt;
    int32_t end, n_text, n_visual;
    int32_t run; /* next visual run */
    fv_chain_key key;
} cutter;

static fv_status hash_base(const fv_chain_base *b, fv_chain_key *out) {
    fv_digest d;
    fv_digest_begin(&d, "fovea chain base v1");
    fv_digest_text(&d, b->compat);
    fv_digest_text(&d, b->compute);
    fv_digest_text(&d, b->kv_dtype);
    fv_digest_text(&d, b->stages);
    fv_digest_text(&d, b->tenant);
    fv_digest_text(&d, b->salt);
    return fv_digest_end(&d, out->bytes);
}

static void hash_positions(fv_digest *d, const fv_rope_map *map, int32_t first, int32_t end) {
    fv_digest_number(d, end - first);
    for (int32_t i = first; i < end; i++) {
        fv_rope_pos p = fv_rope_map_at(map, i);
        fv_digest_numbers(d, (const int32_t[]){p.t, p.h, p.w}, 3);
    }
}

/* Hashes text rows up to the next image, the end of a page, or the prompt's end. */
static void hash_text(cutter *c, fv_digest *d) {
    const fv_chain_prompt *p = c->prompt;
    int32_t stop = c->run < p->n_visual ? p->visual[c->run].first : p->n;
    int32_t page = c->end + FV_KV_BLOCK - c->n_text % FV_KV_BLOCK, first = c->end;
    c->end = page < stop ? page : stop;
    c->n_text += c->end - first;
    fv_digest_text(d, "text");
    fv_digest_numbers(d, p->ids + first, (size_t)(c->end - first));
    hash_positions(d, &p->rope_map, first, c->end);
}

/* Hashes a visual run, with those that follow at once if images are seen whole. */
static void hash_visual(cutter *c, fv_digest *d) {
    const fv_chain_prompt *p = c->prompt;
    int32_t first = c->end;
    fv_digest_text(d, "visual");
    do {
        const fv_chain_visual *v = &p->visual[c->run++];
        fv_digest_number(d, v->n);
        fv_digest_bytes(d, v->digest, sizeof v->digest);
        c->end += v->n;
    } while (p->image_whole && c->run < p->n_visual && p->visual[c->run].first == c->end);
    c->n_visual += c->end - first;
    hash_positions(d, &p->rope_map, first, c->end);
}

static fv_status next_link(cutter *c, fv_chain_link *out) {
    const fv_chain_prompt *p = c->prompt;
    fv_digest d;
    fv_digest_begin(&d, "fovea chain link v1");
    fv_digest_bytes(&d, c->key.bytes, sizeof c->key.bytes);
    if (c->run < p->n_visual && p->visual[c->run].first == c->end)
        hash_visual(c, &d);
    else
        hash_text(c, &d);
    FV_TRY(fv_digest_end(&d, c->key.bytes));
    *out = (fv_chain_link){c->key, c->end, c->n_text, c->n_visual, 0};
    return FV_OK;
}

static fv_status check_runs(const fv_chain_prompt *p) {
    int32_t end = 0;
    for (int32_t i = 0; i < p->n_visual; i++) {
        const fv_chain_visual *v = &p->visual[i];
        if (v->first < end || v->n < 1 || v->first > p->n || v->n > p->n - v->first)
            return FV_FAIL(FV_EINVAL,
                           "visual rows %d: %d from row %d on overlap those before, or are not "
                           "within the prompt's %d rows",
                           i, v->n, v->first, p->n);
        end = v->first + v->n;
    }
    return FV_OK;
}

fv_status fv_chain_make(const fv_chain_base *base, const fv_chain_prompt *prompt,
                        fv_chain_link *link, int32_t *n_link) {
    cutter c = {.prompt = prompt};
    int32_t n = 0;
    FV_TRY(check_runs(prompt));
    FV_TRY(hash_base(base, &c.key));
    while (c.end < prompt->n) FV_TRY(next_link(&c, &link[n++]));
    *n_link = n;
    return FV_OK;
}

fv_status fv_chain_continue(const fv_chain_prompt *prompt, const fv_chain_link *from,
                            fv_chain_link *link, int32_t *n_link) {
    const fv_chain_prompt text = {.n = prompt->n, .ids = prompt->ids, .rope_map = prompt->rope_map};
    cutter c = {.prompt = &text,
                .end = from->end,
                .n_text = from->n_text,
                .n_visual = from->n_visual,
                .key = from->key};
    int32_t n = 0;
    while (c.end < text.n) FV_TRY(next_link(&c, &link[n++]));
    *n_link = n;
    return FV_OK;
}

int32_t fv_chain_common(const fv_chain_link *a, int32_t n_a, const fv_chain_link *b, int32_t n_b) {
    int32_t n = 0, end = n_a < n_b ? n_a : n_b;
    while (n < end) { /* a key in common means that all before it are */
        int32_t middle = n + (end - n) / 2;
        if (fv_chain_key_equal(&a[middle].key, &b[middle].key))
            n = middle + 1;
        else
            end = middle;
    }
    return n;
}
