/* Runs a select method over every layer, segment and head, and shortens the store. The table of
 * methods is made from methods.def: a row without its file does not link. */
#include "prefill-worker/select.h"

#include <assert.h>
#include <string.h>

#include "common/arena.h"

#define CONDENSE(name)
#define PRUNE(name)
#define LAZY(name)
#define SELECT(name) extern const fv_select_method fv_select_##name;
#define PACK(name)
#define EXPAND(name)
#define EVICT(name)
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"

static const fv_select_method *const methods[] = {
#undef SELECT
#define SELECT(name) &fv_select_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

static const fv_select_method *find(const char *name) {
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i]->name, name) == 0) return methods[i];
    assert(!"a select method without its file");
    return NULL;
}

static fv_status select_layer(const fv_select_method *method, const fv_plan *plan, fv_kv *kv,
                              int32_t layer, fv_arena *arena) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv;
    int32_t **kept[FV_N_SEG], *n_kept[FV_N_SEG];
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        FV_TRY(FV_ARENA_NEW(arena, n_kv, kept[seg]));
        FV_TRY(FV_ARENA_NEW(arena, n_kv, n_kept[seg]));
    }
    for (int32_t g = 0; g < n_kv; g++) {
        fv_select_context ctx = {.choice = &plan->policy.stage[FV_STAGE_SELECT],
                                 .layer = layer,
                                 .head = g,
                                 .n_kv = n_kv,
                                 .n_prompt = plan->shape.n_visual + plan->shape.n_text};
        for (int seg = 0; seg < FV_N_SEG; seg++) {
            ctx.n[seg] = fv_kv_len(kv, layer, g, (fv_kv_segment)seg);
            ctx.pos[seg] = fv_kv_positions(kv, layer, g, (fv_kv_segment)seg);
            FV_TRY(FV_ARENA_NEW(arena, ctx.n[seg], kept[seg][g]));
        }
        for (int seg = 0; seg < FV_N_SEG; seg++)
            FV_TRY(method->keep(&ctx, (fv_kv_segment)seg, kept[seg][g], &n_kept[seg][g]));
    }
    for (int seg = 0; seg < FV_N_SEG; seg++)
        FV_TRY(fv_kv_keep(kv, layer, (fv_kv_segment)seg, (const int32_t *const *)kept[seg],
                          n_kept[seg]));
    return FV_OK;
}

fv_status fv_select_run(const fv_plan *plan, fv_kv *kv, int32_t l0, int32_t l1) {
    if (!plan->select) return FV_OK;
    const fv_select_method *method = find(plan->policy.stage[FV_STAGE_SELECT].method->name);
    fv_arena arena = {0};
    fv_status st = FV_OK;
    for (int32_t l = l0; l < l1 && st == FV_OK; l++) {
        fv_arena_reset(&arena);
        st = select_layer(method, plan, kv, l, &arena);
    }
    fv_arena_fini(&arena);
    return st;
}
