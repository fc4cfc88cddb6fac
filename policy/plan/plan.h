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
    int32_t bytes_value;      /* bytes of a number in the KV store: 2 or 4 */
    int32_t n_visual, n_text; /* prompt tokens */
    bool text_bound;          /* n_text is an upper bound, not known yet */
    /* Spans of the images' tokens, borrowed while the plan is used; without spans all visual tokens
     * count as one image. */
    int32_t n_span;
    const fv_token_span *span; /* [n_span] */
    /* Image tokens before the condense stage, if it has run and n_visual is its result; 0: it has
     * not run. */
    int32_t n_encoded;
    const char *uncondensable; /* why the condense stage cannot run on this model; NULL: it can */
    bool tiled;                /* the model cuts images into tiles */
    int32_t n_answer;          /* rows at the end of n_text that are a resumed answer */
    /* The checkpoint's calibration, borrowed: [n_layer] source layers for map=calibrated, and
     * thresholds; NULL: not measured. `uncalibrated`: why an existing calibration cannot be used,
     * or NULL. */
    const int32_t *calibrated;
    const double *thresholds; /* [3] cos, l2 and exit_cos for prune=visipruner */
    int32_t withdraw;         /* layer for prune=vtw,from=calibrated; 0: not measured */
    int32_t n_fitted;
    const fv_schedule *fitted; /* [n_fitted] for prune=fitprune */
    const char *uncalibrated;
    /* For pack=latent: layers of a group, and directions; 0: none, with the reason, or NULL, in
     * no_latent. */
    int32_t latent_layers, latent_rank;
    /* Bits of a token by steps of the error (packed/latent.h: fv_latent_steps), [groups,
     * FV_LATENT_STEPS]; ignored if their number is another. */
    size_t n_latent_steps;
    const uint32_t *latent_steps; /* [n_latent_steps] */
    const char *no_latent;
    uint64_t
        state_bytes; /* of a sequence's recurrent state, in all layers; 0: the model has none */
} fv_plan_shape;

/* Attention captures of a layer, as flags, including the FV_CAPTURE rows of methods.def. */
enum {
#define FV_CAPTURE(name, rows, reads, meaning) FV_CAPTURE_ROW_##name,
#include "policy/methods.def"
    FV_N_CAPTURE_ROW
};
enum {
    FV_CAPTURE_LAST_ROW =
        1, /* attention of the last prompt token to each visual token, mean over heads */
    FV_CAPTURE_ABLATION =
        2, /* influence of each visual token on the last row (prefill-worker/prefill/ablation.h) */
    FV_CAPTURE_UNROTATED = 4, /* SCORERS divided by the score that rotation alone would give */
#define FV_CAPTURE(name, rows, reads, meaning) FV_CAPTURE_##name = 8 << FV_CAPTURE_ROW_##name,
#include "policy/methods.def"
};

/* Before `layer` runs, drops all but `keep` of the remaining visual tokens, or masks them: masked
 * tokens continue to run, but no token attends to them. */
typedef struct fv_plan_edit {
    int32_t layer, keep;
    double share;   /* share of each image's own tokens, `keep` in all; 0: all images count
                     * together */
    int32_t merged; /* number of kept tokens, at the end, that are merged from dropped ones */
    bool by_data;   /* `keep` is an upper bound; the method decides by data */
    /* ranks by the look-ahead attention of the last prompt token in `layer`
     * (model/net/lookahead.h) */
    bool lookahead;
    bool masks;
} fv_plan_edit;

/* How a layer changes the prompt's attention to visual tokens, after the softmax, without
 * renormalizing. Tokens before the first visual token have no such attention. */
typedef enum fv_plan_mask {
    FV_MASK_NONE = 0,
    FV_MASK_TEXT, /* drop it for text tokens */
    FV_MASK_ALL,  /* drop it for all tokens */
    /* text tokens': all goes to the first visual token; other visual tokens': dropped */
    FV_MASK_MERGE,
    /* drop text tokens' attention to the first half of the visual tokens, and all of the visual
     * tokens' */
    FV_MASK_HALF,
} fv_plan_mask;

/* Attention by which the select stage chooses: from the last prompt tokens to each token, summed
 * over the former. */
typedef struct fv_plan_window {
    int32_t rows;    /* number of last rows in each layer, if it has as many; 0: none needed */
    float n;         /* n of n-softmax */
    bool by_segment; /* separate sums for text rows and image rows */
    bool shared;     /* combine all query heads of a layer, not only those of each KV head, */
    bool max;        /* to their maximum; otherwise to their mean */
} fv_plan_window;

/* Rows of a prompt that a KV head keeps: the `recent` last ones, and `heavy` chosen from those
 * before them. A layer with no more rows than that keeps all. */
