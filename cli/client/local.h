#ifndef FOVEA_CLI_CLIENT_LOCAL_H
#define FOVEA_CLI_CLIENT_LOCAL_H

/* THE WHOLE PATH IN ONE PROCESS: checkpoint, image and question in; tokens and a report out. It
 * runs the prefill worker's jobs and the decode worker's scheduler. Each side has its own KV pool,
 * and a request is handed off between them as between machines, through the in-process transport.
 * Several requests may run at once; an answer does not depend on the others. An answer may be kept
 * as a conversation, as on a decode worker, and continued. One thread. */
#include "decode-worker/schedule/scheduler.h"
#include "prefill-worker/job/job.h"

typedef struct fv_local_options {
    const char *checkpoint;         /* directory */
    const char *backend;            /* "auto", "cpu", ... */
    const char *isa;                /* CPU path, "auto" */
    const char *compute, *kv_dtype; /* as in fv_engine_options */
    const char *weights;            /* as in fv_engine_options */
    const char *const *adapter;     /* [n_adapter] likewise */
    int32_t n_adapter;
    const char *model; /* name of an adapter, for requests that name none; NULL or "": none */
    fv_checkpoint_progress *progress; /* called while quantizing */
    void *progress_user;
    int32_t threads;       /* 0: all cores */
    int32_t gpu;           /* index of the device, for backends with several */
    const char *gpu_trace; /* file for the GPU's time by kernel; NULL: none */
    size_t kv_bytes;       /* limit of each side's KV pool; 0: none */
    int32_t chunk;         /* prefill rows per pass; 0: the whole prompt */
    int32_t at_once;       /* concurrent requests; 0: one */
} fv_local_options;

typedef struct fv_local fv_local; /* opaque */

fv_status fv_local_open(const fv_local_options *opt, fv_local **out);
void fv_local_close(fv_local *local); /* NULL is fine */

const fv_model_config *fv_local_config(const fv_local *local);
const fv_generation_config *fv_local_generation(const fv_local *local);
int32_t fv_local_vocab(const fv_local *local); /* ids that may be sampled; logits may have more */
const char *fv_local_isa(const fv_local *local);
fv_compute fv_local_compute(const fv_local *local);
fv_dtype fv_local_kv_dtype(const fv_local *local);
const char *fv_local_fingerprint(const fv_local *local);
fv_engine *fv_local_engine(fv_local *local); /* borrowed */

/* ---- one request ----------------------------------------------------------------------- */

typedef struct fv_ask {
    int32_t n_image;
    const fv_image *images; /* [n_image] decoded, borrowed */
    int32_t n_video;
    const fv_job_video *videos; /* [n_video] images that are frames; borrowed */
    const char *question;       /* a user turn, or the whole prompt when raw */
    int32_t n_turn;
    const char *model;         /* name of an adapter; NULL: that of the options, or in a
                                * conversation its own; "": none */
    const fv_chat_turn *turns; /* [n_turn] used instead of question and system; 0: those are used */
    const char *system;        /* system turn, or NULL */
    int32_t n_id;              /* above 0: the prompt is `id`, and nothing is rendered */
    const int32_t *id;         /* [n_id] */
    int32_t visual_first,
        n_visual_text;        /* tokens of it that are taken for an image's (fv_prefill_job) */
    bool raw;                 /* no chat template: the question contains <image> */
    int32_t n_part;           /* above 0: the question is `part`, with images in their places */
    const fv_chat_part *part; /* [n_part] */
    const char *chat;         /* template by name, or its text; NULL: the engine's */
    const char *variables;    /* more variables of the template, a JSON object; NULL: none */
    fv_policy policy;
    fv_sampling sampling;
    int32_t max_tokens;
    bool ignore_eos;
    int32_t n_stop;
    const char *const *stop; /* [n_stop] */
    fv_grammar_spec form;    /* of the answer; kind 0: any. ignore_eos has no effect beside it */
    int32_t n_forced;
    const int32_t *forced; /* [n_forced] the answer's first tokens, whatever the logits */
    /* Also computes the first token from the KV with which decoding begins. A server computes it in
     * the prefill, before selection, compression and eviction. The prompt must end with text.
     * Without effect if later tokens attend to the whole prompt. */
    bool first_held;
    bool speculate;         /* run drafts */
    const char *prediction; /* text that is expected in the answer, to draft from; NULL: none */
    bool keep;              /* keep the final KV as a conversation, under the report's handle */
    /* [16] conversation to continue, which ends with this; NULL: a new one. `turns` are the new
     * turns; images, system turn and policy are the conversation's. */
    const uint8_t *conversation;
} fv_ask;

/* Callbacks during a request; each may be NULL. Their arguments are borrowed for the call. A
 * failure ends the request with that status. */
