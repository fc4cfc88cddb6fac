/* Makes the prefill worker's half of the report of a task that is over. On the loop thread. */
#include <string.h>

#include "prefill-worker/service/internal.h"

typedef Fovea__Inference__V1__StageNote note_message;
typedef Fovea__Inference__V1__Transfer transfer_message;

static fv_status copy(fv_arena *a, const char *s, char **out) {
    return fv_arena_strndup(a, s, strlen(s), out);
}

/* Adds a note of a stage, unless its text is empty. */
static fv_status add_note(fv_task *t, fv_report_message *r, fv_stage stage, const char *text,
                          bool decided) {
    note_message *note;
    if (!text || !text[0]) return FV_OK;
    FV_TRY(FV_ARENA_NEW(&t->arena, 1, note));
    fovea__inference__v1__stage_note__init(note);
    note->stage = (char *)(uintptr_t)fv_stage_name(stage);
    note->text = (char *)(uintptr_t)text;
    note->decided = decided;
    r->notes[r->n_notes++] = note;
    return FV_OK;
}

static fv_status fill_policy(fv_task *t, fv_report_message *r) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy_print(&t->prefill.policy, text);
    FV_TRY(copy(&t->arena, text, &r->policy));
    FV_TRY(FV_ARENA_NEW(&t->arena, FV_N_STAGE + 2, r->notes));
    for (int s = 0; s < FV_N_STAGE; s++)
        FV_TRY(add_note(t, r, (fv_stage)s, t->prefill.plan.note[s], false));
    FV_TRY(add_note(t, r, FV_STAGE_PRUNE, t->prefill.pruned, true));
    return add_note(t, r, FV_STAGE_PACK, t->prefill.packed.said, true);
}

static fv_status fill_mapped(fv_task *t, fv_report_message *r) {
    const fv_plan *plan = &t->prefill.plan;
    FV_TRY(FV_ARENA_NEW(&t->arena, plan->n_mapped, r->mapped));
    for (int32_t i = 0; i < plan->n_mapped; i++) {
        const fv_plan_mapped *from = &plan->mapped[i];
        const fv_choice *c = &plan->policy.stage[from->stage];
        Fovea__Inference__V1__MappedLayer *m;
        fv_layer_mapping how = fv_choice_layer_mapping(c, from->param, plan->shape.n_layer);
        FV_TRY(FV_ARENA_NEW(&t->arena, 1, m));
        fovea__inference__v1__mapped_layer__init(m);
        FV_TRY(FV_ARENA_NEW(&t->arena, FV_PARAM_TEXT_MAX, m->written));
        fv_choice_print(c, from->param, m->written);
        m->stage = (char *)(uintptr_t)fv_stage_name(from->stage);
        m->parameter = (char *)(uintptr_t)c->method->param[from->param].name;
        m->layer = (uint32_t)from->layer;
        m->mapping = (char *)(uintptr_t)fv_layer_mapping_name(how);
        r->mapped[r->n_mapped++] = m;
    }
    return FV_OK;
}

/* Says which rows of the kept beginning came from tiers for this request. */
static void fill_tiers(const fv_task *t, fv_report_message *r) {
    const fv_task_fetch *f = &t->fetch;
    if (r->n_prompt_cached) r->cache_tier = (char *)"prefill";
    if (t->prefix.left) {
        r->cache_tier = (char *)"decode";
        return;
    }
    if (t->prefill.prefix.rows < f->end) return; /* they were given up again meanwhile */
    for (int32_t k = 0; k < t->worker->opt.n_tier; k++) {
        r->n_prompt_fetched += (uint32_t)f->rows[k];
        if (f->rows[k]) r->cache_tier = (char *)(uintptr_t)t->worker->opt.tier[k]->ops->name;
    }
}

