/* pack=latent: visual keys and values of a group of layers as coefficients on directions of the
 * checkpoint (packed/latent.h).
 *
 *   rows of all layers of a group, keys before rotation
 *       --z = sum over layers of (K - mean) P_k + (V - mean) P_v--> z [n, R] --nearest level-->
 *       planes of bits, which belong to the first layer's keys
 *   the residual, if it is larger than the calibration expects --own.h--> own directions: their
 *       coefficients in additional planes, the directions themselves in each part
 *
 * ORDER. Tokens are pruned between layers, so each layer holds a subset of the tokens of the layer
 * before. The group's tokens are listed from its last layer to its first, where each layer adds those
 * that are not listed yet, in its own order: so every layer holds the first tokens of the list.
 * Layers whose tokens are no such subsets stay raw. Tokens that layers lack: lacking.h. */
#include "prefill-worker/pack/latents.h"

/* ---- the order of rows ----------------------------------------------------------------------- */

/* Layers of a group that hold tokens. */
typedef struct members {
    int32_t n;
    fv_pack_job *job[FV_PLAN_MAX_LAYERS];
    fv_pack_layer *layer[FV_PLAN_MAX_LAYERS];
} members;

/* Gives places to a layer's tokens that have none. False: the layer lacks a token that has a place. */
static bool give_places(const fv_pack_layer *l, int32_t n_place, int32_t *place, int32_t *n) {
    for (int32_t j = 0; j < l->n; j++) {
        if (l->pos[j] >= n_place) return false;
        if (place[l->pos[j]] < 0) place[l->pos[j]] = (*n)++;
    }
    return *n == l->n;
}

/* Moves rows to their tokens' places. Eviction ranks rows by place, too. */
static fv_status reorder(const int32_t *place, fv_arena *arena, fv_pack_layer *l) {
    int32_t *row, *pos;
    FV_TRY(FV_ARENA_NEW(arena, l->n, row));
    FV_TRY(FV_ARENA_NEW(arena, l->n, pos));
    FV_TRY(FV_ARENA_NEW(arena, l->n, l->rank));
    for (int32_t j = 0; j < l->n; j++) {
        int32_t to = place[l->pos[j]];
        row[to] = l->row[j];
        pos[to] = l->pos[j];
        l->rank[j] = j;
    }
    l->row = row;
    l->pos = pos;
    return FV_OK;
}

/* *nested: every layer's tokens are now the first ones of the first layer's. */
static fv_status nest(const members *m, fv_arena *arena, bool *nested) {
    int32_t n_place = 0, n = 0, *place;
    const fv_pack_layer *first = m->layer[0];
    for (int32_t j = 0; j < first->n; j++)
        if (first->pos[j] >= n_place) n_place = first->pos[j] + 1;
    FV_TRY(FV_ARENA_NEW(arena, n_place, place));
    for (int32_t p = 0; p < n_place; p++) place[p] = -1;
    *nested = true;
    for (int32_t i = m->n - 1; i >= 0 && *nested; i--)
        *nested = give_places(m->layer[i], n_place, place, &n);
    for (int32_t i = 0; i < m->n && *nested; i++) FV_TRY(reorder(place, arena, m->layer[i]));
    return FV_OK;
}

static fv_status find_members(const fv_pack_context *ctx, fv_pack_job *first, members *m,
                              int32_t *held) {
    const fv_plan_pack *of = &ctx->plan->pack.layer[first->layer];
    m->n = 0;
    for (int32_t i = 0; i < of->group; i++) {
        fv_pack_layer *l;
        FV_TRY(fv_pack_layer_order(ctx, &first[i], &l));
        held[i] = l ? l->n : 0;
        if (!l) continue;
        m->job[m->n] = &first[i];
        m->layer[m->n++] = l;
    }
    return FV_OK;
}

static void shape_parts(const fv_pack_context *ctx, const members *m) {
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    uint8_t bits[FV_LATENT_MOST];
    for (int32_t i = 0; i < m->n; i++)
        for (int k = 0; k < 2; k++) {
            int32_t layer = m->job[i]->layer;
            fv_packed_shape *shape = &m->layer[i]->shape[k];
            *shape =
                fv_plan_packed_shape(ctx->plan, layer, (fv_packed_kind)k, m->layer[i]->n, s->dtype);
            int32_t n_dir = fv_latent_bits(&s->latent[layer], shape, bits);
            shape->latent.n_low = fv_plan_latent_rank2(ctx->plan, (fv_packed_kind)k, n_dir);
        }
}

/* Allocates parts for as many own directions as the plan allows. */
static fv_status take_parts(const fv_pack_context *ctx, const members *m) {
    for (int32_t i = 0; i < 2 * m->n; i++) {
        fv_pack_layer *l = m->layer[i / 2];
        size_t bytes = fv_packed_sent_bytes(&l->shape[i % 2]);
        if (bytes) FV_TRY(fv_arena_alloc(ctx->scratch, bytes, &l->data[i % 2]));
    }
    return FV_OK;
}