typedef struct fv_plan_budget {
    int32_t heavy, recent;
} fv_plan_budget;

/* A parameter given as a layer of 32, and the layer that it is mapped to. */
typedef struct fv_plan_mapped {
    fv_stage stage;
    int32_t param, layer;
} fv_plan_mapped;

typedef struct fv_plan fv_plan;

/* Number of rows that a KV head of a layer keeps: at most as many as the layer ran, and the same in
 * layers that ran equally many. */
typedef int32_t (*fv_plan_count_fn)(const fv_plan *plan, int32_t layer, int32_t head);

/* How a layer's visual tokens are stored: raw, or as factors, codes or merged rows of
 * packed/part.h. */
typedef struct fv_plan_pack {
    /* Largest ranks of keys and values; 0: raw. R2 = R: one tier. For codes, merged rows and
     * latents: their width. */
    int32_t rank[2], rank2[2];
    int32_t back;     /* number of layers back to the first layer that it shares directions or
                       * coefficients with; 0: itself */
    int32_t group;    /* latents: number of layers, from first to last, that share coefficients; */
    int32_t row_bits; /* bits of a token's coefficients; */
    int32_t n_own;    /* largest number of own directions */
} fv_plan_pack;

/* Share of a ranked layer's visual tokens that is left after t tokens of the answer; falls with
 * t. */
typedef double (*fv_plan_share_fn)(const fv_plan *plan, int32_t t);

/* ---- contributions of the stages --------------------------------------------------------- */

typedef struct fv_plan_condense_stage {
    /* The stage runs before the prompt and gives images fewer or other tokens: shape.n_visual is
     * their number, and an upper bound until the images are encoded. */
    bool acts;
} fv_plan_condense_stage;

typedef struct fv_plan_prune_stage {
    int32_t n_edit;
    fv_plan_edit edit[FV_PLAN_MAX_LAYERS]; /* ascending layers */
    int32_t most_edits;                    /* largest number of data-dependent edits that drop
                                            * tokens */
    bool renumbers; /* remaining tokens get positions without gaps, for rotation only */
    uint8_t mask[FV_PLAN_MAX_LAYERS];        /* fv_plan_mask of each layer, for tokens of the
                                              * prompt */
    bool drop_visual_kv[FV_PLAN_MAX_LAYERS]; /* drop the layer's visual KV after prefill */
    fv_plan_thresholds thresholds;           /* for prune=visipruner, */
    const char *thresholds_of;               /* and their origin; NULL: the request gives all of
                                              * them */
    /* Values that the stage takes from the checkpoint's calibration, or a note that it has none; or
     * empty. */
    char chose[FV_PLAN_NOTE_MAX];
} fv_plan_prune_stage;

/* Cross-layer attention sharing (lazy=...). */
typedef struct fv_plan_share_stage {
    int32_t source_layer[FV_PLAN_MAX_LAYERS]; /* layer whose queries and keys layer l uses: itself,
                                               * or an earlier layer that uses its own */
    bool text;                                /* text tokens share them too */
    int32_t split_max; /* largest number of lazy layers that become source layers when data drops
                        * tokens */
} fv_plan_share_stage;

typedef struct fv_plan_select_stage {
    fv_plan_count_fn count; /* rows that each head keeps at the end of prefill; NULL: all */
    fv_plan_window window;
    fv_plan_budget budget; /* for methods that keep the same number in every head */
    int32_t dup_max;       /* largest number of a segment's tokens that a KV head holds twice */
    float nsoftmax;        /* n of n-softmax in the answer's attention; 0: softmax */
} fv_plan_select_stage;

typedef struct fv_plan_pack_stage {
    fv_plan_pack layer[FV_PLAN_MAX_LAYERS];
    bool any;        /* some layer's visual tokens are packed */
    uint8_t bits;    /* bits of a number in a compressed block */
    int32_t block;   /* positions that share an anchor; 0: all */
    bool coded;      /* packed layers are codes instead of factors, */
    double outliers; /* with this share of a line's numbers kept exactly; */
    bool merged;     /* or directions shared by two layers, */
    bool latent;     /* or coefficients shared by groups of layers, */
    double low[2]; /* with keys and values of unimportant tokens read at this share of directions */
    bool exact;    /* latents: the prompt's first token is an image's and stays exact */
    bool coded_keys;   /* latents: keys are rebuilt once, to codes, where they are read */
    bool first_packed; /* something is packed, and the first token is computed from it too */
    bool observed; /* packed tokens have an importance, which starts with the prompt's last row */
    fv_text_keys text_keys;
    fv_text_rule text; /* when text becomes codes; bits 0: never */
} fv_plan_pack_stage;

