/* Hashes a job's images and names its prompt; takes and keeps prefixes. A digest of an image covers its whole content,
 * its resolved layout, and how its pixels are prepared: whatever its embeddings depend on besides the checkpoint. */
#include "prefill-worker/job/prefix.h"

#include <stdio.h>
#include <stdlib.h>

#include "policy/plan/prefix.h"

typedef struct fv_job_digest {
    uint8_t bytes[FV_DIGEST_BYTES];
} fv_job_digest;

static const fv_model_config *config_of(const fv_prefill_job *j) {
    return fv_checkpoint_config(j->engine->ck);
}

/* ---- who shares ---------------------------------------------------------------------------- */

/* Number of first layers of whose rows the cache keeps those that it has; 0: it keeps none. */
static int32_t layers_kept(const fv_prefill_job *j) {
    const fv_text_config *c = &config_of(j)->text;
    int32_t n = fv_plan_prefix_layers(&j->plan);
    /* The state of recurrent layers holds the whole prompt, and the cache has none of its prefixes. */
    if (j->plan.shape.state_bytes) return 0;
    /* Rows that run again need their embeddings, where later layers read these. */
    bool reads =
        c->d_input > 0 || (config_of(j)->has_vision && n < config_of(j)->vision.n_deepstack);
    return n < c->n_layer && reads ? 0 : n;
}

int32_t fv_prefill_job_join_layer(const fv_prefill_job *j) {
    int32_t n = layers_kept(j);
    return n < config_of(j)->text.n_layer ? n : 0;
}

/* Whether all layers hold the rows that they compute, in their order, when they are sent. */
static bool holds_raw(const fv_plan *plan) {
    bool raw = !plan->select.count && !fv_plan_packs_any(plan);
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        raw &= !plan->prune.drop_visual_kv[l] && plan->evict.rank_from[l] < 0;
    return raw;
}

/* Whether they do, and nothing looks at them. */
static bool stays_raw(const fv_plan *plan) {
    bool raw = holds_raw(plan) && plan->select.window.rows == 0 && plan->select.nsoftmax == 0 &&
               plan->evict.accum.kind == FV_ACCUM_NONE && plan->evict.accum_tokens == 0 &&
               fv_plan_prefix_layers(plan) == plan->shape.n_layer;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) raw &= !plan->capture[l];
    return raw;
}

/* Whether layers have keys of their own. */
static bool shares_no_keys(const fv_plan *plan) {
    int32_t l = 0;
    while (l < plan->shape.n_layer && plan->share.source_layer[l] == l) l++;
    return l == plan->shape.n_layer;
}

static bool may_cache(const fv_prefill_job *j) {
    const fv_prefill_request *r = &j->prefill;
    bool observed = r->attention || r->visual_mass || r->ranked || r->ablation || r->head_max ||
                    r->row_logits || j->want_scores || j->want_features;
    return j->prefixes && j->kv && !observed && layers_kept(j) > 0;
}

bool fv_prefill_job_caches(const fv_prefill_job *j) {
    return may_cache(j) && (j->encoded.n_added == 0 || fv_prefill_job_condenses(j));
}

bool fv_prefill_job_shares(const fv_prefill_job *j) {
    return may_cache(j) && stays_raw(&j->plan) && shares_no_keys(&j->plan);
}

bool fv_prefill_job_sends_raw(const fv_prefill_job *j) {
    const fv_plan *plan = &j->plan;
    /* A resumed answer has evicted rows, or rows that attended otherwise than a prompt's. */
    bool other = plan->evict.accum.kind != FV_ACCUM_NONE || plan->select.nsoftmax > 0;
    bool raw = may_cache(j) && holds_raw(plan) && shares_no_keys(plan) && !(other && j->n_replay);
    return raw && fv_plan_prefix_layers(plan) == plan->shape.n_layer;
}

/* ---- digests of images ----------------------------------------------------------------------- */

static void hash_size(fv_digest *d, fv_layout_size s) {
    fv_digest_numbers(d, (const int32_t[]){s.w, s.h}, 2);
}

static void hash_view(fv_digest *d, const fv_layout_view *v) {
    fv_digest_numbers(
        d, (const int32_t[]){v->pad_square, v->n_resize, v->x, v->y, v->w, v->h, v->cols, v->rows},
        8);
    for (int32_t i = 0; i < v->n_resize; i++) hash_size(d, v->resize[i]);
}

