/* Runs a select method over every layer, segment and head, and shortens the store. The table of
 * methods is made from methods.def: a row without its file does not link. */
#include "prefill-worker/select/select.h"

#include <assert.h>
#include <string.h>

#include "policy/stage_rows.h"
#include "prefill-worker/select/select_rows.h"

static const fv_select_method *const methods[] = {
#undef SELECT
#define SELECT(name) [FV_METHOD_SELECT_##name] = &fv_select_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

bool fv_select_needs_attention(const fv_plan *plan, int32_t layer) {
    if (!plan->select.count || plan->select.window.rows == 0) return false;
    int32_t rows = plan->visual[layer] + plan->shape.n_text;
    for (int32_t g = 0; g < plan->shape.n_kv; g++)
        if (plan->select.count(plan, layer, g) < rows) return true;
    return false;
}

/* Layers [first, end), which share keys of image tokens, and with `text` of text tokens too. */
typedef struct block {
    int32_t first, end;
    bool text;
} block;

static block block_at(const fv_kv *kv, int32_t layer, int32_t n_layer) {
    block b = {.first = layer, .end = layer + 1};
    while (b.end < n_layer && fv_kv_source_layer(kv, b.end) == layer) b.end++;
    b.text = b.end - layer > 1 && fv_kv_borrows(kv, layer + 1, FV_SEG_TEXT);
    return b;
}

/* Attention of a layer's window tokens of segment `from` to n tokens of `to`, for the context's
 * head. */
static fv_status reduce_heads(const fv_select_sums *sums, const fv_select_context *ctx, int from,
                              int to, fv_arena *arena, float **out) {
    size_t line = (size_t)sums->n_key;
    const float *p = sums->p + (size_t)from * line + (to == FV_SEG_TEXT ? (size_t)sums->text : 0);
    FV_TRY(FV_ARENA_NEW(arena, ctx->n[to], *out));
    for (int32_t j = 0; j < ctx->n[to]; j++)
        (*out)[j] = fv_select_reduce(ctx, p + j, FV_N_SEG * line);
    return FV_OK;
}

/* Averages over the captured layers of a block, in order, in double. */
static fv_status reduce_block(const fv_select_sums *sums, block b, const fv_select_context *ctx,
                              int from, int to, fv_arena *arena, float **out) {
    int32_t asked = 0, n = ctx->n[to];
    double *sum;
    FV_TRY(FV_ARENA_NEW(arena, n, sum));
    for (int32_t l = b.first; l < b.end; l++) {
        if (!sums[l].p) continue;
        FV_TRY(reduce_heads(&sums[l], ctx, from, to, arena, out));
        for (int32_t j = 0; j < n; j++) sum[j] += (double)(*out)[j];
        asked++;
    }
    assert(asked > 0);
    for (int32_t j = 0; j < n; j++) (*out)[j] = (float)(sum[j] / asked);
    return FV_OK;
}

static fv_status set_block_attention(const fv_select_sums *sums, block b, fv_arena *arena,
                                     fv_select_context *ctx) {
    float *attention;
    for (int from = 0; from < FV_N_SEG; from++)
        for (int to = 0; to < FV_N_SEG; to++) {
            FV_TRY(reduce_block(sums, b, ctx, from, to, arena, &attention));
            ctx->attention[from][to] = attention;
        }
    return FV_OK;
}

static fv_status set_own_attention(const fv_select_sums *sums, fv_arena *arena,
                                   fv_select_context *ctx) {
    float *attention;
    for (int from = 0; from < FV_N_SEG; from++) {
        FV_TRY(reduce_heads(sums, ctx, from, FV_SEG_TEXT, arena, &attention));
        ctx->own[from] = attention;
    }
    return FV_OK;
}

/* The entries that a layer of a block keeps. */
typedef struct layer_choice {
    int32_t **kept[FV_N_SEG], *n_kept[FV_N_SEG]; /* [Hkv] */
} layer_choice;

static fv_status ask_method(const fv_select_method *method, const fv_plan *plan,
                            const fv_select_context *ctx, fv_arena *arena, layer_choice *out) {
    int32_t *kept[FV_N_SEG], n_kept[FV_N_SEG] = {0};
    for (int seg = 0; seg < FV_N_SEG; seg++)
        FV_TRY(FV_ARENA_NEW(arena, ctx->n[seg] + plan->select.dup_max, kept[seg]));
    FV_TRY(method->keep(ctx, arena, kept, n_kept));
    bool pruned = plan->visual[ctx->layer] < plan->shape.n_visual; /* then any tokens may be gone */
    FV_TRY(
        fv_plan_check_kept(plan, FV_STAGE_SELECT, n_kept[FV_SEG_VISUAL] + n_kept[FV_SEG_TEXT],
                           plan->select.count(plan, ctx->layer, ctx->head) - plan->shape.n_answer,
                           !plan->exact_counts || pruned));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        out->kept[seg][ctx->head] = kept[seg];
        out->n_kept[seg][ctx->head] = n_kept[seg];
    }
    return FV_OK;
}