typedef struct fv_ask_hooks {
    void *user;
    fv_status (*text)(void *user, const char *text, size_t n);
    fv_status (*token)(void *user, const fv_sampled *token);
    fv_status (*prompt)(void *user, const char *text, const fv_prompt *prompt);
    fv_status (*encoded)(void *user, const fv_encoded *encoded);
    fv_status (*prefilled)(void *user, const fv_kv *kv);
    /* after prefill: the share of the last prompt token's attention that visual tokens receive in
     * each layer, mean over heads; computed only if set */
    fv_status (*visual_mass)(void *user, const float *mass, int32_t n_layer);
    /* visual tokens that each layer holds after prefill, and the layout by which images became
     * tiles */
    fv_status (*kept)(void *user, const fv_kept_map *kept, const fv_layout_config *layout);
    /* after prefill: that token's attention to each key, [n_layer, n] with the n_visual visual keys
     * first, mean over heads; for `exact` */
    fv_status (*attention)(void *user, const float *attention, int32_t n_layer, int32_t n,
                           int32_t n_visual);
    /* in layers where prune=visipruner measures: influence of each of n image tokens on that row
     * (prefill-worker/prefill/ablation.h) */
    fv_status (*ablation)(void *user, int32_t layer, const float *l2, const float *cos, int32_t n);
    /* in every layer: the maximum over heads of the attention to n visual tokens, summed over text
     * tokens and over visual tokens; for `exact` */
    fv_status (*head_max)(void *user, int32_t layer, const float *text, const float *visual,
                          int32_t n);
    /* logits [n_vocab] from which each token is sampled, before sampling */
    fv_status (*logits)(void *user, const float *logits, int32_t n_vocab);
} fv_ask_hooks;

/* A layer that the policy gives as one of 32, and the layer that it is mapped to. */
typedef struct fv_report_mapped {
    char stage[16], param[32], written[32], mapping[16]; /* fv_layer_mapping_name */
    int32_t layer;
} fv_report_mapped;

/* Results of a request. Bytes are of keys and values together. */
typedef struct fv_report {
    char policy[FV_POLICY_TEXT_MAX];         /* "": exact */
    char note[FV_N_STAGE][FV_PLAN_NOTE_MAX]; /* why a stage did nothing; else empty */
    char decided[FV_N_STAGE]
                [FV_PLAN_NOTE_MAX]; /* decisions of stages that depend on data; else empty */
    int32_t n_mapped;
    fv_report_mapped mapped[FV_PLAN_MAX_MAPPED];
    fv_pack_report packed;  /* ranks and errors of packed layers */
    fv_stage_stats account; /* results of the other stages of prefill */
    int32_t n_prompt, n_visual, n_text, n_image, n_generated;
    int32_t n_image_cached;            /* of n_image, those encoded for an earlier request */
    int32_t n_prompt_cached;           /* of n_prompt, tokens kept from an earlier request */
    int32_t n_from_disk;               /* of these, tokens read from the prefill worker's disk */
    double s_saved;                    /* that computing them took then */
    uint64_t n_drafted, n_drafts_kept; /* tokens drafted and run; those of them that were right */
    double s_drafts_saved;             /* below 0: drafts took longer */
    /* image tokens from the vision tower: n_visual unless condensed */
    int32_t n_encoded;
    int32_t n_layer, visual_tokens[FV_PLAN_MAX_LAYERS]; /* processed in each layer */
    size_t bytes_raw;                                   /* bytes that `exact` holds after prefill */
    size_t bytes_bound;                                 /* the plan's bound before prefill */
    size_t bytes_visual, bytes_text;                    /* held after prefill */
    size_t bytes_visual_end, bytes_text_end;            /* held after the last token, */
    size_t bytes_tables_end;           /* and the tables of packed layers (fv_kv_packed_tables) */
    uint64_t entries_evicted;          /* rows of KV heads evicted as the answer grew */
    fv_recompress_report recompressed; /* compressed at the end of a kept turn; {0}: nothing */
    const char *transport;             /* "inproc"; "none" if the first token ended the answer */
    uint64_t bytes_sent, sections, frames; /* of the hand-off, headers included */
    uint64_t bytes_pair;                   /* of those, from device to device */
    uint64_t n_fallback;                   /* frames planned for that path but sent otherwise */
    uint64_t tokens_unsent,
        bytes_unsent; /* of the prompt, kept on the decode worker; and their KV */
    double s_preprocess, s_vision, s_prefill, s_first_token, s_handoff, s_decode;
    fv_finish finish;
    bool kept; /* kept under `conversation`; not if the prefill's own token ended the answer */
    uint8_t conversation[16];
    uint64_t *digest; /* [n_generated] XXH64 of each step's logits, owned */
} fv_report;          /* {0} is empty and may be freed */

void fv_report_free(fv_report *r);

/* Called once, at the end. The callback may take *report and then set its digest to NULL; with a
 * status other than FV_OK the report is incomplete. Another request may begin here. */
typedef void (*fv_local_over)(void *user, fv_status st, fv_report *report);

/* Begins a request. Everything that `ask` points to must stay valid until the request is over. On
 * failure nothing has begun, and a conversation stays unchanged. FV_EBUSY: at_once requests are
 * running. FV_ENOTFOUND: no such conversation is kept. */
fv_status fv_local_begin(fv_local *local, const fv_ask *ask, const fv_ask_hooks *hooks,
                         fv_local_over over, void *user);

/* Advances the running requests: prefills some that wait, or decodes one token each. Calls hooks
 * and `over`. */
void fv_local_step(fv_local *local);

/* Runs one request to its end; no other may be running. */
fv_status fv_local_ask(fv_local *local, const fv_ask *ask, const fv_ask_hooks *hooks,
                       fv_report *report);

#endif
