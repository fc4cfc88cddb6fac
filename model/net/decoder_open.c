/* Opens a decoder: its weights on the device, and those that differ from the file's: factors of norms,
 * rows of scales. */
#include <math.h>
#include <stdlib.h>

#include "common/convert.h"
#include "model/net/experts.h"
#include "model/net/heads_internal.h"
#include "model/net/layer_inputs_internal.h"
#include "model/net/recurrent_internal.h"

/* The norm's factors: w itself, or 1 + w computed into *at. */
static fv_tensor factors_of(const fv_decoder *dec, fv_tensor w, float **at) {
    if (!dec->cfg->norm_plus_one || !w.data) return w;
    fv_tensor made = fv_tensor_of(*at, FV_F32, 1, w.cols);
    widen_row(w.data, w.dtype, (size_t)w.cols, *at);
    for (int32_t i = 0; i < w.cols; i++) *(*at)++ += 1.0f;
    return made;
}

/* The factors of the last norm: those of the head's input, divided as the logits are. */
static fv_tensor last_factors(const fv_decoder *dec, fv_tensor w, float **at) {
    if (dec->cfg->logits_divisor == 0) return factors_of(dec, w, at);
    fv_tensor made = fv_tensor_of(*at, FV_F32, 1, w.cols);
    widen_row(w.data, w.dtype, (size_t)w.cols, *at);
    for (int32_t i = 0; i < w.cols; i++) *(*at)++ /= dec->cfg->logits_divisor;
    return made;
}

/* Makes a row of d equal factors; absent where the factor is 0, which stands for 1. */
static fv_status equal_factors(fv_decoder *dec, float factor, float **at, fv_tensor *out) {
    fv_tensor row = fv_tensor_of(*at, FV_F32, 1, dec->cfg->d_model);
    if (factor == 0) return FV_OK;
    for (int32_t i = 0; i < row.cols; i++) *(*at)++ = factor;
    return fv_workspace_weight(&dec->ws, &row, out);
}

/* Makes a row of d factors that are all the number in *w. */
static void widen_scale(const fv_decoder *dec, fv_tensor *w, float **at) {
    fv_tensor made = fv_tensor_of(*at, FV_F32, 1, dec->cfg->d_model);
    float scale;
    if (!w->data) return;
    widen_row(w->data, w->dtype, 1, &scale);
    for (int32_t i = 0; i < made.cols; i++) *(*at)++ = scale;
    *w = made;
}

/* Makes the router's norm, whose factors are the file's times d^-1/2, and the experts' factors in F32. */
static void make_router(const fv_decoder *dec, fv_text_layer *w, float **at) {
    const int32_t d = dec->cfg->d_model, n = dec->cfg->n_expert;
    const float by = 1 / sqrtf((float)d);
    const fv_tensor norm = fv_tensor_of(*at, FV_F32, 1, d),
                    scale = fv_tensor_of(*at + d, FV_F32, 1, n);
    widen_row(w->router_norm.data, w->router_norm.dtype, (size_t)d, *at);
    widen_row(w->expert_scale.data, w->expert_scale.dtype, (size_t)n, *at + d);
    for (int32_t i = 0; i < d; i++) (*at)[i] *= by;
    w->router_norm = norm;
    w->expert_scale = scale;
    *at += d + n;
}

/* Makes the router's bias in F32. */
static void widen_bias(fv_tensor *w, float **at) {
    const fv_tensor made = fv_tensor_of(*at, FV_F32, 1, w->cols);
    if (!w->data) return;
    widen_row(w->data, w->dtype, (size_t)w->cols, *at);
    *at += w->cols;
    *w = made;
}

static fv_status load_layer(fv_decoder *dec, fv_text_layer in, fv_text_layer *out, float **at) {
    /* A layer is nothing but tensors, so both sides are walked as arrays of them. */
    _Static_assert(sizeof(fv_text_layer) % sizeof(fv_tensor) == 0, "tensors only");
    const fv_tensor *from = (const fv_tensor *)&in;
    fv_tensor *to = (fv_tensor *)out,
              *norms[] = {&in.attn_norm, &in.mlp_norm,       &in.q_norm,
                          &in.k_norm,    &in.attn_post_norm, &in.mlp_post_norm};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        *norms[i] = factors_of(dec, *norms[i], at);
    if (dec->cfg->rope.rotary && !dec->cfg->rope.adjacent && in.q_norm.data) {
        FV_TRY(fv_heads_arrange_host(dec->cfg, in.q_norm.data));
        FV_TRY(fv_heads_arrange_host(dec->cfg, in.k_norm.data));
    }
    widen_scale(dec, &in.scale, at);
    widen_bias(&in.router_bias, at);
    if (in.router_norm.data) make_router(dec, &in, at);
    if (in.delta_qkv.data) fv_recurrent_weights(&dec->cfg->recurrent, &in, at);
    for (size_t i = 0; i < sizeof in / sizeof *from; i++)
        FV_TRY(fv_workspace_weight(&dec->ws, &from[i], &to[i]));
    return FV_OK;
}

/* Allocates memory for factors that differ from the file: rows of embed_scale and residual_scale,
 * 1 + w, and the last norm's. */
