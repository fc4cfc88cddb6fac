/* LLaVA-1.5-7B with random weights: prompts, the cost of packing in them, decode steps, TTFT.
 *
 * A step's floor is the bytes of all weights except the embedding and of its sequences' keys and
 * values, over the copy rate; a step is timed between events and includes the host's work. A
 * prompt's floor is its flop over the product rate. All layers are copies of one, in separate
 * memory: times do not depend on values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/rig.h"
#include "kv/kv.h"
#include "model/net/decoder.h"
#include "model/net/step.h"
#include "model/net/vision.h"
#include "prefill-worker/prefill/prefill.h"

enum { MAX_ROWS = 4096, MAX_BATCH = 64, STEPS = 15, CONTEXT = 640, TEXT_ROWS = 64, GROUP = 4 };

typedef struct shapes {
    fv_vision_config vision;
    fv_text_config text;
} shapes;

typedef struct network {
    shapes cfg;
    fv_text_weights text;
    fv_vision_weights tower;
    fv_projector_weights projector;
    fv_decoder *dec;
    fv_vision *vision;
    fv_model_runner *runner;
    fv_kv_pool *pool;
    int32_t *ids, *pos; /* [MAX_ROWS] */
    uint8_t *seg;       /* [MAX_ROWS] all text */
    fv_buf x, logits;   /* [MAX_ROWS, d]; pinned [MAX_BATCH, vocab] */
    double weights;     /* bytes that a step reads */
} network;

/* ---- shapes and weights ------------------------------------------------------------------ */

static shapes shape(void) {
    shapes c;
    c.vision = (fv_vision_config){.d_model = 1024,
                                  .d_ffn = 4096,
                                  .n_layer = 24,
                                  .n_head = 16,
                                  .d_head = 64,
                                  .image = 336,
                                  .patch = 14,
                                  .ln_eps = 1e-5f,
                                  .act = FV_ACT_QUICK_GELU,
                                  .class_token = true,
                                  .pre_norm = true,
                                  .n_feature_layer = 1,
                                  .merge = 1,
                                  .projector_act = FV_ACT_GELU,
                                  .projector_bias = true};
    c.text = (fv_text_config){.family = "llama",
                              .vocab = 32064,
                              .d_model = 4096,
                              .d_ffn = 11008,
                              .n_layer = 32,
                              .n_head = 32,
                              .n_kv = 32,
                              .d_head = 128,
                              .max_position = 2 * MAX_ROWS,
                              .rms_eps = 1e-5f,
                              .act = FV_ACT_SILU,
                              .rope = {.theta = 10000}};
    if (rig.small) {
        c.vision.d_model = 32, c.vision.d_ffn = 48, c.vision.n_layer = 2, c.vision.n_head = 2;
        c.vision.d_head = 16, c.vision.image = 28;
        c.text.vocab = 100, c.text.d_model = 128, c.text.d_ffn = 96, c.text.n_layer = 2;
        c.text.n_head = c.text.n_kv = 2, c.text.d_head = 64;
    }
    c.vision.d_text = c.text.d_model;
    c.vision.feature_layer[0] = c.vision.n_layer - 1;
    return c;
}

static fv_tensor weight(int32_t rows, int32_t cols) {
    return bench_host_tensor(FV_BF16, rows, cols);
}

static void make_text(network *n) {
    const fv_text_config *c = &n->cfg.text;
    int32_t d = c->d_model, heads = c->n_head * c->d_head, kv = c->n_kv * c->d_head;
    fv_text_layer layer = {.attn_norm = weight(1, d),
                           .q = weight(heads, d),
                           .k = weight(kv, d),
                           .v = weight(kv, d),
                           .o = weight(d, heads),
                           .mlp_norm = weight(1, d),
                           .gate = weight(c->d_ffn, d),
                           .up = weight(c->d_ffn, d),
                           .down = weight(d, c->d_ffn)};
    n->text = (fv_text_weights){.embed = weight(c->vocab, d),
                                .layer = zeroed((size_t)c->n_layer, sizeof layer),
                                .norm = weight(1, d),
                                .head = weight(c->vocab, d)};
    for (int32_t l = 0; l < c->n_layer; l++) n->text.layer[l] = layer;
    n->weights = 2.0 * ((double)c->n_layer * ((2.0 * heads + 2.0 * kv + 3.0 * c->d_ffn) * d) +
                        (double)c->vocab * d);
}