static void hash_span(fv_digest *d, const fv_layout_span *s) {
    const int32_t all[] = {s->n,
                           s->t,
                           s->h,
                           s->w,
                           s->tile,
                           s->cols,
                           s->rows,
                           s->crop_x,
                           s->crop_y,
                           s->crop_w,
                           s->crop_h,
                           s->class_token,
                           s->newline_column,
                           s->newline_end};
    fv_digest_numbers(d, all, sizeof all / sizeof *all);
    fv_digest_bytes(d, &s->step, sizeof s->step);
    fv_digest_bytes(d, &s->seconds, sizeof s->seconds);
}

static void hash_layout(fv_digest *d, const fv_layout *l) {
    fv_digest_numbers(d,
                      (const int32_t[]){l->image_w, l->image_h, l->n_view, l->n_tile, l->n_span,
                                        l->video, l->frames, l->n_visual},
                      8);
    hash_size(d, l->tile);
    for (int32_t i = 0; i < l->n_view; i++) hash_view(d, &l->view[i]);
    for (int32_t i = 0; i < l->n_span; i++) hash_span(d, &l->span[i]);
}

static void hash_preparation(fv_digest *d, const fv_image_config *c) {
    fv_digest_numbers(
        d, (const int32_t[]){c->do_rescale, c->do_normalize, c->do_convert_rgb, c->resample}, 4);
    fv_digest_bytes(d, &c->rescale_factor, sizeof c->rescale_factor);
    fv_digest_bytes(d, c->mean, sizeof c->mean);
    fv_digest_bytes(d, c->std, sizeof c->std);
}

static void hash_image(fv_digest *d, const fv_job_image *image) {
    const fv_image *p = image->decoded;
    fv_digest_text(d, p ? "pixels" : "file");
    if (p) fv_digest_numbers(d, (const int32_t[]){p->w, p->h}, 2);
    fv_digest_bytes(d, p ? p->rgb : image->bytes, p ? (size_t)p->w * (size_t)p->h * 3 : image->n);
}

static fv_status digest_item(const fv_prefill_job *j, int32_t i, uint8_t *out) {
    const fv_job_item *item = &j->item[i];
    fv_digest d;
    fv_digest_begin(&d, "fovea image v1");
    fv_digest_text(&d, item->video ? "video" : "image");
    hash_preparation(&d, fv_checkpoint_image(j->engine->ck));
    hash_layout(&d, &j->layout[i]);
    fv_digest_number(&d, item->n);
    for (int32_t k = 0; k < item->n; k++) hash_image(&d, &j->image[item->first + k]);
    return fv_digest_end(&d, out);
}

bool fv_prefill_job_undigested(const fv_prefill_job *j) { return j->n_item > 0 && !j->digest_of; }

static size_t bytes_of(const fv_job_image *image) {
    const fv_image *p = image->decoded;
    return p ? (size_t)p->w * (size_t)p->h * 3 : image->n;
}

fv_status fv_prefill_job_digest_begin(fv_prefill_job *j, uint64_t *bytes) {
    *bytes = 0;
    for (int32_t i = 0; i < j->n_image; i++) *bytes += bytes_of(&j->image[i]);
    return FV_ARENA_NEW(&j->arena, j->n_item, j->digest_of);
}

fv_status fv_prefill_job_digest(fv_prefill_job *j) {
    for (int32_t i = 0; i < j->n_item; i++) FV_TRY(digest_item(j, i, j->digest_of[i].bytes));
    return FV_OK;
}

/* ---- the chain ------------------------------------------------------------------------------- */

/* Digest of span `at` among those of its image. */
static fv_status digest_span(const fv_job_digest *item, int32_t at, uint8_t *out) {
    fv_digest d;
    fv_digest_begin(&d, "fovea image rows v1");
    fv_digest_bytes(&d, item->bytes, sizeof item->bytes);
    fv_digest_number(&d, at);
    return fv_digest_end(&d, out);
}

