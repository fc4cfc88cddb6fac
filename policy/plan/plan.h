#ifndef FOVEA_POLICY_PLAN_PLAN_H
#define FOVEA_POLICY_PLAN_PLAN_H

/* THE PLAN: a policy compiled once per request, for one checkpoint and one prompt.
 *
 * Kernels and the decoder depend on the plan (layers, counts), never on methods. Sizes are in
 * tokens: the plan says how many visual and text tokens each layer runs and each KV head holds, so
 * the bytes of a request are known before prefill. */
#include "common/schedule.h"
#include "common/token_span.h"
#include "policy/plan/decode.h"

enum { FV_PLAN_MAX_LAYERS = 256, FV_PLAN_NOTE_MAX = 256, FV_PLAN_MAX_MAPPED = 8 };

/* Thresholds of prune=visipruner (prefill-worker/prune/visipruner.c). */
typedef struct fv_plan_thresholds {
    double cos, l2, exit_cos;
} fv_plan_thresholds;

typedef struct fv_plan_shape {
    int32_t n_layer, n_kv, d_head;
    int32_t bytes_value;      /* of a number in the KV store: 2 or 4 */
    int32_t n_visual, n_text; /* prompt tokens */
    bool text_bound;          /* n_text is not known yet: at most so many */
    /* The images' tokens, borrowed while the plan is used; without spans, visual tokens are one
     * image's, together. */
    int32_t n_span;
    const fv_token_span *span; /* [n_span] */
    /* Image tokens ahead of the condense stage, once it has run and n_visual is what it left; 0: it
     * has not. */
    int32_t n_encoded;
    const char *uncondensable; /* why the condense stage cannot act on this model; NULL: it can */
    bool tiled;                /* the model cuts images into tiles */
    int32_t n_answer;          /* of n_text, rows at the end that are an answer taken up again */
    /* What the checkpoint's calibration holds, borrowed: [n_layer] source layers of map=calibrated,
     * and thresholds; NULL: not measured. Or why a calibration that is there cannot be used; NULL:
     * it can, or there is none. */
    const int32_t *calibrated;
    const double *thresholds; /* [3] cos, l2 and exit_cos of prune=visipruner */
    int32_t withdraw;         /* the layer of prune=vtw,from=calibrated; 0: not measured */
    int32_t n_fitted;
    const fv_schedule *fitted; /* [n_fitted] of prune=fitprune */
    const char *uncalibrated;
    /* Of pack=latent: layers of a group, and directions; 0: there are none, and why, or NULL. */
    int32_t latent_layers, latent_rank;
    /* Bits of a token by steps of the error (kernels/latent.h: fv_latent_steps), [groups,
     * FV_LATENT_STEPS]; of another number they are as if they were not known. */
    size_t n_latent_steps;
    const uint32_t *latent_steps; /* [n_latent_steps] */
    const char *no_latent;
} fv_plan_shape;

/* Attention captures of a layer, as flags; the rows FV_CAPTURE of methods.def are among them. */
enum {
#define FV_CAPTURE(name, rows, reads, meaning) FV_CAPTURE_ROW_##name,
#include "policy/methods.def"
    FV_N_CAPTURE_ROW
};
enum {
    FV_CAPTURE_LAST_ROW =
        1, /* attention of the last prompt token to each visual token, mean over heads */
    FV_CAPTURE_ABLATION =
        2, /* what each visual token means to the last row (prefill-worker/prefill/ablation.h) */
    FV_CAPTURE_TURNED = 4, /* SCORERS divided by the score that rotation alone would give */
#define FV_CAPTURE(name, rows, reads, meaning) FV_CAPTURE_##name = 8 << FV_CAPTURE_ROW_##name,
#include "policy/methods.def"
};

/* Before `layer` runs, all but `keep` of the remaining visual tokens are pruned, or masked: they
 * run on, but nothing attends to them. */
typedef struct fv_plan_edit {
    int32_t layer, keep;
    double share;   /* of each image's own tokens, `keep` in all; 0: images count together */
    int32_t merged; /* of those that stay, the last so many are made of rows that do not */
    bool by_data;   /* at most so many: the method decides when it is there */
    /* by the look-ahead attention of the last prompt token in `layer` (model/net/lookahead.h) */
    bool lookahead;
    bool masks;
} fv_plan_edit;

/* How a layer changes the prompt's attention to visual tokens, after the softmax, without
 * renormalizing. Tokens before every visual token have none. */
typedef enum fv_plan_mask {
    FV_MASK_NONE = 0,
    FV_MASK_TEXT, /* text tokens' is dropped */
    FV_MASK_ALL,  /* every row's is dropped */
    /* text tokens' goes to the first visual token, other visual tokens' is dropped */
    FV_MASK_MERGE,
    /* text tokens' to the first half of the prompt's visual tokens, and all of visual tokens' */
    FV_MASK_HALF,
} fv_plan_mask;