static void make_vision(network *n) {
    const fv_vision_config *c = &n->cfg.vision;
    int32_t d = c->d_model, m = c->d_ffn, P = fv_vision_tokens(&n->cfg.vision);
    fv_vision_layer layer = {.norm1 = weight(1, d),
                             .norm1_bias = weight(1, d),
                             .norm2 = weight(1, d),
                             .norm2_bias = weight(1, d),
                             .q = weight(d, d),
                             .k = weight(d, d),
                             .v = weight(d, d),
                             .o = weight(d, d),
                             .q_bias = weight(1, d),
                             .k_bias = weight(1, d),
                             .v_bias = weight(1, d),
                             .o_bias = weight(1, d),
                             .fc1 = weight(m, d),
                             .fc1_bias = weight(1, m),
                             .fc2 = weight(d, m),
                             .fc2_bias = weight(1, d)};
    n->tower = (fv_vision_weights){.cls = weight(1, d),
                                   .patch = weight(d, 3 * c->patch * c->patch),
                                   .position = weight(1 + P, d),
                                   .pre_norm = weight(1, d),
                                   .pre_norm_bias = weight(1, d),
                                   .layer = zeroed((size_t)c->n_layer, sizeof layer)};
    for (int32_t l = 0; l < c->n_layer; l++) n->tower.layer[l] = layer;
    int32_t d_text = n->cfg.text.d_model;
    n->projector = (fv_projector_weights){.fc1 = weight(d_text, d),
                                          .fc1_bias = weight(1, d_text),
                                          .fc2 = weight(d_text, d_text),
                                          .fc2_bias = weight(1, d_text)};
}

static void open_network(network *n) {
    fv_backend *be = &rig.be;
    *n = (network){.cfg = shape()};
    const fv_text_config *c = &n->cfg.text;
    fv_kv_shape kv = {
        .n_layer = c->n_layer, .n_kv = c->n_kv, .d_head = c->d_head, .dtype = FV_BF16};
    make_text(n);
    make_vision(n);
    must(fv_decoder_open(be, c, &n->text, &n->dec));
    must(fv_vision_open(be, &n->cfg.vision, &n->tower, &n->projector, &n->vision));
    must(fv_model_runner_open(n->dec, &n->runner));
    must(fv_kv_pool_open(be->device, &kv, 0, &n->pool));
    n->ids = zeroed(MAX_ROWS, sizeof *n->ids);
    n->pos = zeroed(MAX_ROWS, sizeof *n->pos);
    n->seg = zeroed(MAX_ROWS, 1);
    for (int32_t i = 0; i < MAX_ROWS; i++) {
        n->ids[i] = (int32_t)(i * 7919LL % c->vocab);
        n->pos[i] = i;
        n->seg[i] = FV_SEG_TEXT;
    }
    must(fv_buf_alloc(be->device, (size_t)MAX_ROWS * (size_t)c->d_model * 4, FV_BUF_DEVICE, &n->x));
    must(fv_buf_alloc(be->device, (size_t)MAX_BATCH * (size_t)c->vocab * 4, FV_BUF_PINNED,
                      &n->logits));
}

static void free_fields(void *tensors, size_t bytes) {
    fv_tensor *t = tensors;
    for (size_t i = 0; i < bytes / sizeof *t; i++) free(t[i].data);
}

static void close_network(network *n) {
    fv_kv_pool_close(n->pool);
    fv_model_runner_close(n->runner);
    fv_decoder_close(n->dec);
    fv_vision_close(n->vision);
    fv_buf_free(&n->x);
    fv_buf_free(&n->logits);
    free_fields(&n->text.layer[0], sizeof n->text.layer[0]);
    free_fields(&n->tower.layer[0], sizeof n->tower.layer[0]);
    free_fields(&n->projector, sizeof n->projector);
    fv_tensor rest[] = {n->text.embed,     n->text.norm,          n->text.head,
                        n->tower.cls,      n->tower.patch,        n->tower.position,
                        n->tower.pre_norm, n->tower.pre_norm_bias};
    free_fields(rest, sizeof rest);
    free(n->text.layer);
    free(n->tower.layer);
    free(n->ids);
    free(n->pos);
    free(n->seg);
}

/* ---- prompts ----------------------------------------------------------------------------- */

static double multiply_adds(const network *n, double rows) {
    const fv_text_config *c = &n->cfg.text;
    double d = c->d_model, heads = (double)c->n_head * c->d_head, kv = (double)c->n_kv * c->d_head;
    return c->n_layer * rows * ((2 * heads + 2 * kv + 3.0 * c->d_ffn) * d + (rows + 1) * heads);
}

