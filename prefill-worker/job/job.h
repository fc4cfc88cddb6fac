#ifndef FOVEA_PREFILL_WORKER_JOB_JOB_H
#define FOVEA_PREFILL_WORKER_JOB_JOB_H

/* PREFILL JOB: takes one request from text and images to a filled KV store and its first token, without
 * RPC and without threads of its own. The worker's service runs these steps on its threads, many
 * jobs at a time; `fovea ask`, benches and tests run them one after the other.
 *
 *   open     turns, text or ids -> prompt, images expanded
 *   unread, read, encode
 *            images -> pixel values -> vision tower -> tokens, unless the cache has them
 *   begin    the final prompt, the plan, an empty KV store
 *   run      several prompts together through the decoder and the stages between its layers
 *   first    logits -> first token; statistics
 *
 * A job whose policy condenses images (fv_prefill_job_condenses) is encoded before it begins, because
 * the number of tokens left is part of the prompt; any other, at any time before it runs. For the thread
 * that owns the engine, except fv_prefill_job_read and fv_prefill_job_read_cost. */
#include "kv/cache/prefix.h"
#include "model/engine.h"
#include "prefill-worker/encode/encode.h"
#include "prefill-worker/export/export.h"
#include "prefill-worker/job/prompt_scores.h"
#include "prefill-worker/prefill/kept_map.h"
#include "prefill-worker/prefill/prefill.h"
#include "prefill-worker/prefill/stage_stats.h"
#include "prefill-worker/prompt/prompt.h"
#include "text/generation.h"
#include "text/prompt_form.h"

/* An image of a request: a file's bytes, or decoded pixels. */
typedef struct fv_job_image {
    const void *bytes; /* [n] */
    size_t n;
    const fv_image *decoded; /* NULL: `bytes` is used */
} fv_job_image;

/* A video of a request: its frames are clip.n images from `first` on. */
typedef struct fv_job_video {
    int32_t first;
    fv_layout_clip clip; /* its times are borrowed */
} fv_job_video;

/* An item that a mark in the prompt stands for: an image, or the frames of a video. */
typedef struct fv_job_item {
    int32_t first, n;          /* images [first, first + n) */
    const fv_job_video *video; /* NULL: an image */
} fv_job_item;

typedef struct fv_prefill_job {
    /* The request, set before open. Everything that it points to is borrowed. */
    const fv_engine *engine;
    fv_image_cache *cache;     /* of encoded images */
    const char *owner;         /* uses and adds only this owner's entries; NULL: "" */
    const fv_adapter *adapter; /* of the engine; NULL: none */
    fv_kv_pool *pool;
    fv_prefix_cache
        *prefixes;    /* of KV, for job/prefix.h; NULL: the job neither uses nor fills it */
    const char *salt; /* with `owner`: whose prefixes it shares; NULL: "" */
    fv_policy policy;
    fv_prompt_form form;
    int32_t n_image;
    const fv_job_image *image; /* [n_image] */
    int32_t n_video;
    const fv_job_video *video;        /* [n_video] in the order of their images */
    fv_generation_options generation; /* fv_engine_generation_options, with the request's */
    int32_t n_replay;                 /* tokens of an interrupted answer, */
    const int32_t *replay;            /* [n_replay] that it continues from */
    uint32_t pixels_min, pixels_max;  /* fv_layout_bound of the images */
    double until_s;     /* time by which the chat must be rendered (fv_clock_s); 0: no bound */
    bool first_packed;  /* compute the first token from packed KV, if anything is packed */
    bool want_features; /* keep the tower's features and the pixel values in `encoded` */
    bool want_kept;     /* fill `kept` */
    bool want_digest;   /* fill `digest` */
    bool want_scores;   /* fill `scores`, with n_score_top alternatives; not with a replay */
    int32_t n_score_top;
    int32_t n_prompt_most; /* cut text off the front of a longer prompt; 0: do not */
    /* Tokens [visual_first, visual_first + n_visual_text) of the prompt are text that policies treat as an
     * image's; 0: none. For a model that reads text only. */
    int32_t visual_first, n_visual_text;
    /* The caller sets what it wants to observe of the run; the job sets the rest. */
    fv_prefill_request prefill;

    /* Results, owned by the job. */
    char *text; /* the prompt as text; NULL: it was given as ids */
    fv_prompt prompt;
    fv_plan plan;
    fv_encoded encoded;
    fv_generation *seq;
    fv_kv *kv;      /* the caller may take it and set NULL */
    int32_t n_left; /* tokens that the answer may still add to the store */
    fv_sampled token;
    char *token_text; /* [n_token_text] the token's text that can be output now, NUL-terminated */
    size_t n_token_text;
    uint64_t digest;
    fv_prompt_scores scores; /* in the arena */
    bool truncated;          /* text was cut off */
    fv_finish finish;        /* after begin: NOT unless the replayed tokens were the whole answer */
    bool has_token;

    /* Statistics. */
    int32_t visual_tokens[FV_PLAN_MAX_LAYERS]; /* visual tokens that each layer ran */
    char pruned[FV_PLAN_NOTE_MAX];             /* fv_prefill_request.pruned */
    fv_pack_report packed;
    fv_stage_stats stats;
    fv_kept_map kept;                              /* in the arena */
    int32_t n_cached;                              /* images found in the cache */
    size_t bytes_visual, bytes_text, bytes_tables; /* KV held after prefill */
    double s_preprocess, s_vision, s_prefill;
    fv_prefix prefix; /* the rows that were not computed (job/prefix.h) */

    /* private */
    fv_arena arena;
    int32_t n_item;
    fv_job_item *item;       /* [n_item] in the order of the prompt, as the arrays below */
    fv_layout_config bounds; /* how images are laid out: the model's, with the request's bounds */
    fv_layout *layout;       /* [n_item] */
    fv_image_key *key;       /* [n_item] key in the cache */
    float **pixels;  /* [n_item] pixel values of its tiles, owned; NULL: not read, or encoded */
    bool *unread;    /* [n_item] must be read */
    int32_t n_frame; /* frames already read of the item that is being read */
    int32_t
        n_skip; /* items that are not needed, as `prefix` has their rows; `encoded` begins after them */
    struct fv_job_digest *digest_of; /* [n_item] of their contents; NULL: not made */
    int32_t n_link;
    fv_chain_link *link;   /* [n_link] the prompt's chain; NULL: not made */
    fv_prefix_draft draft; /* what is kept of the run */
    fv_rope_map rope_map;  /* the prompt's; its grids are in the arena */
    int32_t n_encoded;
    fv_kept_map_watch *watch;
} fv_prefill_job; /* {0} may be released and freed */