/* The attention by which the select stage chooses: of the last prompt tokens to each token, summed
 * over them. */
typedef struct fv_plan_window {
    int32_t rows;    /* of each layer, as far as it has them; 0: none is asked for */
    float n;         /* of n-softmax */
    bool by_segment; /* rows of text and image tokens are summed apart */
    bool shared;     /* all query heads of a layer come to one, or those of each KV head: */
    bool max;        /* to the largest of them, or to their mean */
} fv_plan_window;

/* Rows that a KV head keeps of a prompt: its last ones, and so many that are chosen of those ahead
 * of them. A layer that has no more rows keeps them all. */
typedef struct fv_plan_budget {
    int32_t heavy, recent;
} fv_plan_budget;

/* A parameter that a policy gives as a layer of 32, and the layer that it came to here. */
typedef struct fv_plan_mapped {
    fv_stage stage;
    int32_t param, layer;
} fv_plan_mapped;

typedef struct fv_plan fv_plan;

/* Rows that a KV head of a layer keeps; at most as many as the layer ran, and as many as in any
 * other layer that ran so many. */
typedef int32_t (*fv_plan_count_fn)(const fv_plan *plan, int32_t layer, int32_t head);

/* How a layer's visual tokens are stored: raw, or as the factors, codes or merged rows of
 * kernels/packed_part.h. */
typedef struct fv_plan_pack {
    /* Of keys and values, at most; 0: raw. R2 = R: one tier. Of codes, merged rows and latents:
     * their width */
    int32_t rank[2], rank2[2];
    int32_t back;     /* so many layers before this one is the first of those that it shares
                       * directions or coefficients with; 0: it is that layer */
    int32_t group;    /* of latents: layers from the first to the last that share coefficients, */
    int32_t row_bits; /* bits of a token's, */
    int32_t n_own;    /* and own directions, at most */
} fv_plan_pack;

/* The share of a ranked layer's visual tokens that is left when t tokens of the answer are there;
 * it falls with t. */
typedef double (*fv_plan_share_fn)(const fv_plan *plan, int32_t t);

/* ---- what each stage adds ---------------------------------------------------------------- */

typedef struct fv_plan_condense_stage {
    /* Images come to fewer tokens, or to others, ahead of the prompt: shape.n_visual is what they
     * come to, and until they were encoded a bound. */
    bool acts;
} fv_plan_condense_stage;

typedef struct fv_plan_prune_stage {
    int32_t n_edit;
    fv_plan_edit edit[FV_PLAN_MAX_LAYERS]; /* ascending layers */
    int32_t most_edits;                    /* of those by data, how many prune tokens at most */
    bool renumbers; /* tokens that are left take positions without gaps, for rotation only */
    uint8_t mask[FV_PLAN_MAX_LAYERS];        /* fv_plan_mask of layer l, for tokens of the prompt */
    bool drop_visual_kv[FV_PLAN_MAX_LAYERS]; /* visual KV of layer l is dropped after prefill */
    fv_plan_thresholds thresholds;           /* of prune=visipruner, */
    const char *thresholds_of;               /* and whose; NULL: the request gives all of them */
    /* What the stage has from the checkpoint's calibration, or that it has none; or empty. */
    char chose[FV_PLAN_NOTE_MAX];
} fv_plan_prune_stage;

/* Cross-layer attention sharing (lazy=...). */
typedef struct fv_plan_share_stage {
    int32_t source_layer[FV_PLAN_MAX_LAYERS]; /* whose queries and keys layer l uses: its own, or
                                               * those of an earlier layer that uses its own */
    bool text;                                /* those of text tokens too */
    int32_t split_max; /* lazy layers that become source layers, at most, as data prune tokens */
} fv_plan_share_stage;

typedef struct fv_plan_select_stage {
    fv_plan_count_fn count; /* what each head keeps at the end of prefill; NULL: everything */
    fv_plan_window window;
    fv_plan_budget budget; /* of methods that keep the same number in every head */
    int32_t dup_max;       /* tokens of a segment that a KV head may hold twice */
    float nsoftmax;        /* n of n-softmax in the answer's attention; 0: softmax */
} fv_plan_select_stage;

typedef struct fv_plan_pack_stage {
    fv_plan_pack layer[FV_PLAN_MAX_LAYERS];
    bool any;        /* some layer's visual tokens are packed */
    uint8_t bits;    /* of a number in a compressed block */
    int32_t block;   /* positions that share an anchor; 0: all */
    bool coded;      /* packed layers are codes, not factors, */
    double outliers; /* with this share of a line's numbers kept as they are; */
    bool merged;     /* or directions that two layers share, */
    bool latent;     /* or coefficients that groups of layers share, */
    double
        low[2]; /* with keys and values of unimportant tokens read with this share of directions */
    bool exact; /* of latents: the prompt's first token is an image's, and stays exact */
    bool coded_keys;   /* of latents: keys are rebuilt once, into codes, where they are read */
    bool first_packed; /* something is packed, and the first token comes from it as well */
    bool observed; /* packed tokens have an importance, which begins with the prompt's last row */
    fv_text_keys text_keys;
    fv_text_rule text; /* when text becomes codes; bits 0: it does not */
} fv_plan_pack_stage;

