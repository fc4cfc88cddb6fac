/* Random models and prompts for tests. */
#include "tests/support/tiny_net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "tests/support/latent.h"

static void need(fv_status st) {
    if (st == FV_OK) return;
    fprintf(stderr, "tiny_net: %s\n", fv_last_error());
    abort();
}

static float draw(uint64_t *state) { /* uniform in [-1, 1) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
}

tiny_shape tiny_shape_default(void) {
    return (tiny_shape){
        .n_layer = 4, .n_head = 4, .n_kv = 2, .d_head = 24, .d_ffn = 70, .vocab = 97};
}

tiny_shape tiny_shape_mrope(bool interleaved) {
    tiny_shape s = tiny_shape_default();
    s.section[0] = interleaved ? 5 : 2;
    s.section[1] = interleaved ? 3 : 4;
    s.section[2] = interleaved ? 4 : 6;
    s.interleaved = interleaved;
    return s;
}

tiny_shape tiny_shape_either(bool grid) {
    return grid ? tiny_shape_mrope(true) : tiny_shape_default();
}

static fv_tensor take(float **at, int32_t rows, int32_t cols, uint64_t *state, float base) {
    fv_tensor t = fv_tensor_of(*at, FV_F32, rows, cols);
    float scale = base != 0 ? 0.2f : 1.7f / sqrtf((float)cols);
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++) *(*at)++ = base + scale * draw(state);
    return t;
}

/* Numbers of a recurrent layer's weights. */
static size_t recurrent_numbers(const fv_text_config *c) {
    const fv_recurrent_config *r = &c->recurrent;
    size_t d = (size_t)c->d_model, wide = (size_t)fv_recurrent_width(r), heads = (size_t)r->n_value,
           values = heads * (size_t)r->d_value;
    return 2 * d + wide * d + 2 * values * d + 2 * heads * d + wide * (size_t)r->taps + 2 * heads +
           (size_t)r->d_value + 3 * d * (size_t)c->d_ffn;
}

static void make_recurrent(tiny_net *net, float **at, uint64_t *state) {
    const fv_recurrent_config *r = &net->cfg.recurrent;
    int32_t d = net->cfg.d_model, n = net->cfg.n_layer * r->n, values = r->n_value * r->d_value;
    if (n == 0) return;
    net->w.recurrent = calloc((size_t)n, sizeof *net->w.recurrent);
    if (!net->w.recurrent) abort();
    for (fv_text_layer *w = net->w.recurrent; w < net->w.recurrent + n; w++) {
        w->attn_norm = take(at, 1, d, state, 1);
        w->delta_qkv = take(at, fv_recurrent_width(r), d, state, 0);
        w->delta_z = take(at, values, d, state, 0);
        w->delta_a = take(at, r->n_value, d, state, 0);
        w->delta_b = take(at, r->n_value, d, state, 0);
        w->delta_conv = take(at, fv_recurrent_width(r), r->taps, state, 0);
        w->delta_log_rate = take(at, 1, r->n_value, state, 0);
        w->delta_shift = take(at, 1, r->n_value, state, 0);
        w->delta_norm = take(at, 1, r->d_value, state, 1);
        w->delta_out = take(at, d, values, state, 0);
        w->mlp_norm = take(at, 1, d, state, 1);
        w->gate = take(at, net->cfg.d_ffn, d, state, 0);
        w->up = take(at, net->cfg.d_ffn, d, state, 0);
        w->down = take(at, d, net->cfg.d_ffn, state, 0);
    }
}

enum { INPUT = 8 };

/* Numbers of per-layer embeddings, and of the norms of heads that such a model has. */
static size_t input_numbers(const fv_text_config *c) {
    size_t n = (size_t)fv_text_layers(c), d = (size_t)c->d_model, D = (size_t)c->d_head;
    if (c->d_input == 0) return 0;
    return n * (INPUT * ((size_t)c->vocab + 3 * d) + d + 2 * D) + INPUT;
}

static void make_inputs(tiny_net *net, float **at, uint64_t *state) {
    const fv_text_config *c = &net->cfg;
    int32_t n = fv_text_layers(c), d = c->d_model;
    if (c->d_input == 0) return;
    net->w.input_table = take(at, c->vocab, n * INPUT, state, 0);
    net->w.input_project = take(at, n * INPUT, d, state, 0);
    net->w.input_norm = take(at, 1, INPUT, state, 1);
    for (fv_text_layer *w = net->w.layer; w < net->w.layer + n; w++) {
        w->input_gate = take(at, INPUT, d, state, 0);
        w->input_out = take(at, d, INPUT, state, 0);
        w->input_norm = take(at, 1, d, state, 1);
        w->q_norm = take(at, 1, c->d_head, state, 1);
        w->k_norm = take(at, 1, c->d_head, state, 1);
    }
}

void tiny_net_open_on(tiny_net *net, tiny_shape s, fv_dtype kv_dtype, const char *device,
                      const char *isa, int32_t threads) {
    int32_t d = s.n_head * s.d_head - 8; /* differs from H D, as in some models */
    *net = (tiny_net){.cfg = {.family = "llama",
                              .vocab = s.vocab,
                              .d_model = d,
                              .d_ffn = s.d_ffn,
                              .n_layer = s.n_layer,
                              .n_head = s.n_head,
                              .n_kv = s.n_kv,
                              .d_head = s.d_head,
                              .max_position = 4096,
                              .window = s.window,
                              .rms_eps = 1e-5f,
                              .act = FV_ACT_SILU,
                              .rope = {.type = FV_ROPE_DEFAULT,
                                       .theta = 10000,
                                       .section = {s.section[0], s.section[1], s.section[2]},
                                       .interleaved = s.interleaved},
                              .bos = -1}};
    for (int32_t l = 0; l < s.n_layer + s.sharers; l += 2) net->cfg.slides[l] = s.window > 0;
    if (s.sharers) {
        net->cfg.n_sharer = s.sharers;
        net->cfg.d_input = INPUT;
        net->cfg.qk_norm = true;
        net->cfg.slide_d = s.d_head;
        net->cfg.slide_kv = net->cfg.full_kv = s.n_kv;
    }
    size_t q = (size_t)(s.n_head * s.d_head), kv = (size_t)(s.n_kv * s.d_head), dd = (size_t)d;
    if (s.recurrent) {
        net->cfg.recurrent = (fv_recurrent_config){
            .n = s.recurrent, .n_key = 1, .n_value = 2, .d_key = 16, .d_value = 16, .taps = 3};
        net->cfg.gated_attention = net->cfg.norm_plus_one = true;
        net->cfg.rope.rotary = s.d_head / 2;
    }
    size_t layer = 2 * dd + 3 * q * dd + 2 * kv * dd + 3 * dd * (size_t)s.d_ffn;
    layer += (size_t)s.recurrent * recurrent_numbers(&net->cfg);
    const int32_t n_layer = fv_text_layers(&net->cfg);
    size_t all = (size_t)n_layer * layer + 2 * (size_t)s.vocab * dd + dd + input_numbers(&net->cfg);
    float *at = net->storage = malloc(all * sizeof *at);
    net->w.layer = calloc((size_t)n_layer, sizeof *net->w.layer);
    if (!at || !net->w.layer) abort();
    uint64_t state = 7;
    net->w.embed = take(&at, s.vocab, d, &state, 0);
    for (int32_t l = 0; l < n_layer; l++) {
        fv_text_layer *w = &net->w.layer[l];
        w->attn_norm = take(&at, 1, d, &state, 1);
        w->q = take(&at, (s.recurrent ? 2 : 1) * (int32_t)q, d, &state, 0);
        w->k = take(&at, (int32_t)kv, d, &state, 0);
        w->v = take(&at, (int32_t)kv, d, &state, 0);
        w->o = take(&at, d, (int32_t)q, &state, 0);
        w->mlp_norm = take(&at, 1, d, &state, 1);
        w->gate = take(&at, s.d_ffn, d, &state, 0);
        w->up = take(&at, s.d_ffn, d, &state, 0);
        w->down = take(&at, d, s.d_ffn, &state, 0);
    }
    make_recurrent(net, &at, &state);
    make_inputs(net, &at, &state);
    net->w.norm = take(&at, 1, d, &state, 1);
    net->w.head = take(&at, s.vocab, d, &state, 0);
    fv_backend_options opt = {.n_threads = threads, .isa = isa};
    need(fv_backend_open(&net->be, device, &opt));
    need(fv_decoder_open(&net->be, &net->cfg, &net->w, &net->dec));
    fv_latent_info latent = latent_info(s.n_layer, s.n_kv, s.d_head, "", "", "");
    if (s.latent_layers) latent.n_group_layer = s.latent_layers;
    net->latent = latent_open(&latent);
    need(fv_latent_device_open(net->latent, &net->be, &net->there));
    fv_kv_shape shape = {.n_layer = s.n_layer,
                         .n_kv = s.n_kv,
                         .d_head = s.d_head,
                         .dtype = kv_dtype,
                         .latent = net->there.layer,
                         .latent_sum = net->latent->checksum,
                         .state_bytes = fv_recurrent_state_bytes(&net->cfg.recurrent)};
    need(fv_kv_pool_open(net->be.device, &shape, 0, &net->pool));
}

void tiny_net_open(tiny_net *net, tiny_shape s, fv_dtype kv_dtype, const char *isa,
                   int32_t threads) {
    tiny_net_open_on(net, s, kv_dtype, "cpu", isa, threads);
}

void tiny_net_close(tiny_net *net) {
    fv_kv_pool_close(net->pool);
    fv_latent_on_device_close(&net->there);
    fv_latent_close(net->latent);
    fv_decoder_close(net->dec);
    fv_backend_close(&net->be);
    free(net->w.layer);
    free(net->w.recurrent);
    free(net->storage);
}

/* Draws a prompt, except where its images are. */
static void draw_prompt(const tiny_net *net, tiny_prompt *p, int32_t n_rows, int32_t visual,
                        uint64_t seed) {
    size_t n = (size_t)n_rows, d = (size_t)net->cfg.d_model;
    *p = (tiny_prompt){.n = n_rows, .n_visual = visual};
    p->ids = malloc((n + 1) * sizeof *p->ids);
    p->seg = malloc(n + 1);
    p->embeds = malloc(((size_t)visual * d + 1) * sizeof *p->embeds);
    p->logits = malloc((size_t)net->cfg.vocab * sizeof *p->logits);
    if (!p->ids || !p->seg || !p->embeds || !p->logits) abort();
    for (size_t i = 0; i < n; i++)
        p->ids[i] = (int32_t)((draw(&seed) + 1) / 2 * (float)(net->cfg.vocab - 1));
    for (size_t i = 0; i < (size_t)visual * d; i++) p->embeds[i] = draw(&seed);
}

/* Makes the positions of the prompt's images, without those of an answer. */
static void make_map(const tiny_net *net, tiny_prompt *p) {
    if (!fv_rope_has_sections(&net->cfg.rope)) return;
    free(p->grid);
    p->grid = malloc(((size_t)p->n_image + 1) * sizeof *p->grid);
    if (!p->grid) abort();
    need(fv_rope_map_make(p->grid, fv_rope_grids(p->image, p->n_image, p->grid), p->n - p->n_answer,
                          &p->rope_map));
}

static void make_plan(const tiny_net *net, tiny_prompt *p, const char *policy) {
    fv_policy parsed;
    need(fv_policy_parse(policy, &parsed));
    fv_prompt prompt = {.n_visual = p->n_visual,
                        .n_text = p->n - p->n_visual,
                        .n_image = p->n_image,
                        .n_span = p->n_image,
                        .span = p->image};
    fv_plan_shape shape =
        fv_plan_shape_of_net(&net->cfg, fv_kv_pool_shape(net->pool)->dtype, &prompt);
    shape.n_answer = p->n_answer;
    shape.latent_layers = net->latent->info.n_group_layer;
    shape.latent_rank = net->latent->info.n_dir;
    need(fv_plan_make(&parsed, &shape, &p->plan));
    make_map(net, p);
}

/* A square of patches, with the remainder ahead of it. */
static fv_token_span square(int32_t image, int32_t first, int32_t n) {
    int32_t side = 0;
    while ((side + 1) * (side + 1) <= n) side++;
    return (fv_token_span){.first = first,
                           .n = n,
                           .image = image,
                           .t = 1,
                           .h = side,
                           .w = side,
                           .ahead = n - side * side};
}

static fv_token_span whole_grid(int32_t image, int32_t first, int32_t n) {
    fv_token_span s = square(image, first, n);
    while (n % s.h) s.h--;
    s.w = n / s.h;
    s.ahead = 0;
    return s;
}

void tiny_prompt_lay(const tiny_net *net, tiny_prompt *p, const char *layout, uint64_t seed,
                     const char *policy) {
    int32_t n = 0, n_visual = 0, length, read, at = 0;
    char kind;
    for (const char *s = layout; sscanf(s, " %c%d%n", &kind, &length, &read) == 2; s += read) {
        n += length;
        n_visual += kind == 'v' ? length : 0;
    }
    draw_prompt(net, p, n, n_visual, seed);
    p->image = malloc((strlen(layout) + 1) * sizeof *p->image);
    if (!p->image) abort();
    for (const char *s = layout; sscanf(s, " %c%d%n", &kind, &length, &read) == 2; s += read) {
        if (kind == 'v' && length > 0) {
            p->image[p->n_image] = (fv_rope_has_sections(&net->cfg.rope) ? whole_grid : square)(
                p->n_image, at, length);
            p->n_image++;
        }
        for (int32_t end = at + length; at < end; at++)
            p->seg[at] = kind == 'v' ? FV_SEG_VISUAL : FV_SEG_TEXT;
    }
    make_plan(net, p, policy);
}

void tiny_prompt_make(const tiny_net *net, tiny_prompt *p, int32_t before, int32_t visual,
                      int32_t after, uint64_t seed, const char *policy) {
    char layout[64];
    snprintf(layout, sizeof layout, "t%d v%d t%d", before, visual, after);
    tiny_prompt_lay(net, p, layout, seed, policy);
}

void tiny_prompt_again(const tiny_net *net, tiny_prompt *q, const tiny_prompt *p,
                       const char *policy, const int32_t *more, int32_t n_more) {
    int32_t before = 0;
    while (before < p->n && p->seg[before] == FV_SEG_TEXT) before++;
    tiny_prompt_make(net, q, before, p->n_visual, p->n - before - p->n_visual + n_more, 1, policy);
    q->n_answer = n_more;
    make_plan(net, q, policy);
    memcpy(q->ids, p->ids, (size_t)p->n * sizeof *q->ids);
    memcpy(q->ids + p->n, more, (size_t)n_more * sizeof *more);
    memcpy(q->embeds, p->embeds, (size_t)(p->n_visual * net->cfg.d_model) * sizeof *q->embeds);
}

void tiny_prompt_free(tiny_prompt *p) {
    fv_kv_close(p->kv);
    free(p->ids);
    free(p->seg);
    free(p->image);
    free(p->grid);
    free(p->embeds);
    free(p->logits);
}

/* A prompt's embeddings, on the device. */
static fv_status embeds_there(tiny_net *net, const tiny_prompt *p, fv_buf *buf, fv_tensor *out) {
    size_t bytes = (size_t)(p->n_visual * net->cfg.d_model) * sizeof *p->embeds;
    FV_TRY(fv_buf_alloc(net->be.device, bytes + 1, FV_BUF_DEVICE, buf));
    *out = fv_tensor_of(buf->data, FV_F32, p->n_visual, net->cfg.d_model);
    return bytes ? fv_device_copy(net->be.device, buf->data, p->embeds, bytes) : FV_OK;
}

static void keep_row_logits(void *user, int32_t pos, const float *logits) {
    const tiny_prompt *p = user;
    const size_t vocab = (size_t)p->vocab;
    memcpy(p->row_logits + (size_t)pos * vocab, logits, vocab * sizeof *logits);
}

fv_status tiny_prefill(tiny_net *net, tiny_prompt *p, int32_t n, int32_t chunk) {
    size_t vocab = (size_t)net->cfg.vocab;
    fv_prefill_request *req = calloc((size_t)n, sizeof *req);
    fv_buf *embeds = calloc((size_t)n, sizeof *embeds);
    float *logits = malloc((size_t)n * vocab * sizeof *logits);
    fv_status st = FV_OK;
    if (!req || !embeds || !logits) abort();
    for (int32_t b = 0; b < n; b++) {
        p[b].packed = (fv_pack_report){0};
        if (!p[b].kv) need(fv_kv_open(net->pool, &p[b].kv));
        req[b] = (fv_prefill_request){.n = p[b].n,
                                      .n_answer = p[b].n_answer,
                                      .ids = p[b].ids,
                                      .seg = p[b].seg,
                                      .rope_map = p[b].rope_map,
                                      .plan = &p[b].plan,
                                      .kv = p[b].kv,
                                      .visual_mass = p[b].visual_mass,
                                      .visual_tokens = p[b].visual_tokens,
                                      .pruned = p[b].pruned,
                                      .ranked = p[b].watch ? fv_kept_map_ranked : NULL,
                                      .ranked_user = p[b].watch,
                                      .row_logits = p[b].row_logits ? keep_row_logits : NULL,
                                      .row_logits_user = &p[b],
                                      .packed = &p[b].packed};
        p[b].vocab = net->cfg.vocab;
        if (st == FV_OK) st = embeds_there(net, &p[b], &embeds[b], &req[b].embeds);
    }
    fv_prefill_options opt = net->prefill;
    opt.chunk = chunk;
    if (st == FV_OK) st = fv_prefill_run(net->dec, req, n, &opt, logits);
    for (int32_t b = 0; b < n && st == FV_OK; b++)
        memcpy(p[b].logits, logits + (size_t)b * vocab, vocab * sizeof *logits);
    for (int32_t b = 0; b < n; b++) fv_buf_free(&embeds[b]);
    free(embeds);
    free(req);
    free(logits);
    return st;
}

fv_status tiny_step(tiny_net *net, tiny_prompt **p, int32_t n, const int32_t *ids, int32_t n_ids,
                    int32_t pos_offset) {
    size_t vocab = (size_t)net->cfg.vocab;
    fv_model_runner *runner;
    need(fv_model_runner_open(net->dec, &runner));
    fv_step_seq *seq = calloc((size_t)n, sizeof *seq);
    float *logits = malloc((size_t)n * vocab * sizeof *logits);
    if (!seq || !logits) abort();
    for (int32_t b = 0; b < n; b++)
        seq[b] = (fv_step_seq){.kv = p[b]->kv, .n = n_ids, .ids = ids, .pos = p[b]->n + pos_offset};
    fv_status st = fv_model_runner_run(runner, seq, n, logits);
    for (int32_t b = 0; b < n && st == FV_OK; b++)
        memcpy(p[b]->logits, logits + (size_t)b * vocab, vocab * sizeof *logits);
    free(seq);
    free(logits);
    fv_model_runner_close(runner);
    return st;
}

bool same_bits(const float *a, const float *b, size_t n) {
    return memcmp(a, b, n * sizeof *a) == 0;
}