/* Returns the plan's shape for a prompt on this network; the second includes the calibration of the
 * engine's checkpoint (model/calibration.h). */
fv_plan_shape fv_plan_shape_of_net(const fv_text_config *net, fv_dtype kv_dtype,
                                   const fv_prompt *prompt);
fv_plan_shape fv_plan_shape_of(const fv_engine *engine, fv_dtype kv_dtype, const fv_prompt *prompt);

/* Groups the images into items and lays them out, from the headers of their files: the first step of open. */
fv_status fv_prefill_job_lay_images(fv_prefill_job *job);

/* Makes the prompt, and the plan if images are to be condensed. FV_EINVAL if the prompt is invalid. */
fv_status fv_prefill_job_open(fv_prefill_job *job);

/* Whether images must be encoded before begin. */
bool fv_prefill_job_condenses(const fv_prefill_job *job);

/* Lists the images and videos that must be read, because neither the cache nor the job has their tokens;
 * *n: their number. */
fv_status fv_prefill_job_unread(fv_prefill_job *job, int32_t *n);

/* Returns the cost of reading the next one: its pixels plus the bytes of its file, and more for one that takes a process. There must be one. On the
 * thread that has the job. */
uint64_t fv_prefill_job_read_cost(const fv_prefill_job *job);

/* Decodes and preprocesses the next image, or the next frame of a video. *more: others are left; false
 * after a failure. On any thread, while no other thread uses the job. */
fv_status fv_prefill_job_read(fv_prefill_job *job, bool *more);

/* Whether all images are encoded. */
bool fv_prefill_job_encoded(const fv_prefill_job *job);

/* Runs the next image through the tower, or takes its tokens from the cache. *there: false if the cache
 * has dropped it meanwhile: it must be read then. */
fv_status fv_prefill_job_encode_next(fv_prefill_job *job, bool *there);

/* The same for all images that are left. *done: false if one must be read. */
fv_status fv_prefill_job_encode(fv_prefill_job *job, bool *done);

/* Reads and encodes all images. */
fv_status fv_prefill_job_encode_all(fv_prefill_job *job);

/* Completes the prompt, makes the plan and opens the KV store. FV_EINVAL also if the model does not have a
 * replayed id, or there are too many. If job->finish is not FV_FINISH_NOT afterwards, there is nothing to
 * run. */
fv_status fv_prefill_job_begin(fv_prefill_job *job);

/* Calls open, encodes if the policy condenses, and calls begin. */
fv_status fv_prefill_job_prepare(fv_prefill_job *job);

/* Prefills n jobs as one batch, logits [n, vocab] on the host. An error fails all of them; a job whose
 * tokens could not be packed fails alone, in fv_prefill_job_end. */
fv_status fv_prefill_jobs_run(fv_prefill_job *const *job, int32_t n, const fv_prefill_options *opt,
                              float *logits);

/* Returns the failure of packing the job's tokens, if there was one so far. */
fv_status fv_prefill_job_packed(const fv_prefill_job *job);

/* Takes the statistics after the run. */
fv_status fv_prefill_job_end(fv_prefill_job *job);
/* Chooses the first token from logits [vocab]. FV_EDATA if they are not finite. */
fv_status fv_prefill_job_first(fv_prefill_job *job, const float *logits);

/* Returns the export request of a job that has begun; `asking` is left empty. */
fv_export_request fv_prefill_job_export(const fv_prefill_job *job);

/* Frees everything except texts, prompt and statistics; can be called again. */
void fv_prefill_job_release(fv_prefill_job *job);
void fv_prefill_job_free(fv_prefill_job *job); /* frees these, too */

#endif
