/* Runs a pack method over the layers that qualify, and reports the results. The table of methods is made
 * from methods.def: a row without its file does not link. */
#include "prefill-worker/pack/pack.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "model/net/text_codes.h"
#include "policy/stage_rows.h"

static const fv_pack_method *const methods[] = {
#undef PACK
#define PACK(name) [FV_METHOD_PACK_##name] = &fv_pack_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

/* Refuses KV heads that hold different tokens: a packed row spans all heads. */
static fv_status check_heads(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    int32_t n = fv_kv_len(kv, layer, 0, seg);
    const int32_t *pos = fv_kv_positions(kv, layer, 0, seg);
    for (int32_t g = 1; g < fv_kv_get_shape(kv)->n_kv; g++)
        if (fv_kv_len(kv, layer, g, seg) != n ||
            (n && memcmp(fv_kv_positions(kv, layer, g, seg), pos, (size_t)n * sizeof *pos) != 0))
            return FV_FAIL(FV_EINVAL,
                           "the KV heads of layer %d hold different %s tokens, and compression "
                           "needs the same in all heads: remove select or pack",
                           layer, seg == FV_SEG_TEXT ? "text" : "visual");
    return FV_OK;
}

/* The jobs of one call, and what its threads share. */
typedef struct run {
    fv_pack_context ctx;
    const fv_pack_method *method;
    fv_pack_job *job; /* [n] */
    int32_t n;
    fv_pack_part *part; /* [n_task] */
    struct task {
        fv_status status;
        char text[256]; /* of a failure */
    } * task;           /* [n_task] */
    int32_t n_task;
    fv_arena scratch[FV_EACH_SLOTS], together; /* of `part`, by slot; of `parts` */
} run;

static bool wanted(const fv_plan *plan, int32_t layer, fv_kv_segment seg) {
    return seg == FV_SEG_TEXT ? plan->pack.text_keys.rank > 0
                              : plan->pack.layer[layer].rank[FV_PACKED_V] > 0;
}

/* How many of a layer's rows are packed: all, except the prompt's last if that token runs again. */
static int32_t rows_of(const fv_pack_context *ctx, int32_t layer, fv_kv_segment seg) {
    const fv_plan_shape *s = &ctx->plan->shape;
    int32_t n = fv_kv_len(ctx->kv, layer, 0, seg), last = s->n_visual + s->n_text - s->n_answer - 1;
    bool again = ctx->plan->pack.first_packed && seg == FV_SEG_TEXT && n > 0;
    return again && fv_kv_positions(ctx->kv, layer, 0, seg)[n - 1] == last ? n - 1 : n;
}

/* Job of the first layer that is compressed together with this one; NULL: none. */
static fv_pack_job *first_of(const run *r, int32_t layer) {
    int32_t back = r->ctx.plan->pack.layer[layer].back;
    fv_pack_job *first = back > 0 && r->n >= back ? &r->job[r->n - back] : NULL;
    return first && first->layer == layer - back ? first : NULL;
}

static fv_status begin_rows(run *r, int32_t layer, fv_kv_segment seg) {
    const fv_pack_context *ctx = &r->ctx;
    if (!wanted(ctx->plan, layer, seg)) return FV_OK;
    FV_TRY(check_heads(ctx->kv, layer, seg));
    fv_pack_job *job = &r->job[r->n];
    *job = (fv_pack_job){
        .layer = layer, .seg = seg, .n = rows_of(ctx, layer, seg), .first = first_of(r, layer)};
    r->n++;
    return r->method->begin(ctx, job);
}

/* Lists all parts after the last `begin`, as a later layer's `begin` may give parts to an earlier job. */
static void list_parts(run *r) {
    for (int32_t i = 0; i < 2 * r->n; i++)
        if (r->job[i / 2].state && r->job[i / 2].part[i % 2])
            r->part[r->n_task++] = (fv_pack_part){&r->job[i / 2], (fv_packed_kind)(i % 2)};
}

static void run_task(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    run *r = arg;
    struct task *t = &r->task[i];
    fv_pack_context ctx = r->ctx;
    ctx.be = be;
    ctx.scratch = &r->scratch[slot];
    fv_arena_reset(ctx.scratch);
    fv_matrices matrices = {.be = be, .scratch = ctx.scratch};
    ctx.matrices = &matrices;
    t->status = r->method->part(&ctx, r->part[i].job, r->part[i].kind);
    fv_matrices_fini(&matrices);
    if (t->status != FV_OK) snprintf(t->text, sizeof t->text, "%s", fv_last_error());
}

/* Bytes of the matrix that a part is packed from. */
static size_t matrix_bytes(const run *r, int32_t i) {
    const fv_kv_shape *s = fv_kv_get_shape(r->ctx.kv);
    return (size_t)r->part[i].job->n * (size_t)s->n_kv * (size_t)s->d_head * sizeof(float);
}

/* Runs `parts` on as many parts at a time as have matrices of at most TOGETHER bytes, at least one. */
static fv_status run_parts(run *r, fv_backend *be) {
    const size_t TOGETHER = (size_t)256 << 20;
    fv_pack_context ctx = r->ctx;
    ctx.be = be;
    ctx.scratch = &r->together;
    ctx.slots = r->scratch;
    for (int32_t i = 0, n; i < r->n_task; i += n) {
        size_t bytes = matrix_bytes(r, i);
        for (n = 1; i + n < r->n_task && bytes + matrix_bytes(r, i + n) <= TOGETHER; n++)
            bytes += matrix_bytes(r, i + n);
        fv_arena_reset(ctx.scratch);
        fv_matrices matrices = {.be = be, .scratch = ctx.scratch};
        ctx.matrices = &matrices;
        fv_status st = r->method->parts(&ctx, r->part + i, n);
        fv_matrices_fini(&matrices);
        FV_TRY(st);
    }
    return FV_OK;
}

static void run_together(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    run *r = arg;
    (void)slot;
    r->task[i].status = run_parts(r, be);
    if (r->task[i].status != FV_OK)
        snprintf(r->task[i].text, sizeof r->task[i].text, "%s", fv_last_error());
}

static fv_status run_tasks(run *r) {
    if (!r->method->part) return run_parts(r, r->ctx.be);
    bool together = r->method->parts && r->ctx.be->ops->factorise;
    int32_t n = together ? r->n_task > 0 : r->n_task;
    fv_status st = fv_backend_each(r->ctx.be, n, together ? run_together : run_task, r);
    for (int32_t i = 0; i < n; i++)
        if (r->task[i].status != FV_OK) return FV_FAIL(r->task[i].status, "%s", r->task[i].text);
    return st;
}

static void note(const fv_pack_job *job, const fv_kv_packed *p, fv_packed_layer *layer) {
    const fv_packed_shape *shape = &p->part[FV_PACKED_V].shape;
    if (job->seg == FV_SEG_TEXT) {
        layer->rank_text = job->rank[FV_PACKED_K];
        layer->error_text = job->error[FV_PACKED_K];
        return;
    }
    for (int k = 0; k < 2; k++) {
        layer->rank[k] = job->rank[k];
        layer->error[k] = job->error[k];
    }
    layer->code = shape->form == FV_PACKED_QUANTIZED ? shape->codes.bits : 0;
    layer->merged = shape->form == FV_PACKED_MERGED;
    if (shape->form != FV_PACKED_LATENT) return;
    layer->row_bits = shape->latent.row_bits;
    layer->n_own = shape->latent.n_own;
    layer->code_keys = p->part[FV_PACKED_K].shape.latent.coded ? FV_LATENT_CODED : 0;
}

static fv_status end_rows(run *r, fv_pack_job *job, fv_pack_report *report) {
    fv_kv *kv = r->ctx.kv;
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    if (!job->state) return FV_OK;
    fv_pack_context ctx = r->ctx;
    ctx.scratch = &r->scratch[0];
    fv_arena_reset(ctx.scratch);
    FV_TRY(r->method->end(&ctx, job));
    const fv_kv_packed *p = fv_kv_packed_of(kv, job->layer, job->seg);
    if (!p) return FV_OK;
    note(job, p, &report->layer[job->layer]);
    report->bytes += fv_kv_packed_bytes(kv, job->layer, job->seg);
    for (int k = 0; k < 2; k++)
        report->unsent +=
            fv_packed_bytes(&p->part[k].shape) - fv_packed_sent_bytes(&p->part[k].shape);
    size_t parts = fv_kv_borrows(kv, job->layer, job->seg) ? 1 : 2;
    report->bytes_raw +=
        parts * (size_t)job->n * (size_t)s->n_kv * (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    return FV_OK;
}

/* Quantizes text tokens of layers [report->n_layer, n_layer), by the same rule as generated tokens. */
static fv_status run_text(run *r, int32_t n_layer, fv_pack_report *report) {
    const fv_plan *plan = r->ctx.plan;
    const fv_kv_shape *s = fv_kv_get_shape(r->ctx.kv);
    int32_t l0 = report->n_layer,
            n_prompt = plan->shape.n_visual + plan->shape.n_text - plan->shape.n_answer;
    fv_text_coded_layer *layer;
    if (plan->pack.text.bits == 0) return FV_OK;
    for (int32_t l = l0; l < n_layer; l++) FV_TRY(check_heads(r->ctx.kv, l, FV_SEG_TEXT));
    FV_TRY(FV_ARENA_NEW(r->ctx.scratch, n_layer - l0, layer));
    FV_TRY(fv_text_codes_take(r->ctx.be, r->ctx.rope, r->ctx.kv, &plan->pack.text,
                              fv_text_coded(&plan->pack.text, n_prompt, n_prompt), l0, n_layer,
                              layer));
    for (int32_t l = l0; l < n_layer; l++) {
        const fv_text_coded_layer *from = &layer[l - l0];
        if (from->n == 0) continue;
        size_t parts = fv_kv_borrows(r->ctx.kv, l, FV_SEG_TEXT) ? 1 : 2;
        report->layer[l].code_text = plan->pack.text.bits;
        report->layer[l].error_text =
            from->error[0] > from->error[1] ? from->error[0] : from->error[1];
        report->bytes += fv_kv_packed_bytes(r->ctx.kv, l, FV_SEG_TEXT);
        report->bytes_raw += parts * (size_t)from->n * (size_t)s->n_kv * (size_t)s->d_head *
                             fv_dtype_bytes(s->dtype);
    }
    return FV_OK;
}

static fv_status begin_importance(fv_kv *kv, int32_t layer, const float *attention) {
    fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    if (!p || !attention) return FV_OK;
    FV_TRY(fv_kv_packed_observe(kv, p));
    for (int32_t j = 0; j < p->rows.n; j++) p->importance[j] = attention[p->pos[j]];
    p->observed = p->stale = true;
    return FV_OK;
}

static fv_status run_layers(run *r, int32_t n_layer, const float *const *attention,
                            fv_pack_report *report) {
    int32_t n = FV_N_SEG * (n_layer - report->n_layer);
    FV_TRY(FV_ARENA_NEW(r->ctx.scratch, n, r->job));
    FV_TRY(FV_ARENA_NEW(r->ctx.scratch, 2 * n, r->part));
    FV_TRY(FV_ARENA_NEW(r->ctx.scratch, 2 * n, r->task));
    for (int seg = 0; seg < FV_N_SEG; seg++) /* jobs of neighbouring layers are adjacent */
        for (int32_t l = report->n_layer; l < n_layer; l++)
            FV_TRY(begin_rows(r, l, (fv_kv_segment)seg));
    list_parts(r);
    FV_TRY(run_tasks(r));
    for (int32_t i = 0; i < r->n; i++) FV_TRY(end_rows(r, &r->job[i], report));
    FV_TRY(run_text(r, n_layer, report));
    for (; report->n_layer < n_layer; report->n_layer++)
        FV_TRY(begin_importance(r->ctx.kv, report->n_layer, attention[report->n_layer]));
    return FV_OK;
}

fv_status fv_pack_run(const fv_plan *plan, fv_backend *be, const fv_rope *rope, fv_kv *kv,
                      int32_t n_layer, const float *const *attention, fv_pack_report *report) {
    if (!fv_plan_packs_any(plan) || report->status != FV_OK || report->n_layer >= n_layer)
        return FV_OK;
    fv_arena scratch = {0};
    double t = fv_clock_s();
    run r = {.ctx = {.plan = plan, .be = be, .rope = rope, .kv = kv, .scratch = &scratch},
             .method = methods[plan->policy.stage[FV_STAGE_PACK].method->id]};
    fv_status st = run_layers(&r, n_layer, attention, report);
    bool none = report->n_layer == plan->shape.n_layer && report->bytes == 0;
    report->said = none ? r.method->none : NULL;
    fv_arena_fini(&scratch);
    fv_arena_fini(&r.together);
    for (int i = 0; i < FV_EACH_SLOTS; i++) fv_arena_fini(&r.scratch[i]);
    report->seconds += fv_clock_s() - t;
    if (st != FV_EINVAL) return st;
    report->status = st;
    snprintf(report->text, sizeof report->text, "%s", fv_last_error());
    return FV_OK;
}
