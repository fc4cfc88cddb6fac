/* Runs a pack method over the layers that qualify, and keeps account. The table of methods is made
 * from methods.def: a row without its file does not link. */
#include "prefill-worker/pack.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "policy/stage_rows.h"

#undef PACK
#define PACK(name) extern const fv_pack_method fv_pack_##name;
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"

static const fv_pack_method *const methods[] = {
#undef PACK
#define PACK(name) &fv_pack_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

static const fv_pack_method *find(const char *name) {
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i]->name, name) == 0) return methods[i];
    assert(!"a pack method without its file");
    return NULL;
}

/* One factor pair is of all heads together. */
static fv_status check_heads(const fv_kv *kv, int32_t layer) {
    int32_t n = fv_kv_len(kv, layer, 0, FV_SEG_VISUAL);
    const int32_t *pos = fv_kv_positions(kv, layer, 0, FV_SEG_VISUAL);
    for (int32_t g = 1; g < fv_kv_get_shape(kv)->n_kv; g++)
        if (fv_kv_len(kv, layer, g, FV_SEG_VISUAL) != n ||
            (n && memcmp(fv_kv_positions(kv, layer, g, FV_SEG_VISUAL), pos,
                         (size_t)n * sizeof *pos) != 0))
            return FV_FAIL(FV_EINVAL,
                           "KV heads of layer %d hold different visual rows, and packed rows are "
                           "of all heads together: leave select out, or pack",
                           layer);
    return FV_OK;
}

static fv_status pack_layer(const fv_pack_context *ctx, fv_pack_report *report) {
    int32_t l = ctx->layer, n = fv_kv_len(ctx->kv, l, 0, FV_SEG_VISUAL);
    const fv_kv_shape *s = fv_kv_get_shape(ctx->kv);
    if (!ctx->plan->pack[l].rank[FV_PACKED_V]) return FV_OK;
    FV_TRY(check_heads(ctx->kv, l));
    if (n == 0) return FV_OK;
    const fv_choice *choice = &ctx->plan->policy.stage[FV_STAGE_PACK];
    FV_TRY(find(choice->method->name)->layer(ctx, &report->layer[l]));
    if (!fv_kv_packed_at(ctx->kv, l)) return FV_OK;
    report->bytes += fv_kv_packed_bytes(ctx->kv, l);
    size_t parts = fv_kv_borrows(ctx->kv, l, FV_SEG_VISUAL) ? 1 : 2;
    report->bytes_raw +=
        parts * (size_t)n * (size_t)s->n_kv * (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    return FV_OK;
}

static fv_status begin_importance(fv_kv *kv, int32_t layer, const float *paid) {
    fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    if (!p || !paid) return FV_OK;
    FV_TRY(fv_kv_packed_observe(kv, p));
    for (int32_t j = 0; j < p->rows.n; j++) p->importance[j] = paid[p->pos[j]];
    p->observed = p->stale = true;
    return FV_OK;
}

fv_status fv_pack_run(const fv_plan *plan, fv_backend *be, const fv_rope *rope, fv_kv *kv,
                      int32_t n_layer, const float *const *paid, fv_pack_report *report) {
    fv_arena room = {0};
    fv_status st = FV_OK;
    double t = fv_clock_s();
    if (!plan->packs || report->status != FV_OK) return FV_OK;
    for (; report->n_layer < n_layer && st == FV_OK; report->n_layer++) {
        fv_arena_reset(&room);
        fv_pack_context ctx = {.plan = plan,
                               .be = be,
                               .rope = rope,
                               .kv = kv,
                               .layer = report->n_layer,
                               .room = &room};
        st = pack_layer(&ctx, report);
        if (st == FV_OK) st = begin_importance(kv, report->n_layer, paid[report->n_layer]);
    }
    fv_arena_fini(&room);
    report->seconds += fv_clock_s() - t;
    if (st != FV_EINVAL) return st;
    report->status = st;
    snprintf(report->text, sizeof report->text, "%s", fv_last_error());
    return FV_OK;
}
