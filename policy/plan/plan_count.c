/* The bytes of a plan: a bound on keys and values after prefill, before anything has run. Pure
 * function, any thread; the router calls it on its loop, so its time does not grow with the number
 * of tokens: 1 ms at most for 256 layers of a million (bench/bench_plan.c). */
#include <string.h>

#include "packed/text_codes.h"
#include "policy/plan/packed_shape.h"
#include "policy/plan/plan.h"

/* Number of own keys among the `rows` of a head in a layer that borrows keys. */
static int32_t own_keys(const fv_plan *plan, int32_t rows) {
    if (plan->share.text) return 0;
    int32_t text = plan->shape.n_text,
            most = text + (text < plan->select.dup_max ? text : plan->select.dup_max);
    return rows < most ? rows : most;
}

/* Bytes of all rows of a layer, and of its image tokens. */
typedef struct layer_bytes {
    uint64_t held, visual;
} layer_bytes;

/* Bytes of one key or value. */
static uint64_t part_bytes(const fv_plan *plan) {
    return (uint64_t)plan->shape.d_head * (uint64_t)plan->shape.bytes_value;
}

/* Number of rows that a head keeps of those that ran. */
static int32_t rows_kept(const fv_plan *plan, int32_t l, int32_t head, int32_t ran) {
    int32_t kept = plan->select.count ? plan->select.count(plan, l, head) : ran;
    return kept < ran ? kept : ran;
}

/* leads: the layer owns its keys. */
static layer_bytes raw_layer(const fv_plan *plan, int32_t l, bool leads) {
    uint64_t held = 0, visual = 0;
    for (int32_t g = 0; g < plan->shape.n_kv; g++) {
        int32_t n = plan->prune.drop_visual_kv[l] ? 0 : plan->visual[l];
        int32_t kept = rows_kept(plan, l, g, n + plan->shape.n_text);
        int32_t most = n + (n < plan->select.dup_max ? n : plan->select.dup_max);
        int32_t image = kept < most ? kept : most;
        held += (uint64_t)kept + (uint64_t)(leads ? kept : own_keys(plan, kept));
        visual += leads ? 2 * (uint64_t)image : (uint64_t)image;
    }
    return (layer_bytes){part_bytes(plan) * held, part_bytes(plan) * visual};
}

/* ---- text tokens of packed layers --------------------------------------------------------- */

/* Bytes of text as raw rows. */
static uint64_t raw_text(const fv_plan *plan, int32_t text, bool own) {
    uint64_t row = part_bytes(plan) * (uint64_t)plan->shape.n_kv;
    return row * (uint64_t)(text + (own ? text : own_keys(plan, text)));
}

/* Bytes of text as a block of factors, with a resumed answer and `last` more rows raw. */
static uint64_t packed_text(const fv_plan *plan, int32_t text, int32_t last, bool own) {
    const fv_plan_shape *s = &plan->shape;
    fv_dtype dtype = s->bytes_value == 4 ? FV_F32 : FV_BF16;
    uint64_t row = part_bytes(plan) * (uint64_t)s->n_kv;
    bool keys = own || !plan->share.text;
    int32_t n = text - s->n_answer - last;
    return fv_text_keys_bytes(&plan->pack.text_keys, n, s->n_kv, s->d_head, dtype, keys) +
           row * (uint64_t)(text - n) * (keys ? 2 : 1);
}

/* ---- text in codes ------------------------------------------------------------------------ */

static fv_text_width text_width(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    return (fv_text_width){s->n_kv, s->d_head, s->bytes_value == 4 ? FV_F32 : FV_BF16};
}

/* How often T rows of a resumed answer have become due before its last row. */
static int32_t times_due(const fv_plan *plan) {
    int32_t n = plan->shape.n_answer, T = plan->pack.text.again;
    return n > 0 && T > 0 ? (n - 1) / T : 0;
}

/* Returns whether the prompt's last token is an image's; *known: whether that is certain. */
static bool ends_with_image(const fv_plan_shape *s, bool *known) {
    int32_t end = s->n_visual + s->n_text - s->n_answer;
    const fv_token_span *last = s->n_span > 0 ? &s->span[s->n_span - 1] : NULL;
    *known = last != NULL || s->n_visual == 0;
    return last ? last->first + last->n == end : s->n_visual > 0;
}

/* Bytes of `text` rows in codes; `last`: the prompt's last row is among them. */
static uint64_t coded_text(const fv_plan *plan, int32_t text, bool last, bool own) {
    fv_text_width w = text_width(plan);
    int32_t answer = plan->shape.n_answer < text ? plan->shape.n_answer : text;
    bool keys = own || !plan->share.text;
    fv_text_held h =
        fv_text_storage(&plan->pack.text, text - answer + !last, answer, times_due(plan), &w, keys);
    return h.codes + fv_text_row_bytes(h.raw - !last, &w, keys);
}