/* Runs `rows` rows of n->x through all layers into kv, and computes the logits of the last row. */
static fv_status run_prompt(network *n, fv_kv *kv, int32_t rows) {
    fv_forward_seq seq = {.kv = kv, .n_rows = rows, .pos = n->pos, .seg = n->seg, .wanted = 1};
    fv_forward_batch pass = {
        .x = fv_tensor_of(n->x.data, FV_F32, rows, n->cfg.text.d_model), .n_seq = 1, .seq = &seq};
    FV_TRY(fv_decoder_layers(n->dec, &pass, 0, n->cfg.text.n_layer));
    return fv_decoder_logits(n->dec, pass.out, n->logits.data);
}

static fv_status embed(network *n, int32_t rows) {
    return fv_decoder_embed(n->dec, n->ids, rows,
                            fv_tensor_of(n->x.data, FV_F32, rows, n->cfg.text.d_model));
}

typedef struct prompt {
    network *n;
    int32_t rows;
    float *pixels; /* of one image; NULL: text only */
} prompt;

static fv_status do_prompt(void *arg, int32_t call) {
    prompt *p = arg;
    network *n = p->n;
    fv_kv *kv;
    (void)call;
    FV_TRY(fv_kv_open(n->pool, &kv));
    fv_status st = embed(n, p->rows);
    if (st == FV_OK && p->pixels) {
        int32_t visual = fv_vision_tokens(&n->cfg.vision);
        fv_vision_out out = {.embeds =
                                 fv_tensor_of(n->x.data, FV_F32, visual, n->cfg.text.d_model)};
        st = fv_vision_encode(n->vision, p->pixels, 1, &out);
    }
    if (st == FV_OK) st = run_prompt(n, kv, p->rows);
    fv_kv_close(kv);
    return st;
}

static void prompts(network *n) {
    static const int32_t rows[] = {640, 1024, 2048, 4096};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        prompt p = {.n = n, .rows = rig.small ? 9 : rows[i]};
        char key[32], name[64];
        snprintf(key, sizeof key, "net_prefill_%d", rows[i]);
        snprintf(name, sizeof name, "prefill, %d rows", p.rows);
        double flop = 2 * multiply_adds(n, p.rows);
        bench_row(key, name, bench_seconds(do_prompt, &p, 1), n->weights, flop, AIM_PREFILL);
    }
}

static void first_token(network *n) {
    int32_t side = n->cfg.vision.image, rows = fv_vision_tokens(&n->cfg.vision) + TEXT_ROWS;
    size_t count = (size_t)(3 * side) * (size_t)side;
    prompt p = {.n = n, .rows = rows, .pixels = zeroed(count, sizeof(float))};
    char name[64];
    for (size_t i = 0; i < count; i++) p.pixels[i] = (float)(i * 7919 % 2048) / 1024 - 1;
    snprintf(name, sizeof name, "first token, a picture and %d of text", TEXT_ROWS);
    bench_row("ttft", name, bench_seconds(do_prompt, &p, 1), n->weights, 2 * multiply_adds(n, rows),
              NO_AIM);
    free(p.pixels);
}

/* ---- packing ----------------------------------------------------------------------------- */

typedef struct packing {
    network *n;
    int32_t visual;
    fv_plan plan;
} packing;

/* Prefills `visual` rows of an image and some text as a prefill worker does: one group of layers is
 * packed while the next is computed. */
static fv_status do_stages(void *arg, int32_t call) {
    packing *p = arg;
    network *n = p->n;
    static fv_pack_report report;
    fv_prefill_options opt = {.group = rig.small ? 1 : GROUP};
    fv_prefill_request req = {.n = p->visual + TEXT_ROWS,
                              .ids = n->ids,
                              .seg = n->seg,
                              .embeds =
                                  fv_tensor_of(n->x.data, FV_F32, p->visual, n->cfg.text.d_model),
                              .plan = &p->plan,
                              .packed = &report};
    (void)call;
    report = (fv_pack_report){0};
    FV_TRY(fv_kv_open(n->pool, &req.kv));
    fv_status st = fv_prefill_run(n->dec, &req, 1, &opt, n->logits.data);
    fv_kv_close(req.kv);
    if (st == FV_OK && report.status != FV_OK) return FV_FAIL(report.status, "%s", report.text);
    if (st == FV_OK && fv_plan_packs_any(&p->plan) && report.layer[0].rank[FV_PACKED_K] == 0)
        return FV_FAIL(FV_EINVAL, "nothing was packed");
    return st;
}

