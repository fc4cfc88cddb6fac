#ifndef FOVEA_PREFILL_WORKER_JOB_JOB_H
#define FOVEA_PREFILL_WORKER_JOB_JOB_H

/* PREFILL JOB: one request from text and images to a filled KV store and its first token, without
 * RPC and without threads of its own. The worker's service runs these steps on its threads, many
 * jobs at a time; `fovea ask`, benches and tests run them one after the other.
 *
 *   open     turns, text or ids -> prompt, images expanded
 *   unread, read, encode
 *            images -> pixel values -> vision tower -> tokens, unless the cache has them
 *   begin    the prompt as it runs, the plan, an empty KV store
 *   run      several prompts together through the decoder and the stages between its layers
 *   first    logits -> first token; statistics
 *
 * A job whose policy condenses images (fv_prefill_job_condenses) is encoded before it begins, for
 * the number of tokens that are left is part of the prompt; any other, at any time before it runs.
 * The thread that owns the engine, but for fv_prefill_job_read. */
#include "model/engine.h"
#include "prefill-worker/encode/encode.h"
#include "prefill-worker/export/export.h"
#include "prefill-worker/prefill/kept_map.h"
#include "prefill-worker/prefill/prefill.h"
#include "prefill-worker/prefill/stage_stats.h"
#include "prefill-worker/prompt/prompt.h"
#include "text/generation.h"
#include "text/prompt_form.h"

/* An image of a request: a file's bytes, or what was decoded from one. */
typedef struct fv_job_image {
    const void *bytes; /* [n] */
    size_t n;
    const fv_image *decoded; /* NULL: bytes */
} fv_job_image;

/* Images of a request that are the frames of a video: clip.n from `first` on. */
typedef struct fv_job_video {
    int32_t first;
    fv_layout_clip clip; /* its times are borrowed */
} fv_job_video;

/* What a mark in the prompt stands for: an image, or the frames of a video. */
typedef struct fv_job_item {
    int32_t first, n;          /* images */
    const fv_job_video *video; /* NULL: an image */
} fv_job_item;

typedef struct fv_prefill_job {
    /* The request, set before open; what is pointed to is borrowed and must stay. */
    const fv_engine *engine;
    fv_image_cache *cache; /* of encoded images */
    const char *owner;     /* whose of them it may use and add; NULL: "" */
    fv_kv_pool *pool;
    fv_policy policy;
    fv_prompt_form form;
    int32_t n_image;
    const fv_job_image *image; /* [n_image] */
    int32_t n_video;
    const fv_job_video *video;        /* [n_video] in the order of their images */
    fv_generation_options generation; /* fv_engine_generation_options, and what was asked for */
    int32_t n_replay;                 /* tokens of an answer that was broken off, */
    const int32_t *replay;            /* [n_replay] to go on from */
    double until_s;     /* the chat's text must be rendered by then (fv_clock_s); 0: no bound */
    bool first_packed;  /* the first token comes from what is packed, if anything is */
    bool want_features; /* the tower's features and the pixel values stay in `encoded` */
    bool want_kept;     /* `kept` */
    bool want_digest;   /* `digest` */
    /* What the caller wants to see of the run, set before it; the rest of it is the job's. */
    fv_prefill_request prefill;

    /* What became of it; owned by the job. */
    char *text; /* the prompt as text; NULL: it was given as ids */
    fv_prompt prompt;
    fv_plan plan;
    fv_encoded encoded;
    fv_generation *seq;
    fv_kv *kv;      /* may be taken out: set to NULL then */
    int32_t n_left; /* tokens that the answer may still add to the store */
    fv_sampled token;
    char *token_text; /* [n_token_text] its text that can be output now, NUL-terminated */
    size_t n_token_text;
    uint64_t digest;
    fv_finish finish; /* after begin: NOT unless the replayed tokens were the whole answer */
    bool has_token;

    /* Statistics. */
    int32_t visual_tokens[FV_PLAN_MAX_LAYERS]; /* visual tokens that each layer ran */
    char pruned[FV_PLAN_NOTE_MAX];             /* fv_prefill_request.pruned */
    fv_pack_report packed;
    fv_stage_stats stats;
    fv_kept_map kept;                              /* in the arena */
    int32_t n_cached;                              /* images that an earlier request had encoded */
    size_t bytes_visual, bytes_text, bytes_tables; /* held after prefill */
    double s_preprocess, s_vision, s_prefill;

    /* private */
    fv_arena arena;
    int32_t n_item;
    fv_job_item *item; /* [n_item] in the order of the prompt, as what follows */
    fv_layout *layout; /* [n_item] */
    fv_image_key *key; /* [n_item] in the cache: its bytes, and what is done to it */
    float **pixels;    /* [n_item] of its tiles, each owned; NULL: not read, or encoded already */
    bool *unread;      /* [n_item] to be read */
    fv_rope_map rope_map; /* of the prompt; its grids are in the arena */
    int32_t n_encoded;
    fv_kept_map_watch *watch;
} fv_prefill_job; /* {0} may be released and freed */

