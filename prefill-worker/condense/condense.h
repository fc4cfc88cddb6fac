#ifndef FOVEA_PREFILL_WORKER_CONDENSE_CONDENSE_H
#define FOVEA_PREFILL_WORKER_CONDENSE_CONDENSE_H

/* CONDENSE: the vision tower's features -> fewer visual tokens. One file per method in
 * condense/, one row each in policy/methods.def; condense.c makes the table from those rows.
 *
 * Methods choose by the attention of the tower's CLS token to the others, image by image,
 * independent of the prompt's other images and of the question. The prompt is as if its images
 * had had only the remaining tokens from the start: positions are consecutive. */
#include "common/arena.h"
#include "model/net/vision.h"
#include "policy/policy.h"

/* An image: the tokens that the tower makes, in the order of the prompt. A family's newlines are not
 * among them, and a condensed image has none. */
typedef struct fv_condense_context {
    const fv_params *params; /* a union: the method reads its own member */
    int32_t n;               /* tokens: patches, after the class token if the text model sees it */
    int32_t width;           /* of a feature */
    const float *feature;    /* [n, width] */
    const float *score;      /* [n] attention of CLS to them in their own tile, summed over heads */
    int32_t d_key;
    const float *key; /* [n, d_key] their keys in that layer, heads side by side */
    int32_t n_tile;   /* the first shows the whole image; if 1, the next four members are empty */
    const int32_t *tile; /* [n] the tile of each token, from 0 */
    /* The patches of the first tile: attention of CLS to them in the tower's first layer, and the other
     * tile that shows the middle of each. */
    int32_t n_whole;
    const float *first_score; /* [n_whole] */
    const int32_t *shown_by;  /* [n_whole] */
    fv_arena *arena;          /* for the method's results and scratch */
} fv_condense_context;

typedef struct fv_condensed {
    int32_t n;             /* tokens that are left, at most the plan's number (fv_plan_condense) */
    const float *feature;  /* [n, width], in the order in which the text model sees them */
    const int32_t *source; /* [n] the token that each was; -1: merged from several */
} fv_condensed;

typedef struct fv_condense_method {
    bool after; /* captures the tower layer after the one that made the features, if there is one;
                 * otherwise that one */
    bool whole; /* one softmax over the concatenated heads; otherwise the sum of one per head */
    bool first; /* also reads first_score, for images of several tiles */
    fv_status (*run)(const fv_condense_context *ctx, fv_condensed *out);
} fv_condense_method;

const fv_condense_method *fv_condense_method_of(fv_method_id id);

/* score[j] = sum_h softmax_j(q_h k_jh / sqrt(d / H)) over all n keys k [n, d], heads side by side;
 * q [d]. Sums are in double. Scratch is the arena's. */
fv_status fv_condense_score(const float *q, const float *k, int32_t n, int32_t d, int32_t n_head,
                            fv_arena *arena, float *score);

/* Copies tokens source[n] of ctx unchanged, which completes a method that only chooses. */
fv_status fv_condense_select(const fv_condense_context *ctx, const int32_t *source, int32_t n,
                             fv_condensed *out);

/* A condensed image. */
typedef struct fv_condensed_image {
    int32_t n;
    int32_t *source; /* [n] which of its tokens each was, -1: merged from several; in the arena */
    fv_buf embeds;   /* [n, d_text] F32 on the device, owned by the caller */
} fv_condensed_image;

/* Encodes and condenses an image: `pixels` [l->n_tile, 3, S, S] of its layout, none of whose spans is
 * scaled. FV_EUNSUPPORTED if the checkpoint lacks the layer that the method captures. For the thread
 * that owns the tower. */
fv_status fv_condense_run(fv_vision *v, const fv_vision_config *cfg, const fv_choice *choice,
                          const fv_layout *l, const float *pixels, fv_device *dev, fv_arena *arena,
                          fv_condensed_image *out);

#endif