/* Largest bytes for any number of rows from `from` to `to`. More rows take more bytes, except that
 * so few rows may become codes that they stay raw. */
static uint64_t most_coded_text(const fv_plan *plan, int32_t from, int32_t to, bool own) {
    fv_text_width w = text_width(plan);
    int64_t least = (int64_t)fv_text_min_rows(&plan->pack.text, &w) + FV_TEXT_SINK + FV_TEXT_LAST +
                    plan->shape.n_answer;
    bool known, image = ends_with_image(&plan->shape, &known);
    uint64_t most = coded_text(plan, to, !image, own), other;
    if (!known) {
        other = coded_text(plan, to, image, own);
        most = other > most ? other : most;
    }
    if (from == to && !plan->shape.text_bound) return most;
    other = raw_text(plan, least < to ? (int32_t)least : to, own);
    return other > most ? other : most;
}

/* Largest bytes for any number of text tokens from `from` to `to`. If the number is only a bound,
 * the real one may be too small to be packed. */
static uint64_t text_bytes(const fv_plan *plan, int32_t from, int32_t to, int32_t last, bool own) {
    const fv_plan_shape *s = &plan->shape;
    int32_t raw_rows = s->n_answer + last;
    uint64_t raw = raw_text(plan, to, own);
    if (to <= raw_rows) return raw;
    fv_packs packs =
        fv_text_keys_pack_range(&plan->pack.text_keys, from > raw_rows ? from - raw_rows : 1,
                                to - raw_rows, s->n_kv * s->d_head);
    if (packs == FV_PACKS_NONE) return raw;
    uint64_t packed = packed_text(plan, to, last, own);
    bool some_raw = s->text_bound || from <= raw_rows || packs == FV_PACKS_SOME;
    return some_raw && raw > packed ? raw : packed;
}