static fv_status list_visual(fv_prefill_job *j, fv_chain_visual **out, int32_t *n) {
    const fv_prompt *p = &j->prompt;
    fv_chain_visual *v;
    FV_TRY(FV_ARENA_NEW(&j->arena, p->n_span, v));
    for (int32_t i = 0, at = 0; i < p->n_span; i++) {
        const fv_token_span *s = &p->span[i];
        at = i && p->span[i - 1].image == s->image ? at + 1 : 0;
        if (s->n == 0) continue;
        v[*n] = (fv_chain_visual){.first = s->first, .n = s->n};
        FV_TRY(digest_span(&j->digest_of[s->image], at, v[(*n)++].digest));
    }
    *out = v;
    return FV_OK;
}

fv_status fv_prefill_job_chain(fv_prefill_job *j) {
    const fv_engine *e = j->engine;
    fv_chain_visual *visual = NULL;
    fv_chain_link *link;
    int32_t n_visual = 0, deferred = stays_raw(&j->plan) ? 0 : j->n_replay;
    if (j->link) return FV_OK;
    FV_TRY(list_visual(j, &visual, &n_visual));
    char compat[FV_FINGERPRINT_MAX + FV_ADAPTER_DIGEST_MAX + 1];
    snprintf(compat, sizeof compat, "%s%s%s", e->fingerprint, j->adapter ? "+" : "",
             j->adapter ? j->adapter->digest : "");
    char *stages;
    FV_TRY(FV_ARENA_NEW(&j->arena, FV_PLAN_PREFIX_TEXT, stages));
    fv_plan_prefix_stages(&j->plan, stages);
    fv_chain_base base = {.compat = compat,
                          .stages = stages,
                          .compute = fv_engine_sums(e),
                          .kv_dtype = fv_dtype_name(fv_kv_pool_shape(j->pool)->dtype),
                          .tenant = j->owner,
                          .salt = j->salt};
    fv_chain_prompt prompt = {.n = j->prompt.n - deferred,
                              .ids = j->prompt.ids,
                              .n_visual = n_visual,
                              .visual = visual,
                              .rope_map = j->rope_map,
                              .image_whole = config_of(j)->text.image_whole};
    FV_TRY(FV_ARENA_NEW(&j->arena, fv_chain_links_max(prompt.n, n_visual), link));
    FV_TRY(fv_chain_make(&base, &prompt, link, &j->n_link));
    j->link = link;
    return FV_OK;
}

/* Visual rows of the first n items. */
static int32_t visual_rows(const fv_prefill_job *j, uint32_t n) {
    int32_t rows = 0;
    for (int32_t i = 0; i < j->prompt.n_span; i++)
        if ((uint32_t)j->prompt.span[i].image < n) rows += j->prompt.span[i].n;
    return rows;
}

/* The last link with `visual` visual rows and at most `text` text rows; the one that ends with the visual rows if all have
 * more text; NULL: none. */
static fv_chain_link *link_at(fv_prefill_job *j, int32_t visual, double text) {
    fv_chain_link *found = NULL;
    for (int32_t i = 0; i < j->n_link && j->link[i].n_visual <= visual; i++) {
        fv_chain_link *l = &j->link[i];
        bool first = l->n_visual == visual && visual > 0 && (!found || found->n_visual < visual);
        if (first || (l->n_visual == visual && l->n_text <= text)) found = l;
    }
    return found;
}

void fv_prefill_job_name_links(fv_prefill_job *j, const fv_prompt_end *end, int32_t n) {
    const double all = n > 0 && end[n - 1].text ? end[n - 1].text : 1;
    const int32_t n_text = j->n_link ? j->link[j->n_link - 1].n_text : 0;
    for (int32_t i = 0; i < n; i++) {
        double text = (double)n_text * end[i].text / all;
        fv_chain_link *l = link_at(j, visual_rows(j, end[i].items), text);
        if (l) l->name = end[i].name;
    }
}

/* The last row is always computed, as its logits are wanted; and so are the rows whose attention stages look at. */
static int32_t rows_max(const fv_prefill_job *j) {
    const fv_plan *plan = &j->plan;
    int32_t seen = 1;
    if (stays_raw(plan)) return j->prompt.n - seen;
    if (plan->select.window.rows > seen) seen = plan->select.window.rows;
    if (plan->evict.accum_tokens > seen) seen = plan->evict.accum_tokens;
    return j->prompt.n - j->n_replay - seen;
}

