/* Takes the sections of the whole prompt. For the pool's thread. */
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/internal.h"

fv_status fv_import_take_hello(fv_import *l, const fv_section *s) {
    fv_hello h;
    size_t n_policy;
    FV_TRY(fv_hello_get(l->payload, (size_t)s->length, &h, &n_policy));
    if (h.compat.hash != l->hello.compat.hash || h.n_reused_text != l->hello.n_reused_text ||
        h.bytes_visual != l->hello.bytes_visual || h.bytes_tables != l->hello.bytes_tables ||
        h.n_text != l->hello.n_text || h.n_visual != l->hello.n_visual ||
        h.max_tokens != l->max_tokens || memcmp(h.policy, l->hello.policy, n_policy) != 0)
        return FV_REFUSE(MALFORMED, "the stream is not the one that the grant was given for");
    return FV_OK;
}

static fv_status take_sampling(fv_import *l, const fv_wire_sampling *w) {
    if (w->n_bias > FV_MAX_LOGIT_BIAS)
        return FV_REFUSE(MALFORMED, "%d logit biases are too many", w->n_bias);
    l->got.sampling = (fv_sampling){.repetition_penalty = w->repetition_penalty,
                                    .frequency_penalty = w->frequency_penalty,
                                    .presence_penalty = w->presence_penalty,
                                    .temperature = w->temperature,
                                    .min_p = w->min_p,
                                    .top_k = w->top_k,
                                    .top_p = w->top_p,
                                    .seed = w->seed,
                                    .n_logprobs = w->n_logprobs,
                                    .n_bias = w->n_bias};
    memcpy(l->got.sampling.bias, w->bias, (size_t)w->n_bias * sizeof *l->got.sampling.bias);
    return fv_sampling_check(&l->got.sampling);
}

fv_status fv_import_take_prompt(fv_import *l, const fv_section *s) {
    fv_wire_prompt w;
    FV_TRY(fv_wire_prompt_get(l->payload, (size_t)s->length, &w));
    FV_TRY(take_sampling(l, &w.sampling));
    if (w.next < (int32_t)w.n || (int64_t)w.next + l->max_tokens > l->opt->max_position)
        return FV_REFUSE(MALFORMED, "the answer starts at position %d after %u tokens", w.next,
                         w.n);
    l->got.n = (int32_t)w.n;
    l->got.next = w.next;
    l->got.ids = malloc((size_t)w.n * 4);
    l->got.seg = malloc(w.n);
    if (!l->got.ids || !l->got.seg)
        return FV_FAIL(FV_ENOMEM, "out of memory for a prompt of %u tokens", w.n);
    memcpy(l->got.ids, w.ids, (size_t)w.n * 4);
    memcpy(l->got.seg, w.seg, w.n);
    uint32_t n[FV_N_SEG] = {0};
    for (uint32_t i = 0; i < w.n; i++) {
        if (w.seg[i] >= FV_N_SEG)
            return FV_REFUSE(MALFORMED, "prompt token %u has the unknown segment %d", i, w.seg[i]);
        n[w.seg[i]]++;
        int32_t id = l->got.ids[i];
        if (w.seg[i] == FV_SEG_TEXT && (id < 0 || id >= l->opt->n_vocab))
            return FV_REFUSE(MALFORMED, "prompt token %u has the id %d, outside the vocabulary", i,
                             id);
    }
    if (n[FV_SEG_TEXT] != l->hello.n_text)
        return FV_REFUSE(MALFORMED, "the prompt has %u text tokens, but %u were announced",
                         n[FV_SEG_TEXT], l->hello.n_text);
    return FV_OK;
}

/* Refuses a grid with text tokens in it. */
static fv_status check_grid(const fv_import *l, const fv_rope_grid *g) {
    for (int32_t i = 0; i < g->t * g->h * g->w; i++)
        if (l->got.seg[g->first + i] != FV_SEG_VISUAL)
            return FV_REFUSE(MALFORMED, "prompt token %d is text inside a grid", g->first + i);
    return FV_OK;
}

fv_status fv_import_take_grids(fv_import *l, const fv_section *s) {
    fv_rope_map map;
    fv_rope_grid *grid = malloc(s->dims[0] * sizeof *grid);
    if (!grid) return FV_FAIL(FV_ENOMEM, "out of memory for %u grids", s->dims[0]);
    fv_status st = fv_wire_grids_get(l->payload, s->dims[0], (uint32_t)l->got.n, grid, &map);
    for (uint32_t i = 0; i < s->dims[0] && st == FV_OK; i++) st = check_grid(l, &grid[i]);
    if (st == FV_OK) st = fv_kv_set_rope_map(l->got.kv, &map);
    free(grid);
    return st;
}

fv_status fv_import_take_token(fv_import *l) {
    l->got.first = fv_first_token_get(l->payload);
    FV_TRY(fv_import_take_rest(l));
    if (l->got.first.id < 0 || l->got.first.id >= l->opt->n_vocab)
        return FV_REFUSE(MALFORMED, "the first token's id is %d, outside the vocabulary",
                         l->got.first.id);
    return FV_OK;
}