static double time_stages(packing *p, const char *policy) {
    const fv_text_config *c = &p->n->cfg.text;
    fv_policy parsed;
    fv_plan_shape shape = {.n_layer = c->n_layer,
                           .n_kv = c->n_kv,
                           .d_head = c->d_head,
                           .bytes_value = 2,
                           .n_visual = p->visual,
                           .n_text = TEXT_ROWS};
    must(fv_policy_parse(policy, &parsed));
    must(fv_plan_make(&parsed, &shape, &p->plan));
    return bench_seconds(do_stages, p, 1);
}

static void packing_in_prompts(network *n) {
    static const int32_t visual[] = {576, MAX_ROWS - TEXT_ROWS};
    for (size_t i = 0; i < sizeof visual / sizeof *visual; i++) {
        packing p = {.n = n, .visual = rig.small ? 40 : visual[i]};
        char name[64];
        must(embed(n, p.visual));
        for (int32_t r = 0; r < p.visual + TEXT_ROWS; r++)
            n->seg[r] = r < p.visual ? FV_SEG_VISUAL : FV_SEG_TEXT;
        double exact = time_stages(&p, "");
        snprintf(name, sizeof name, "prefill that packs %d visual rows", p.visual);
        bench_more(name, time_stages(&p, "pack=svd,gain=0"), exact, AIM_COMPACTION);
    }
    memset(n->seg, FV_SEG_TEXT, MAX_ROWS);
}

/* ---- decode steps ------------------------------------------------------------------------ */

typedef struct steps {
    network *n;
    int32_t B, pos; /* pos: next position, the same in all sequences */
    fv_step_seq *seq;
} steps;

static fv_status do_step(steps *s) {
    for (int32_t b = 0; b < s->B; b++) s->seq[b].pos = s->pos;
    s->pos++;
    return fv_model_runner_run(s->n->runner, s->seq, s->B, s->n->logits.data);
}

/* Returns the median step time, each step from event to event. */
static double time_steps(steps *s) {
    fv_device *dev = rig.be.device;
    fv_event at[STEPS + 1] = {0};
    double t[STEPS];
    int32_t n = rig.small ? 2 : STEPS;
    for (int32_t i = 0; i < 3; i++) must(do_step(s)); /* grow memory, capture graphs */
    must(dev->ops->event_record(dev, &at[0]));
    for (int32_t i = 0; i < n; i++) {
        must(do_step(s));
        must(dev->ops->event_record(dev, &at[i + 1]));
    }
    must(dev->ops->event_wait(dev, &at[n]));
    for (int32_t i = 0; i < n; i++) must(dev->ops->event_seconds(dev, &at[i], &at[i + 1], &t[i]));
    for (int32_t i = 0; i <= n; i++) dev->ops->event_free(dev, &at[i]);
    return bench_median(t, n);
}

static void measure_steps(network *n, int32_t B, int32_t context, int32_t aim) {
    const fv_text_config *c = &n->cfg.text;
    char key[32], name[64];
    snprintf(key, sizeof key, "net_step_%d", B);
    if (rig.small) B = B < 3 ? B : 3, context = 9;
    steps s = {.n = n, .B = B, .pos = context, .seq = zeroed((size_t)B, sizeof *s.seq)};
    for (int32_t b = 0; b < B; b++) {
        s.seq[b] = (fv_step_seq){.n = 1, .ids = &n->ids[b]};
        must(fv_kv_open(n->pool, &s.seq[b].kv));
        must(embed(n, context));
        must(run_prompt(n, s.seq[b].kv, context));
    }
    double t = time_steps(&s), rows = s.pos - STEPS / 2.0;
    double kv = (double)B * rows * c->n_layer * c->n_kv * c->d_head * 4;
    snprintf(name, sizeof name, "decode step, %d x %d rows: %.0f tokens/s", B, context, B / t);
    bench_row(key, name, t, n->weights + kv, B * 2.0 * n->weights / 2, aim);
    for (int32_t b = 0; b < B; b++) fv_kv_close(s.seq[b].kv);
    free(s.seq);
}

void bench_network(void) {
    network n;
    open_network(&n);
    prompts(&n);
    first_token(&n);
    packing_in_prompts(&n);
    measure_steps(&n, 1, CONTEXT, NO_AIM);
    measure_steps(&n, 16, CONTEXT, AIM_STEP);
    measure_steps(&n, 64, CONTEXT, AIM_STEP);
    close_network(&n);
}