/* Makes a method's inputs for a head, except for attention. */
static fv_select_context context_of(const fv_plan *plan, fv_backend *be, const fv_kv *kv,
                                    int32_t layer, int32_t head) {
    const fv_plan_shape *s = &plan->shape;
    fv_select_context ctx = {.params = &plan->params[FV_STAGE_SELECT],
                             .budget = plan->select.budget,
                             .layer = layer,
                             .head = head,
                             .n_kv = s->n_kv,
                             .n_prompt = s->n_visual + s->n_text - s->n_answer,
                             .max = plan->select.window.max,
                             .be = be,
                             .kv = kv};
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        ctx.n[seg] = fv_kv_len(kv, layer, head, (fv_kv_segment)seg);
        ctx.pos[seg] = fv_kv_positions(kv, layer, head, (fv_kv_segment)seg);
    }
    return ctx;
}

static void set_sums(const fv_plan *plan, const fv_select_sums *sums, fv_select_context *ctx) {
    int32_t group = sums->n_head / ctx->n_kv;
    ctx->sums = sums;
    ctx->head0 = plan->select.window.shared ? 0 : ctx->head * group;
    ctx->head1 = plan->select.window.shared ? sums->n_head : ctx->head0 + group;
}

/* Chooses for one head of the first n_choose layers of a block. */
static fv_status choose_head(const fv_select_method *method, const fv_plan *plan, fv_backend *be,
                             const fv_kv *kv, const fv_select_sums *sums, block b, int32_t n_choose,
                             int32_t head, fv_arena *arena, layer_choice *choice) {
    bool asks = fv_select_needs_attention(plan, b.first);
    fv_select_context ctx = context_of(plan, be, kv, b.first, head);
    if (asks) set_sums(plan, &sums[b.first], &ctx);
    if (asks && plan->select.window.by_segment) FV_TRY(set_block_attention(sums, b, arena, &ctx));
    for (int32_t i = 0; i < n_choose; i++) {
        ctx.layer = b.first + i;
        if (asks && n_choose > 1) FV_TRY(set_own_attention(&sums[ctx.layer], arena, &ctx));
        FV_TRY(ask_method(method, plan, &ctx, arena, &choice[i]));
    }
    return FV_OK;
}

static fv_status open_choice(int32_t n_kv, fv_arena *arena, layer_choice *choice) {
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        FV_TRY(FV_ARENA_NEW(arena, n_kv, choice->kept[seg]));
        FV_TRY(FV_ARENA_NEW(arena, n_kv, choice->n_kept[seg]));
    }
    return FV_OK;
}

/* Merges dropped entries into kept ones, if the method does that. */
static fv_status merge_layer(const fv_select_method *method, const fv_plan *plan, fv_backend *be,
                             fv_kv *kv, int32_t layer, const layer_choice *choice,
                             fv_arena *arena) {
    fv_select_kept kept = {
        .params = &plan->params[FV_STAGE_SELECT], .be = be, .kv = kv, .layer = layer};
    if (!method->merge) return FV_OK;
    assert(fv_kv_source_layer(kv, layer) == layer);
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        kept.kept[seg] = choice->kept[seg];
        kept.n_kept[seg] = choice->n_kept[seg];
    }
    return method->merge(&kept, arena);
}

/* Whether each layer of a block chooses its own text tokens; if not, its source layer chooses for
 * all. */
static bool each_chooses(const fv_plan *plan, block b) {
    return plan->select.window.by_segment && !b.text;
}

/* All layers of a block choose before any rows move, as rows that the source layer drops are gone for the
 * others. */
static fv_status select_block(const fv_select_method *method, const fv_plan *plan, fv_backend *be,
                              fv_kv *kv, const fv_select_sums *sums, block b, fv_arena *arena) {
    int32_t n_choose = each_chooses(plan, b) ? b.end - b.first : 1;
    layer_choice *choice;
    FV_TRY(FV_ARENA_NEW(arena, n_choose, choice));
    for (int32_t i = 0; i < n_choose; i++) FV_TRY(open_choice(plan->shape.n_kv, arena, &choice[i]));
    for (int32_t g = 0; g < plan->shape.n_kv; g++)
        FV_TRY(choose_head(method, plan, be, kv, sums, b, n_choose, g, arena, choice));
    for (int32_t i = 0; i < n_choose; i++)
        FV_TRY(merge_layer(method, plan, be, kv, b.first + i, &choice[i], arena));
    for (int32_t l = b.first; l < b.end; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++) {
            const layer_choice *made = &choice[n_choose > 1 ? l - b.first : 0];
            if (fv_kv_borrows(kv, l, (fv_kv_segment)seg)) continue; /* held by the source layer */
            FV_TRY(fv_kv_keep(kv, l, (fv_kv_segment)seg, (const int32_t *const *)made->kept[seg],
                              made->n_kept[seg]));
        }
    return FV_OK;
}

fv_status fv_select_run(const fv_plan *plan, fv_backend *be, fv_kv *kv, int32_t l0, int32_t l1,
                        const fv_select_sums *sums) {
    if (!plan->select.count) return FV_OK;
    const fv_select_method *method = methods[plan->policy.stage[FV_STAGE_SELECT].method->id];
    fv_arena arena = {0};
    fv_status st = FV_OK;
    for (int32_t l = l0; l < l1 && st == FV_OK;) {
        block b = block_at(kv, l, l1);
        fv_arena_reset(&arena);
        st = select_block(method, plan, be, kv, sums, b, &arena);
        l = b.end;
    }
    fv_arena_fini(&arena);
    return st;
}