/* Prepares a whole group when its last layer begins, as only then all rows are there. */
static fv_status begin(const fv_pack_context *ctx, fv_pack_job *job) {
    const fv_plan_pack *of = &ctx->plan->pack.layer[job->layer];
    fv_pack_job *first = of->back ? job->first : job;
    int32_t held[FV_PLAN_MAX_LAYERS];
    bool nested;
    members m;
    if (of->back < of->group - 1 || !first) return FV_OK;
    FV_TRY(find_members(ctx, first, &m, held));
    if (held[0] == 0 || !fv_plan_latents_pay(ctx->plan, first->layer, held)) return FV_OK;
    FV_TRY(nest(&m, ctx->scratch, &nested));
    if (!nested) return FV_OK;
    shape_parts(ctx, &m);
    for (int32_t i = 0; i < m.n; i++) m.job[i]->state = m.layer[i];
    FV_TRY(take_parts(ctx, &m));
    first->part[FV_PACKED_K] = true; /* stands for the whole group */
    return FV_OK;
}

/* ---- a group --------------------------------------------------------------------------------- */

/* Number of tokens of the next layer in the group that holds any; 0: there is none. */
static int32_t held_after(const fv_pack_job *first, int32_t i, int32_t group) {
    while (++i < group)
        if (first[i].state) return ((const fv_pack_layer *)first[i].state)->n;
    return 0;
}

/* Number of layers that share the directions of this one, itself included. */
static int32_t sharing(const fv_plan_shape *s, int32_t layer) {
    int32_t from = layer - layer % s->latent_layers, left = s->n_layer - from;
    return left < s->latent_layers ? left : s->latent_layers;
}

/* gram [n_dir, n_dir] += B P of a layer. */
static void add_passed(const fv_latents *x, int32_t i, double *gram) {
    size_t n = (size_t)x->n_dir, R = (size_t)x->R;
    for (int k = 0; k < 2; k++)
        for (size_t r = 0; r < n; r++)
            for (size_t c = 0; c < n; c++)
                gram[r * n + c] += (double)x->layer[i].measure[k].passed[r * R + c];
}

/* Prepares estimates for tokens that some layers lack: those dropped before the last layer, or all tokens
 * if a layer holds none. */
static fv_status find_lacking(const fv_pack_context *ctx, fv_latents *x) {
    int32_t due = sharing(&ctx->plan->shape, x->first->layer);
    bool lacking = held_after(x->first, x->group - 2, x->group) < x->n || x->group < due;
    double *gram;
    for (int32_t i = 0; i < x->group; i++) lacking |= !x->first[i].state;
    if (!lacking) return FV_OK;
    FV_TRY(FV_ARENA_NEW(ctx->scratch, (size_t)x->n_dir * (size_t)x->n_dir, gram));
    for (int32_t i = 0; i < x->group; i++) {
        const fv_pack_layer *l = x->first[i].state;
        if (!l) continue;
        add_passed(x, i, gram);
        if (--due > 0 && held_after(x->first, i, x->group) < l->n)
            FV_TRY(
                fv_lacking_init(ctx->scratch, x->layer->deviation, gram, x->n_dir, &x->lacking[i]));
    }
    return FV_OK;
}

/* Parts that borrow everything have no memory. */
static void drop_empty(fv_latents *x) {
    for (int32_t i = 0; i < 2 * x->group; i++) {
        fv_pack_layer *l = x->first[i / 2].state;
        if (l && fv_packed_sent_bytes(&l->shape[i % 2]) == 0) l->data[i % 2] = NULL;
    }
}

/* Row of the attention sink, the first token of a prompt that begins with an image; -1: none. */
static int32_t exact_row(const fv_pack_layer *l) {
    for (int32_t j = 0; l->shape[0].latent.exact && j < l->n; j++)
        if (l->pos[j] == 0) return j;
    return -1;
}

static fv_status code_group(const fv_pack_context *ctx, fv_pack_job *first) {
    fv_pack_layer *lead = first->state;
    const fv_latent_layer *layer = &fv_kv_get_shape(ctx->kv)->latent[first->layer];
    uint8_t bits[FV_LATENT_MOST];
    fv_latents x = {.exact = exact_row(lead),
                    .first = first,
                    .group = ctx->plan->pack.layer[first->layer].group,
                    .layer = layer,
                    .n = lead->n,
                    .R = layer->n_dir,
                    .n_dir = fv_latent_bits(layer, &lead->shape[0], bits)};
    int32_t most = lead->shape[0].latent.n_own;
    size_t all = (size_t)x.n * (size_t)x.R;
    FV_TRY(FV_ARENA_NEW(ctx->scratch, all, x.raw));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, all, x.z));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, x.group, x.lacking));
    FV_TRY(FV_ARENA_NEW(ctx->scratch, 2 * x.group, x.weight));
    FV_TRY(find_lacking(ctx, &x));
    fv_latents_set_own(&x, 0);
    FV_TRY(fv_latents_code(ctx, &x));
    if (most > 0) FV_TRY(fv_latents_add_own(ctx, &x, most));
    drop_empty(&x);
    return FV_OK;
}

/* Codes groups: each part stands for its whole group. */
static fv_status parts(const fv_pack_context *ctx, const fv_pack_part *part, int32_t n) {
    for (int32_t i = 0; i < n; i++) FV_TRY(code_group(ctx, part[i].job));
    return FV_OK;
}

const fv_pack_method fv_pack_latent = {.begin = begin,
                                       .parts = parts,
                                       .end = fv_pack_layer_end,
                                       .none = "no group of layers has enough visual tokens for "
                                               "coefficients to be smaller than the KV itself"};