static fv_status make_factors(fv_decoder *dec, float **at) {
    const fv_text_config *c = dec->cfg;
    size_t d = (size_t)c->d_model, layer = c->norm_plus_one ? 4 * d + 2 * (size_t)c->d_head : 0;
    layer += (size_t)c->recurrent.n * (2 * d + fv_recurrent_made(&c->recurrent));
    const size_t n_layer = (size_t)fv_text_layers(c), p = (size_t)c->d_input;
    layer += c->layer_scale ? d : 0;
    layer += c->dense_beside ? d + (size_t)c->n_expert : 0;
    layer += c->router.sigmoid ? (size_t)c->n_expert : 0;
    const int32_t D = c->d_head, q = c->n_head * D;
    const size_t heads = fv_heads_vary(c) ? (size_t)D + (size_t)q : 0;
    *at = dec->made = malloc((3 * d + heads + 3 * p + n_layer * layer) * sizeof *dec->made);
    if (!dec->made) return FV_FAIL(FV_ENOMEM, "out of memory for the norms' factors");
    if (heads) {
        const fv_tensor ones = fv_tensor_of(*at, FV_F32, 1, D),
                        zeros = fv_tensor_of(*at + D, FV_F32, 1, q);
        for (size_t i = 0; i < heads; i++) *(*at)++ = i < (size_t)D ? 1.0F : 0.0F;
        FV_TRY(fv_workspace_weight(&dec->ws, &ones, &dec->ones));
        FV_TRY(fv_workspace_weight(&dec->ws, &zeros, &dec->zeros));
    }
    if (p) FV_TRY(fv_layer_inputs_open(dec, at));
    FV_TRY(equal_factors(dec, c->embed_scale, at, &dec->factor));
    return equal_factors(dec, c->residual_scale, at, &dec->residual);
}

static fv_status load_weights(fv_decoder *dec, const fv_text_weights *host) {
    float *at = NULL;
    FV_TRY(make_factors(dec, &at));
    fv_tensor norm = last_factors(dec, host->norm, &at);
    FV_TRY(fv_workspace_weight(&dec->ws, &host->embed, &dec->w.embed));
    FV_TRY(fv_workspace_weight(&dec->ws, &norm, &dec->w.norm));
    if (host->head.data == host->embed.data)
        dec->w.head = dec->w.embed;
    else
        FV_TRY(fv_workspace_weight(&dec->ws, &host->head, &dec->w.head));
    dec->w.input_table = host->input_table; /* stays where it is */
    FV_TRY(fv_workspace_weight(&dec->ws, &host->input_norm, &dec->w.input_norm));
    const int32_t n_layer = fv_text_layers(dec->cfg), p = dec->cfg->d_input;
    dec->w.layer = calloc((size_t)n_layer, sizeof *dec->w.layer);
    if (!dec->w.layer) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    for (int32_t l = 0; l < n_layer; l++) {
        fv_text_layer layer = host->layer[l];
        if (p) layer.input_rows = fv_tensor_rows(host->input_project, l * p, p);
        FV_TRY(load_layer(dec, layer, &dec->w.layer[l], &at));
    }
    dec->w.expert = host->expert; /* experts are in the host's memory (fv_experts_check) */
    int32_t n_recurrent = dec->cfg->n_layer * dec->cfg->recurrent.n;
    if (n_recurrent == 0) return FV_OK;
    dec->w.recurrent = calloc((size_t)n_recurrent, sizeof *dec->w.recurrent);
    if (!dec->w.recurrent) return FV_FAIL(FV_ENOMEM, "out of memory for the list of layers");
    for (int32_t i = 0; i < n_recurrent; i++)
        FV_TRY(load_layer(dec, host->recurrent[i], &dec->w.recurrent[i], &at));
    return FV_OK;
}

fv_status fv_decoder_open(fv_backend *be, const fv_text_config *cfg, const fv_text_weights *host,
                          fv_decoder **out) {
    if (cfg->recurrent.n && be->device != fv_device_host())
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "this model has recurrent layers, which %s does not compute: use --device cpu",
            be->ops->name);
    if (cfg->d_input && be->device != fv_device_host())
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "this model has per-layer embeddings, which %s does not compute: use --device cpu",
            be->ops->name);
    fv_decoder *dec = calloc(1, sizeof *dec);
    if (!dec) return FV_FAIL(FV_ENOMEM, "out of memory for the decoder");
    *dec = (fv_decoder){.be = be,
                        .cfg = cfg,
                        .ws = {.be = be},
                        .head_ws = {.be = be},
                        .experts_ws = {.be = be},
                        .adapter_ws = {.be = be}};
    fv_rope_init(&dec->rope[0], &cfg->rope, cfg->d_head);
    if (fv_text_ropes(cfg) > 1)
        fv_rope_init(&dec->rope[1], cfg->two_ropes ? &cfg->rope_slides : &cfg->rope, cfg->d_head);
    fv_status st = cfg->n_expert ? fv_experts_check(be) : FV_OK;
    if (st == FV_OK) st = load_weights(dec, host);
    if (st != FV_OK) {
        fv_decoder_close(dec);
        return st;
    }
    *out = dec;
    return FV_OK;
}

void fv_decoder_close(fv_decoder *dec) {
    if (!dec) return;
    fv_workspace_fini(&dec->ws);
    fv_workspace_fini(&dec->head_ws);
    fv_workspace_fini(&dec->experts_ws);
    fv_workspace_fini(&dec->adapter_ws);
    fv_arena_fini(&dec->host);
    free(dec->w.layer);
    free(dec->w.recurrent);
    free(dec->adjacent);
    free(dec->made);
    free(dec);
}

const fv_text_config *fv_decoder_config(const fv_decoder *dec) { return dec->cfg; }

fv_backend *fv_decoder_backend(const fv_decoder *dec) { return dec->be; }