int32_t fv_prefill_job_links_wanted(const fv_prefill_job *j) {
    int32_t n = 0, rows = rows_max(j);
    while (n < j->n_link && j->link[n].end <= rows) n++;
    return n;
}

int32_t fv_prefill_job_prefix_rows(const fv_prefill_job *j) {
    return fv_prefix_rows(j->prefixes, j->link, j->n_link, rows_max(j));
}

/* Number of leading items all of whose rows are within the first `rows`. */
static int32_t items_within(const fv_prefill_job *j, int32_t rows) {
    const fv_prompt *p = &j->prompt;
    for (int32_t i = 0; i < p->n_span; i++)
        if (p->span[i].first + p->span[i].n > rows) return p->span[i].image;
    return j->n_item;
}

/* Returns how many rows both chains have in common, of those that `j` need not compute. */
static int32_t common_rows(const fv_prefill_job *j, const fv_prefill_job *other) {
    int32_t n = fv_chain_common(j->link, j->n_link, other->link, other->n_link);
    while (n > 0 && j->link[n - 1].end > rows_max(j)) n--;
    return n ? j->link[n - 1].end : 0;
}

bool fv_prefill_job_gains(const fv_prefill_job *j, int32_t have, const fv_prefill_job *other) {
    int32_t then = common_rows(j, other);
    bool image = !fv_prefill_job_condenses(j) && items_within(j, then) > items_within(j, have);
    return then > have && (image || then - have >= (j->prompt.n - have) / 2);
}

/* ---- take and keep --------------------------------------------------------------------------- */

fv_status fv_prefill_job_take_prefix(fv_prefill_job *j) {
    FV_TRY(fv_prefix_take(j->prefixes, j->link, j->n_link, rows_max(j), &j->prefix));
    if (!fv_prefill_job_condenses(j)) j->n_skip = items_within(j, j->prefix.rows);
    return FV_OK;
}

void fv_prefill_job_give_prefix(fv_prefill_job *j) {
    fv_prefix held = j->prefix; /* its counts stay as they are: another thread may report them */
    fv_prefix_draft_drop(j->prefixes, &j->draft);
    j->prefix.n_link = 0;
    j->prefix.segment = NULL;
    fv_prefix_give(j->prefixes, &held);
}

fv_status fv_prefill_job_fill(void *user, fv_kv *kv, int32_t l0, int32_t l1) {
    const fv_prefill_job *j = user;
    return fv_prefix_read(j->prefixes, &j->prefix, kv, l0, l1);
}

fv_status fv_prefill_job_join(void *user, void *x) {
    const fv_prefill_job *j = user;
    return fv_prefix_read_stream(j->prefixes, &j->prefix, x);
}

void fv_prefill_job_joined(void *user, const void *x) {
    fv_prefill_job *j = user;
    fv_prefix_draft_copy_stream(j->prefixes, &j->draft, x);
}

void fv_prefill_job_open_draft(const fv_prefill_job *j, int32_t n, fv_prefix_draft *out) {
    fv_prefix_form form = {.n_layer = fv_prefill_job_join_layer(j)};
    if (form.n_layer) form.stream_bytes = (size_t)config_of(j)->text.d_model * sizeof(float);
    fv_prefix_draft_open_form(j->prefixes, j->owner ? j->owner : "", j->link, n, form, out);
}

void fv_prefill_job_draft(void *user, const fv_kv *kv, int32_t l0, int32_t l1) {
    fv_prefill_job *j = user;
    if (l0 == 0) fv_prefill_job_open_draft(j, j->n_link, &j->draft);
    fv_prefix_draft_copy(j->prefixes, &j->draft, kv, l0, l1);
}

void fv_prefill_job_keep_prefix(fv_prefill_job *j, double seconds_row) {
    if (!j->link || !j->kv) return;
    const double share = (double)layers_kept(j) / config_of(j)->text.n_layer; /* of what it took */
    fv_prefix_cost cost = {.text = share * seconds_row, .visual = share * seconds_row};
    if (j->encoded.n_row) cost.visual += (j->s_preprocess + j->s_vision) / j->encoded.n_row;
    if (fv_prefill_job_shares(j))
        fv_prefill_job_draft(j, j->kv, 0, fv_kv_get_shape(j->kv)->n_layer);
    fv_prefix_draft_keep(j->prefixes, &j->draft, &cost);
}