typedef struct fv_plan_evict_stage {
    /* The layer whose attention ranks the visual tokens of layer l, so that they can be evicted one
     * by one; -1: they are not ranked. */
    int32_t rank_from[FV_PLAN_MAX_LAYERS];
    fv_plan_share_fn share; /* how ranked tokens are evicted; NULL: they stay */
    bool by_importance;     /* packed ones by their importance then, and not by rank */
    double keep_packed;     /* share of the packed tokens that decoding begins with */
    /* Attention-score accumulators, and which tokens are evicted by them as the answer grows; kind
     * NONE: none. They begin with the attention of the prompt's last accum_tokens. */
    fv_accum_rule accum;
    int32_t accum_tokens;
} fv_plan_evict_stage;

struct fv_plan {
    fv_plan_shape shape;
    fv_policy policy;                    /* what was asked for, */
    fv_params params[FV_N_STAGE];        /* and its parameters, of stages that have a method */
    int32_t visual[FV_PLAN_MAX_LAYERS];  /* visual tokens that layer l runs and writes */
    uint8_t capture[FV_PLAN_MAX_LAYERS]; /* FV_CAPTURE_...; 0: nothing is asked of layer l */
    bool exact_counts;   /* no count depends on data; if not, they are upper bounds */
    int32_t visual_runs; /* of visual tokens without text between them, at most */
    fv_plan_condense_stage condense;
    fv_plan_prune_stage prune;
    fv_plan_share_stage share;
    fv_plan_select_stage select;
    fv_plan_pack_stage pack;
    fv_plan_read read;
    fv_plan_evict_stage evict;
    int32_t n_mapped;
    fv_plan_mapped mapped[FV_PLAN_MAX_MAPPED]; /* of stages that do something */
    /* Why a stage that was asked for does nothing on this request; empty when it does. */
    char note[FV_N_STAGE][FV_PLAN_NOTE_MAX];
};

/* FV_EINVAL when a value does not fit the checkpoint (a layer that it does not have): the
 * sentence says which. A stage that cannot change anything here (no image in the prompt, all
 * rows kept) is left out and says so in note[]. */
fv_status fv_plan_make(const fv_policy *policy, const fv_plan_shape *shape, fv_plan *out);

/* What a stage's method kept is what the plan says: so many tokens, or with `by_data` at most so
 * many. FV_EFATAL names the method otherwise: it counts in policy/plan/ other than it chooses. */
fv_status fv_plan_check_kept(const fv_plan *plan, fv_stage stage, int32_t kept, int32_t planned,
                             bool by_data);

/* Visits the images of a prompt: *n tokens of the next one, as they are now or, `encoded`, before the
 * condense stage. *at is 0 before the first, and the call's own. False: there is no other. */
bool fv_plan_next_image(const fv_plan_shape *shape, bool encoded, int32_t *at, int32_t *n);

/* Bytes of keys and values after prefill, without the unused ends of blocks. */
typedef struct fv_plan_bytes {
    uint64_t raw;  /* what `exact` holds */
    uint64_t held; /* of this plan: an upper bound, exact with exact_counts, unless a select method
                      * meets lazy layers or ranks are as low as their energy allows */
    /* of those, visual tokens: an upper bound, exact also where positions do not matter */
    uint64_t visual;
    uint64_t unsent; /* of visual, codes of keys that are made where they are read: likewise */
    uint64_t tables; /* in addition, tables of the tokens of compressed layers: a bound for host and
                      * device, not exact */
} fv_plan_bytes;

fv_plan_bytes fv_plan_count(const fv_plan *plan);

/* Whether anything is packed. */
static inline bool fv_plan_packs_any(const fv_plan *plan) {
    return plan->pack.any || plan->pack.text_keys.rank > 0 || plan->pack.text.bits > 0;
}

/* Whether later tokens attend to something else of the prompt than its own tokens did: to fewer
 * tokens, or to compressed ones. */
static inline bool fv_plan_sees_less(const fv_plan *plan) {
    bool less = plan->evict.share || fv_plan_packs_any(plan) || plan->select.count ||
                plan->select.nsoftmax > 0;
    less |= plan->evict.accum.kind != FV_ACCUM_NONE;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) less |= plan->prune.drop_visual_kv[l];
    return less;
}

/* The layer that has the directions of merged layer l, or the coefficients of latent layer l: itself,
 * or one before; of others l. */
static inline int32_t fv_plan_pair(const fv_plan *plan, int32_t l) {
    return l - plan->pack.layer[l].back;
}

/* Layers whose text keys are another layer's, at least. */
int32_t fv_plan_reused_text(const fv_plan *plan);

#endif
