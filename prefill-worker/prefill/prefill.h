#ifndef FOVEA_PREFILL_WORKER_PREFILL_PREFILL_H
#define FOVEA_PREFILL_WORKER_PREFILL_PREFILL_H

/* PREFILL: prompts in, filled KV stores and the logits after each last token out.
 *
 * A ragged batch of prompts runs as one list of tokens. Layers are divided into phases, which end where a
 * plan drops tokens, and phases into groups. All tokens run through a group, in
 * chunks of any size, before any runs through the next: the group's KV is then
 * final, and can be sent while later layers are computed. Neither the chunk size nor the group size
 * nor the other prompts of the batch change a bit of any result. */
#include "model/net/decoder.h"
#include "prefill-worker/pack/pack.h"

typedef struct fv_prefill_request {
    int32_t n;          /* prompt tokens, images expanded */
    int32_t n_answer;   /* the last n_answer of them are an interrupted answer: they choose nothing,
                         * and see no more than they did (fv_plan.evict), so that the answer
                         * continues as if never interrupted */
    const int32_t *ids; /* [n]; ignored at visual tokens, unless */
    bool visual_ids;    /* visual tokens are text and embedded by these; embeds has no data */
    const uint8_t *seg; /* [n] fv_kv_segment */
    fv_rope_map rope_map; /* of the prompt; {0}: tokens are rotated by their positions in it */
    fv_tensor embeds;     /* [visual tokens, d] F32 on the device, in prompt order; with deepstack
                           * [.., (1 + k) d]: part i is added after layer i - 1 */
    const fv_plan *plan;  /* made for this prompt */
    fv_kv *kv;            /* open and empty; filled */
    /* Rows [0, n_kept) are not computed: `fill` appends their keys and values to layers [l0, l1), which are those
     * that computing them would give (kv/cache/prefix.h). `embeds` begins with the first visual row after them.
     * 0: none. At most n - 1; rows whose attention is captured must be computed. */
    int32_t n_kept;
    /* If the plan needs all rows from a layer on (policy/plan/prefix.h): that layer, in which kept rows run again; else
     * 0. Before it runs, `join` writes the residual stream of rows [0, n_kept) to x, and `joined` is called with that of
     * all rows that run, from row 0 on, [.., d] F32 on the device; NULL: not wanted. */
    int32_t join_layer;
    fv_status (*join)(void *user, void *x);
    void (*joined)(void *user, const void *x);
    fv_status (*fill)(void *user, fv_kv *kv, int32_t l0, int32_t l1);
    /* Called when layers [l0, l1) hold the prompt's rows as they were computed, before `select` and `pack` change
     * them; NULL: not wanted. */
    void (*computed)(void *user, const fv_kv *kv, int32_t l0, int32_t l1);
    void *kept_user; /* of these */
    /* The last prompt token's attention to each key, [N, n] on the host, visual keys first, mean
     * over heads; or NULL. For a plan that drops no token, and not for n_answer > 0. */
    float *attention;
    /* The share of the last prompt token's attention that visual tokens receive, per layer, mean
     * over heads: [N] on the host; NULL: not wanted. Not for n_answer > 0. */
    float *visual_mass;
    int32_t *visual_tokens; /* [N] image tokens that each layer ran, or NULL */
    /* Called with a captured layer's attention to its n visual tokens, at prompt positions pos[n]
     * (prefill-worker/prefill/kept_map.h); NULL: not wanted. */
    fv_status (*ranked)(void *user, int32_t layer, const float *attention, const int32_t *pos,
                        int32_t n);
    void *ranked_user;
    /* Called with the ablation scores of n visual tokens for the last prompt token in a layer where
     * the plan captures them (prefill-worker/prefill/ablation.h); NULL: not wanted. */
    fv_status (*ablation)(void *user, int32_t layer, const float *l2, const float *cos, int32_t n);
    void *ablation_user;
    /* Called for every layer with the maximum over heads of the attention to its n visual tokens,
     * summed over text tokens and over visual tokens; NULL: not wanted. For a plan that drops no
     * token. */
    fv_status (*head_max)(void *user, int32_t layer, const float *text, const float *visual,
                          int32_t n);
    void *head_max_user;
    /* Called once for each row that leaves the last layer, with its position in the prompt and its logits
     * [vocab] on the host, in any order; NULL: not wanted. Rows that the plan drops or masks have none. Not for
     * n_answer > 0. */
    void (*row_logits)(void *user, int32_t pos, const float *logits);
    void *row_logits_user;
    /* The pack stage's report; {0}, owned by the caller, and required if the plan packs. Its status says
     * if the request's rows cannot be packed: then give up that request; the others continue. */
    fv_pack_report *packed;
    /* [FV_PLAN_NOTE_MAX] what the prune stage decided by data or by the checkpoint's calibration,
     * or ""; NULL: not wanted. */
    char *pruned;
} fv_prefill_request;

typedef struct fv_prefill_options { /* {0} is fine */
    int32_t chunk;                  /* rows per pass; 0: all at once */
    int32_t group;                  /* layers in a group; 0: as many as a phase has */
    /* Called between groups, with a rising n_layer: layers below it are final in the stores of all
     * requests; those of the last group are final when the run returns. A failure ends the run. May
     * be NULL. */
    fv_status (*final)(void *user, int32_t n_layer);
    /* Called between passes: other requests may be run on the same decoder meanwhile, which changes no
     * bit of these. May be NULL. */
    void (*between)(void *user);
    void *user;
} fv_prefill_options;

/* Runs n requests; logits [n, vocab] on the host. After an error the whole batch is lost: close its
 * stores. Logits are not checked and may be NaN; the sampler checks. */
fv_status fv_prefill_run(fv_decoder *dec, const fv_prefill_request *req, int32_t n,
                         const fv_prefill_options *opt, float *logits);

#endif