static fv_status fill_rows(fv_task *t, fv_report_message *r) {
    int32_t n_layer = t->prefill.plan.shape.n_layer;
    fv_plan_bytes bytes = fv_plan_count(&t->prefill.plan);
    FV_TRY(FV_ARENA_NEW(&t->arena, n_layer, r->visual_tokens));
    for (int32_t l = 0; l < n_layer; l++)
        r->visual_tokens[l] = (uint32_t)t->prefill.visual_tokens[l];
    r->n_visual_tokens = (size_t)n_layer;
    FV_TRY(FV_ARENA_NEW(&t->arena, n_layer, r->visual_tokens_held));
    for (int32_t l = 0; l < n_layer; l++)
        r->visual_tokens_held[l] = (uint32_t)t->prefill.stats.visual_tokens_held[l];
    r->n_visual_tokens_held = (size_t)n_layer;
    uint32_t n_replay = (uint32_t)t->msg->n_replay; /* tokens of the answer, not of the prompt */
    r->n_prompt = (uint32_t)t->prefill.prompt.n - n_replay;
    r->n_visual = (uint32_t)t->prefill.prompt.n_visual;
    r->n_encoded =
        t->prefill.plan.condense.acts ? (uint32_t)t->prefill.plan.shape.n_encoded : r->n_visual;
    r->n_text = (uint32_t)t->prefill.prompt.n_text - n_replay;
    r->n_images = (uint32_t)t->prefill.prompt.n_image;
    r->n_images_cached = (uint32_t)(t->prefill.n_cached + t->prefill.n_skip);
    r->n_prompt_cached = (uint32_t)fv_task_cached(t);
    if (r->n_prompt_cached > r->n_prompt) r->n_prompt_cached = r->n_prompt; /* the rest is answer */
    fill_tiers(t, r);
    r->seconds_saved = t->prefix.left ? t->prefix.seconds_left : t->prefill.prefix.seconds;
    r->n_generated = t->prefill.has_token;
    r->bytes_raw = bytes.raw;
    r->bytes_bound = bytes.held;
    r->bytes_visual = r->bytes_visual_end = t->prefill.bytes_visual;
    r->bytes_text = r->bytes_text_end = t->prefill.bytes_text;
    r->bytes_tables_end = t->prefill.bytes_tables;
    return FV_OK;
}

static fv_status fill_stages(fv_task *t, fv_report_message *r) {
    FV_TRY(FV_ARENA_NEW(&t->arena, FV_N_STAGE, r->stages));
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_stage_stats_stage *a = &t->prefill.stats.stage[s];
        Fovea__Inference__V1__StageStats *m;
        if (a->n_layer == 0) continue;
        FV_TRY(FV_ARENA_NEW(&t->arena, 1, m));
        fovea__inference__v1__stage_stats__init(m);
        m->stage = (char *)(uintptr_t)fv_stage_name((fv_stage)s);
        m->method = (char *)(uintptr_t)t->prefill.policy.stage[s].method->name;
        m->entries_in = a->entries_in;
        m->entries_out = a->entries_out;
        m->n_layer = (uint32_t)a->n_layer;
        r->stages[r->n_stages++] = m;
    }
    return FV_OK;
}

static fv_status fill_packed(fv_task *t, fv_report_message *r) {
    const fv_pack_report *packed = &t->prefill.packed;
    if (packed->bytes == 0) return FV_OK;
    FV_TRY(FV_ARENA_NEW(&t->arena, packed->n_layer, r->packed));
    for (int32_t l = 0; l < packed->n_layer; l++) {
        const fv_packed_layer *layer = &packed->layer[l];
        Fovea__Inference__V1__PackedLayer *m;
        FV_TRY(FV_ARENA_NEW(&t->arena, 1, m));
        fovea__inference__v1__packed_layer__init(m);
        m->rank_k = (uint32_t)layer->rank[FV_PACKED_K];
        m->rank_v = (uint32_t)layer->rank[FV_PACKED_V];
        m->error_k = layer->error[FV_PACKED_K];
        m->error_v = layer->error[FV_PACKED_V];
        m->rank_text = (uint32_t)layer->rank_text;
        m->text_bits = (uint32_t)layer->code_text;
        m->error_text = layer->error_text;
        m->code_bits = (uint32_t)layer->code;
        m->row_bits = (uint32_t)layer->row_bits;
        m->own_directions = (uint32_t)layer->n_own;
        m->key_bits = (uint32_t)layer->code_keys;
        m->merged = layer->merged;
        r->packed[r->n_packed++] = m;
    }
    r->bytes_packed_raw = packed->bytes_raw;
    r->bytes_packed = packed->bytes;
    r->bytes_unsent = packed->unsent;
    r->seconds_pack = packed->seconds;
    return FV_OK;
}