typedef struct fv_plan_evict_stage {
    /* Layer whose attention ranks the visual tokens of layer l, so that they can be evicted one by
     * one; -1: not ranked. */
    int32_t rank_from[FV_PLAN_MAX_LAYERS];
    fv_plan_share_fn share; /* schedule by which ranked tokens are evicted; NULL: they stay */
    bool by_importance;     /* packed tokens are evicted by their current importance instead of
                             * their rank */
    double keep_packed;     /* share of the packed tokens with which decoding begins */
    /* Attention-score accumulators, and the rule by which tokens are evicted as the answer grows;
     * kind NONE: none. They start with the attention of the prompt's last accum_tokens. */
    fv_accum_rule accum;
    int32_t accum_tokens;
} fv_plan_evict_stage;

struct fv_plan {
    fv_plan_shape shape;
    fv_policy policy;                    /* the requested policy, */
    fv_params params[FV_N_STAGE];        /* and the parameters of stages that have a method */
    int32_t visual[FV_PLAN_MAX_LAYERS];  /* visual tokens that layer l runs and writes */
    uint8_t capture[FV_PLAN_MAX_LAYERS]; /* FV_CAPTURE_...; 0: none in layer l */
    bool exact_counts;   /* no count depends on data; otherwise counts are upper bounds */
    int32_t visual_runs; /* largest number of runs of visual tokens without text between them */
    fv_plan_condense_stage condense;
    fv_plan_prune_stage prune;
    fv_plan_share_stage share;
    fv_plan_select_stage select;
    fv_plan_pack_stage pack;
    fv_plan_read read;
    fv_plan_evict_stage evict;
    int32_t n_mapped;
    fv_plan_mapped mapped[FV_PLAN_MAX_MAPPED]; /* for stages that do something */
    /* Why a requested stage does nothing for this request; empty if it does something. */
    char note[FV_N_STAGE][FV_PLAN_NOTE_MAX];
};

/* Compiles a policy. FV_EINVAL, naming the value, if it does not fit the checkpoint (for example a
 * missing layer). A stage that cannot change anything (no image in the prompt, all rows kept) is
 * left out, with a reason in note[]. */
fv_status fv_plan_make(const fv_policy *policy, const fv_plan_shape *shape, fv_plan *out);

/* Checks that a stage kept the planned number of tokens, or with `by_data` at most that. FV_EFATAL,
 * naming the method: its count in policy/plan/ differs from its choice. */
fv_status fv_plan_check_kept(const fv_plan *plan, fv_stage stage, int32_t kept, int32_t planned,
                             bool by_data);

/* Visits the images of a prompt: *n tokens of the next one, now or, with `encoded`, before the
 * condense stage. *at must be 0 before the first; its later values are private. False: no more
 * images. */
bool fv_plan_next_image(const fv_plan_shape *shape, bool encoded, int32_t *at, int32_t *n);

/* Bytes of keys and values after prefill, without the unused ends of blocks. */
typedef struct fv_plan_bytes {
    uint64_t raw;  /* for `exact` */
    uint64_t held; /* for this plan: an upper bound, exact with exact_counts, unless a select method
                    * is combined with lazy layers or ranks depend on their energy */
    /* visual tokens in `held`: an upper bound; exact even if positions do not matter */
    uint64_t visual;
    uint64_t unsent; /* codes of keys in `visual` that are made where they are read: likewise */
    uint64_t tables; /* in addition to `held`, tables of compressed layers' tokens: an upper bound
                      * for host and device */
    uint64_t state;  /* of recurrent layers, in addition: the same for every policy */
} fv_plan_bytes;

fv_plan_bytes fv_plan_count(const fv_plan *plan);

/* Returns whether any KV is packed. */
static inline bool fv_plan_packs_any(const fv_plan *plan) {
    return plan->pack.any || plan->pack.text_keys.rank > 0 || plan->pack.text.bits > 0;
}

/* Returns whether later tokens see less of the prompt than its own tokens did: fewer tokens, or
 * compressed ones. */
static inline bool fv_plan_sees_less(const fv_plan *plan) {
    bool less = plan->evict.share || fv_plan_packs_any(plan) || plan->select.count ||
                plan->select.nsoftmax > 0;
    less |= plan->evict.accum.kind != FV_ACCUM_NONE;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) less |= plan->prune.drop_visual_kv[l];
    return less;
}

/* Layer that owns the directions of merged layer l, or the coefficients of latent layer l: itself
 * or an earlier one; for other layers l. */
static inline int32_t fv_plan_pair(const fv_plan *plan, int32_t l) {
    return l - plan->pack.layer[l].back;
}

/* Smallest number of layers whose text keys belong to another layer. */
int32_t fv_plan_reused_text(const fv_plan *plan);

#endif