/* The plan's shape for a prompt on this network; and with what the engine's checkpoint has measured
 * (model/calibration.h). */
fv_plan_shape fv_plan_shape_of_net(const fv_text_config *net, fv_dtype kv_dtype,
                                   const fv_prompt *prompt);
fv_plan_shape fv_plan_shape_of(const fv_engine *engine, fv_dtype kv_dtype, const fv_prompt *prompt);

/* What is image and what video, and the layouts, from the headers of the files: the first step of open. */
fv_status fv_prefill_job_lay_images(fv_prefill_job *job);

/* FV_EINVAL: the sentence says what is wrong with the prompt. */
fv_status fv_prefill_job_open(fv_prefill_job *job);

/* Whether images are to be encoded before begin. */
bool fv_prefill_job_condenses(const fv_prefill_job *job);

/* *n: images and videos that neither the cache nor the job has the tokens of; they are read next. */
fv_status fv_prefill_job_unread(fv_prefill_job *job, int32_t *n);

/* Decodes and preprocesses the next of them. *more: others are left; false after a failure. Any
 * thread, as long as no other one has the job. */
fv_status fv_prefill_job_read(fv_prefill_job *job, bool *more);

/* Runs what was read through the tower; nothing when that was done before. *done: false when the
 * cache has let go of an image meanwhile, which must be read then. */
fv_status fv_prefill_job_encode(fv_prefill_job *job, bool *done);

/* All of these in turn. */
fv_status fv_prefill_job_encode_all(fv_prefill_job *job);

/* FV_EINVAL also for replayed ids that the model does not have, or too many. With job->finish other
 * than FV_FINISH_NOT there is nothing to run. */
fv_status fv_prefill_job_begin(fv_prefill_job *job);

/* open, encode where the policy condenses, begin. */
fv_status fv_prefill_job_prepare(fv_prefill_job *job);

/* Prefills n jobs as one batch, logits [n, vocab] on the host. An error loses all of them; one
 * whose tokens could not be packed fails by itself, in first. */
fv_status fv_prefill_jobs_run(fv_prefill_job *const *job, int32_t n, const fv_prefill_options *opt,
                              float *logits);

/* Whether the job's tokens could be packed, as far as that was tried. */
fv_status fv_prefill_job_packed(const fv_prefill_job *job);

/* After the run: statistics, */
fv_status fv_prefill_job_end(fv_prefill_job *job);
/* and the first token, from logits [vocab]. FV_EDATA when they are not finite. */
fv_status fv_prefill_job_first(fv_prefill_job *job, const float *logits);

/* What is exported of a job that has begun; `asking` is left empty. */
fv_export_request fv_prefill_job_export(const fv_prefill_job *job);

/* Frees everything but results and statistics; can be called again. */
void fv_prefill_job_release(fv_prefill_job *job);
void fv_prefill_job_free(fv_prefill_job *job); /* these, too */

#endif