static fv_status fill_kept(fv_task *t, fv_report_message *r) {
    size_t n = (size_t)t->prefill.kept.n_visual;
    FV_TRY(FV_ARENA_NEW(&t->arena, t->prefill.kept.n_group, r->kept));
    for (int32_t i = 0; i < t->prefill.kept.n_group; i++) {
        const fv_kept_map_group *g = &t->prefill.kept.group[i];
        Fovea__Inference__V1__KeptTokens *k;
        FV_TRY(FV_ARENA_NEW(&t->arena, 1, k));
        fovea__inference__v1__kept_tokens__init(k);
        k->layer = (uint32_t)g->layer;
        k->n_layer = (uint32_t)g->n_layer;
        k->heads = (ProtobufCBinaryData){n, g->heads};
        if (g->score) k->score = (ProtobufCBinaryData){n, g->score};
        r->kept[r->n_kept++] = k;
    }
    return FV_OK;
}

static fv_status fill_transfer(fv_task *t, fv_report_message *r) {
    transfer_message *x;
    if (t->sent.frames == 0) return FV_OK;
    FV_TRY(FV_ARENA_NEW(&t->arena, 1, x));
    fovea__inference__v1__transfer__init(x);
    const char *oob = t->worker->pairs ? fv_peers_ops(t->worker->pairs)->name : "";
    const char *name = t->sent.ways.bytes_oob ? oob : t->transport->ops->name;
    x->transport = (char *)(uintptr_t)name;
    x->bytes_pair = t->sent.ways.bytes_oob;
    x->n_fallback = t->sent.ways.n_fallback;
    x->bytes_sent = t->sent.bytes;
    x->n_frames = t->sent.frames;
    x->tokens_kept = (uint32_t)t->sent.tokens_kept;
    x->bytes_kept = t->sent.bytes_kept;
    x->seconds_open = t->sent.granted_s - t->opened_s;
    x->seconds_send = t->sent_s - t->sending_s;
    x->seconds_exposed = t->sent.committed_s - t->prefilled_s;
    x->seconds_commit = t->sent.committed_s - t->sent_s;
    r->transfer = x;
    return FV_OK;
}

fv_status fv_task_report(fv_task *t, fv_report_message **out) {
    const fv_prefill_worker *w = t->worker;
    fv_report_message *r;
    FV_TRY(FV_ARENA_NEW(&t->arena, 1, r));
    fovea__inference__v1__report__init(r);
    FV_TRY(fill_policy(t, r));
    FV_TRY(fill_mapped(t, r));
    FV_TRY(fill_rows(t, r));
    FV_TRY(fill_stages(t, r));
    FV_TRY(fill_packed(t, r));
    FV_TRY(fill_kept(t, r));
    FV_TRY(fill_transfer(t, r));
    r->seconds_preprocess = t->prefill.s_preprocess;
    r->seconds_vision = t->prefill.s_vision;
    r->seconds_prefill = t->prefill.s_prefill;
    r->seconds_queued = t->began_s - t->arrived_s;
    FV_TRY(copy(&t->arena, w->opt.name, &r->prefill_worker));
    *out = r;
    return FV_OK;
}
