#ifndef FOVEA_TESTS_SUPPORT_TINY_NET_H
#define FOVEA_TESTS_SUPPORT_TINY_NET_H

/* A text model with random weights in memory, and requests to it: for tests of the decoder, prefill
 * and the methods. Everything is a function of the seed. */
#include "model/latent/device.h"
#include "model/net/rope.h"
#include "model/net/step.h"
#include "prefill-worker/job/job.h"

typedef struct tiny_net {
    fv_text_config cfg;
    fv_text_weights w;
    float *storage;
    fv_backend be;
    fv_decoder *dec;
    fv_kv_pool *pool;
    fv_latent *latent;          /* directions of pack=latent, */
    fv_latent_on_device there;  /* and where the backend reads them */
    fv_prefill_options prefill; /* as for tiny_prefill, except its chunk */
} tiny_net;

typedef struct tiny_shape {
    int32_t n_layer, n_head, n_kv, d_head, d_ffn, vocab;
    int32_t section[3]; /* of M-RoPE; 0: one-dimensional positions */
    bool interleaved;
    int32_t window;        /* in every second layer attention slides; 0: in none */
    int32_t latent_layers; /* layers that share directions of pack=latent; 0: LATENT_LAYERS */
    int32_t
        recurrent; /* recurrent layers ahead of each layer's attention, which is gated then, with
                            * RoPE on half of a head */
    int32_t
        sharers; /* layers after the last that share keys and values, with per-layer embeddings */
} tiny_shape;

/* 4 layers, 4 query heads over 2 KV heads of 24, odd sizes elsewhere. */
tiny_shape tiny_shape_default(void);
tiny_shape tiny_shape_mrope(bool interleaved); /* the same with sections */
tiny_shape tiny_shape_either(bool grid);       /* interleaved ones, or none */

/* Aborts on failure. isa NULL = auto. */
void tiny_net_open(tiny_net *net, tiny_shape shape, fv_dtype kv_dtype, const char *isa,
                   int32_t threads);
/* The same on "cpu", or on the device of a plugin. */
void tiny_net_open_on(tiny_net *net, tiny_shape shape, fv_dtype kv_dtype, const char *device,
                      const char *isa, int32_t threads);
void tiny_net_close(tiny_net *net);

/* A prompt of `before` text tokens, `visual` image tokens and `after` text tokens. */
typedef struct tiny_prompt {
    int32_t n, n_visual, n_image;
    fv_token_span *image; /* [n_image] owned; a square of patches, with sections a whole grid */
    fv_rope_grid *grid;   /* [n_image] owned */
    fv_rope_map rope_map;
    int32_t n_answer; /* of n, tokens of an interrupted answer */
    int32_t *ids;
    uint8_t *seg;
    float *embeds; /* [n_visual, d] */
    fv_plan plan;
    fv_kv *kv;
    float *logits; /* [vocab] */
    fv_pack_report packed;
    float *visual_mass;       /* [N] where it goes, or NULL; the test's */
    int32_t *visual_tokens;   /* [N] likewise */
    fv_kept_map_watch *watch; /* receives rankings, or NULL; the test's */
    char *pruned;             /* [FV_PLAN_NOTE_MAX] likewise */
    int32_t vocab;
    float *row_logits; /* [n, vocab] likewise: of every row that leaves the last layer */
} tiny_prompt;

void tiny_prompt_make(const tiny_net *net, tiny_prompt *p, int32_t before, int32_t visual,
                      int32_t after, uint64_t seed, const char *policy);
/* The prompt of p followed by `more` tokens of an interrupted answer; the same bits in embeds. */
void tiny_prompt_again(const tiny_net *net, tiny_prompt *q, const tiny_prompt *p,
                       const char *policy, const int32_t *more, int32_t n_more);
/* The same with text and images in this layout, "t5 v35 t3 v35 t6". Ids and embeddings depend on
 * how many tokens there are, not on where the images are. */
void tiny_prompt_lay(const tiny_net *net, tiny_prompt *p, const char *layout, uint64_t seed,
                     const char *policy);
void tiny_prompt_free(tiny_prompt *p);

/* Prefills n prompts as one batch; fills their kv and logits. */
fv_status tiny_prefill(tiny_net *net, tiny_prompt *p, int32_t n, int32_t chunk);

/* Runs a decode step for n prompts, each at its own position; logits are replaced. */
fv_status tiny_step(tiny_net *net, tiny_prompt **p, int32_t n, const int32_t *ids, int32_t n_ids,
                    int32_t pos_offset);

/* True when both hold the same bits. */
bool same_bits(const float *a, const float *b, size_t n);

#endif