/* If the select stage drops rows, the last row may be among them. */
static uint64_t most_text(const fv_plan *plan, int32_t from, int32_t to, bool own) {
    uint64_t most = 0;
    if (plan->pack.text.bits > 0) return most_coded_text(plan, from, to, own);
    for (int32_t last = plan->select.count ? 0 : plan->pack.first_packed;
         last <= plan->pack.first_packed; last++) {
        uint64_t bytes = text_bytes(plan, from, to, last, own);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- packed layers ---------------------------------------------------------------------- */

/* A layer whose heads hold the same `kept` rows; how many of them are image tokens may depend on
 * data. With i image tokens it holds f(i) = image(i) + text(kept - i) bytes. image(i) grows with i,
 * except where rows become so many that they are packed; text(kept - i) falls. */
typedef struct packed_layer {
    const fv_plan *plan;
    int32_t layer, kept;
    bool leads;     /* the layer owns its keys */
    bool with_text; /* f as above; otherwise image(i) only */
} packed_layer;

static int32_t text_of(const packed_layer *x, int32_t image) {
    int32_t text = x->kept - image, n_text = x->plan->shape.n_text;
    return text < n_text ? text : n_text;
}

static uint64_t held_by(const packed_layer *x, int32_t image) {
    uint64_t bytes = fv_plan_packed_bytes(x->plan, x->layer, image, x->leads);
    int32_t text = text_of(x, image);
    return bytes + (x->with_text ? most_text(x->plan, text, text, x->leads) : 0);
}

/* f at the ends of a range of i, and a bound for all i between them. */
typedef struct range {
    int32_t from, to;
    uint64_t at_from, at_to, most;
} range;

static bool packs_text(const fv_plan *plan) {
    return plan->pack.text_keys.rank > 0 || plan->pack.text.bits > 0;
}

static range make_range(const packed_layer *x, int32_t from, uint64_t at_from, int32_t to,
                        uint64_t at_to) {
    const fv_plan *plan = x->plan;
    range r = {from, to, at_from, at_to, at_from > at_to ? at_from : at_to};
    int32_t text = text_of(x, to), text_from = text_of(x, from), n_text = plan->shape.n_text;
    bool bends = text_from == n_text && text < n_text;
    if (to - from <= 1) return r;
    /* raw rows: f is linear */
    if (fv_plan_packs_range(plan, x->layer, from, to) == FV_PACKS_NONE &&
        (!x->with_text || (!packs_text(plan) && !bends)))
        return r;
    r.most = fv_plan_packed_most(plan, x->layer, from, to, x->leads);
    if (x->with_text) r.most += most_text(plan, text, text_from, x->leads);
    return r;
}

/* Largest f in from..to: repeatedly halves the range that may hold it; a bound if ranges are left
 * after HALVINGS steps. */
static uint64_t most_held(const packed_layer *x, int32_t from, int32_t to) {
    enum { HALVINGS = 32 };
    range r[HALVINGS + 1];
    int32_t n = 1;
    uint64_t best;
    r[0] = make_range(x, from, held_by(x, from), to, held_by(x, to));
    best = r[0].at_from > r[0].at_to ? r[0].at_from : r[0].at_to;
    for (int32_t step = 0; step <= HALVINGS; step++) {
        int32_t top = 0;
        for (int32_t i = 1; i < n; i++)
            if (r[i].most > r[top].most) top = i;
        if (r[top].most <= best) return best;
        if (step == HALVINGS) return r[top].most;
        range whole = r[top];
        int32_t middle = whole.from + (whole.to - whole.from) / 2;
        uint64_t at = held_by(x, middle);
        if (at > best) best = at;
        r[top] = make_range(x, whole.from, whole.at_from, middle, at);
        r[n++] = make_range(x, middle, at, whole.to, whole.at_to);
    }
    return best;
}

static layer_bytes count_packed(const fv_plan *plan, int32_t l, bool leads) {
    int32_t n = plan->prune.drop_visual_kv[l] ? 0 : plan->visual[l], n_text = plan->shape.n_text;
    int32_t kept = rows_kept(plan, l, 0, n + n_text), most = kept < n ? kept : n;
    int32_t least = plan->exact_counts && !plan->select.count ? n : 0;
    packed_layer x = {.plan = plan, .layer = l, .kept = kept, .leads = leads};
    uint64_t visual = most_held(&x, least, most);
    x.with_text = true;
    uint64_t held = most_held(&x, least, most);
    return (layer_bytes){held > visual ? held : visual, visual};
}

static layer_bytes count_layer(const fv_plan *plan, int32_t l, bool leads) {
    bool packs = plan->pack.layer[l].rank[FV_PACKED_V] > 0 || packs_text(plan);
    return packs ? count_packed(plan, l, leads) : raw_layer(plan, l, leads);
}

/* Bytes of a layer depend only on this; most layers have the bytes of one counted before. */
typedef struct counted {
    bool valid, forget;
    int32_t visual;
    fv_plan_pack pack;
    layer_bytes bytes;
} counted;

static bool same_pack(const fv_plan_pack *a, const fv_plan_pack *b) {
    return memcmp(a->rank, b->rank, sizeof a->rank) == 0 &&
           memcmp(a->rank2, b->rank2, sizeof a->rank2) == 0 && a->back == b->back &&
           a->group == b->group && a->row_bits == b->row_bits && a->n_own == b->n_own;
}

static layer_bytes count_again(const fv_plan *plan, int32_t l, bool leads, counted last[2]) {
    counted *c = &last[leads];
    if (!c->valid || c->visual != plan->visual[l] || c->forget != plan->prune.drop_visual_kv[l] ||
        !same_pack(&c->pack, &plan->pack.layer[l]))
        *c = (counted){true, plan->prune.drop_visual_kv[l], plan->visual[l], plan->pack.layer[l],
                       count_layer(plan, l, leads)};
    return c->bytes;
}

/* ---- tables of packed layers ------------------------------------------------------------ */

/* Tokens that some layers compress, and their anchor blocks: a span of m positions touches
 * m / size + 2 blocks at most, and each block has a token. */
typedef struct packed_rows {
    uint64_t n, blocks;
    bool anchored, tiles, ranked, observed;
} packed_rows;

static packed_rows rows_in_blocks(const fv_plan *plan, int32_t n, int32_t positions, int32_t runs) {
    int32_t size = plan->pack.block;
    uint64_t most = size > 0 ? (uint64_t)(positions / size) + 2 * (uint64_t)runs : 1;
    return (packed_rows){
        .n = (uint64_t)n, .blocks = most < (uint64_t)n ? most : (uint64_t)n, .anchored = size > 0};
}

/* Table bytes of one layer: rows left in each block, ranks, groups, importance. */
static uint64_t block_tables(const packed_rows *r) {
    uint64_t there = 4 * r->blocks + r->n; /* on a device too */
    return FV_PACKED_BLOCK_FIXED + 2 * there + (r->ranked ? 4 * r->n : 0) +
           (r->observed ? 8 * r->n : 0);
}

/* Table bytes that layers with the same rows share: positions, starts of blocks, anchors, and their
 * angles. */
static uint64_t set_tables(const fv_plan *plan, const packed_rows *r) {
    uint64_t angles = r->tiles ? FV_PACKED_TILE * fv_packed_tiles(r->n) : r->blocks;
    uint64_t there = 4 * (r->n + r->blocks + 1);
    return FV_PACKED_SET_FIXED + 2 * there + 4 * r->blocks +
           (r->anchored ? 4 * angles * (uint64_t)plan->shape.d_head : 0);
}

/* Returns whether each layer chooses its own rows, or their order. */
static bool chooses(const fv_plan *plan, int32_t l) {
    return plan->select.count || plan->evict.share || plan->evict.keep_packed < 1 ||
           plan->evict.accum.kind != FV_ACCUM_NONE || plan->evict.rank_from[l] >= 0;
}

static int32_t visual_packed(const fv_plan *plan, int32_t l) {
    int32_t n = plan->prune.drop_visual_kv[l] ? 0 : plan->visual[l];
    int32_t most = n + (n < plan->select.dup_max ? n : plan->select.dup_max);
    if (plan->pack.layer[l].rank[FV_PACKED_V] == 0) return 0;
    bool some = plan->pack.merged || plan->pack.latent ||
                fv_plan_packs_range(plan, l, 0, most) != FV_PACKS_NONE;
    return some ? most : 0;
}

static bool edits_between(const fv_plan *plan, int32_t from, int32_t to) {
    for (int32_t i = 0; i < plan->prune.n_edit; i++)
        if (plan->prune.edit[i].layer > from && plan->prune.edit[i].layer <= to) return true;
    return false;
}

static uint64_t visual_tables(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    int32_t before = -1, runs = plan->visual_runs;
    uint64_t bytes = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        int32_t n = visual_packed(plan, l);
        if (n == 0) continue;
        packed_rows r = rows_in_blocks(plan, n, s->n_visual, runs);
        r.tiles = plan->pack.coded || plan->pack.merged || plan->pack.latent;
        r.anchored |= plan->pack.latent; /* by each token's own position */
        r.ranked = plan->evict.rank_from[l] >= 0;
        r.observed = true;
        bytes += block_tables(&r);
        if (before < 0 || chooses(plan, l) || plan->visual[before] != plan->visual[l] ||
            edits_between(plan, before, l))
            bytes += set_tables(plan, &r);
        before = l;
    }
    return bytes;
}

static uint64_t text_tables(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    int32_t n = s->n_text + (s->n_text < plan->select.dup_max ? s->n_text : plan->select.dup_max);
    uint64_t sets =
        plan->select.count || plan->evict.accum.kind != FV_ACCUM_NONE ? (uint64_t)s->n_layer : 1;
    if (plan->pack.text.bits > 0)
        return fv_text_tables(n, 1 + times_due(plan), s->n_layer, (int32_t)sets, s->d_head);
    if (plan->pack.text_keys.rank == 0 || n == 0) return 0;
    packed_rows r = rows_in_blocks(plan, n, s->n_text, plan->visual_runs + 1);
    return (uint64_t)s->n_layer * block_tables(&r) + sets * set_tables(plan, &r);
}

/* Bytes of packed layers that are not sent. */
static uint64_t unsent_bytes(const fv_plan *plan) {
    uint64_t bytes = 0;
    for (int32_t l = 0; plan->pack.coded_keys && l < plan->shape.n_layer; l++) {
        fv_packed_shape s =
            fv_plan_packed_shape(plan, l, FV_PACKED_K, visual_packed(plan, l), FV_BF16);
        if (s.n > 0) bytes += fv_packed_bytes(&s) - fv_packed_sent_bytes(&s);
    }
    return bytes;
}

/* ---- the whole plan --------------------------------------------------------------------- */

static void most_of(uint64_t *most, uint64_t with, uint64_t without) {
    if (with > without && with - without > *most) *most = with - without;
}

fv_plan_bytes fv_plan_count(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    int32_t encoded = s->n_encoded ? s->n_encoded : s->n_visual; /* image tokens with `exact` */
    uint64_t rows = (uint64_t)s->n_layer * (uint64_t)s->n_kv * (uint64_t)(encoded + s->n_text);
    layer_bytes sum = {0, 0}, more = {0, 0}; /* more: bytes that a lazy layer adds if it becomes a
                                              * source layer */
    counted last[2] = {{0}};                 /* layers that borrow keys, and layers that do not */
    for (int32_t l = 0; l < s->n_layer; l++) {
        layer_bytes b = count_again(plan, l, plan->share.source_layer[l] == l, last);
        layer_bytes leads = plan->share.split_max ? count_again(plan, l, true, last) : b;
        sum.held += b.held;
        sum.visual += b.visual;
        most_of(&more.held, leads.held, b.held);
        most_of(&more.visual, leads.visual, b.visual);
    }
    uint64_t n = (uint64_t)plan->share.split_max;
    return (fv_plan_bytes){2 * part_bytes(plan) * rows,
                           sum.held + n * more.held,
                           sum.visual + n * more.visual,
                           unsent_bytes(plan),
                           visual_tables(plan) + text_tables(plan),
                           s->state_bytes};
}
