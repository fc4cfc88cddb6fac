#ifndef FOVEA_GATEWAY_API_ANSWER_H
#define FOVEA_GATEWAY_API_ANSWER_H

/* ANSWER: tokens and reports -> the JSON of OpenAI's API. Functions that return json_t give it;
 * NULL: out of memory. Any thread. */
#include <jansson.h>

#include "gateway/api/logprobs.h"

/* Flags for json_dumps. */
#define FV_API_JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))

typedef struct fv_api_names {
    fv_api_kind kind; /* chat or text */
    const char *id, *model;
    int64_t created; /* seconds since 1970 */
} fv_api_names;

typedef struct fv_api_usage {
    uint64_t n_prompt, n_answer;       /* tokens */
    bool thinks;                       /* the model's reasoning is told apart: */
    uint64_t n_thought;                /* these tokens of the answer */
    uint64_t n_cached;                 /* of n_prompt, those kept from earlier prompts */
    uint64_t n_drafted, n_drafts_kept; /* Report's */
} fv_api_usage;

enum { FV_API_CALL_ID_MAX = 32 };

/* A call of a tool. */
typedef struct fv_api_call {
    char id[FV_API_CALL_ID_MAX];
    char *name, *arguments; /* arguments: JSON as text */
} fv_api_call;

/* A choice of an answer, or the part of it in a chunk. Borrowed. */
typedef struct fv_api_choice {
    int32_t index;
    const char *text;            /* NULL: the chunk has none */
    const char *thought;         /* its reasoning; NULL: none */
    const fv_api_call *calls;    /* [n_call] all of an answer, or the one of a chunk */
    int32_t n_call;              /* of an answer, or with `finish`: how many there were */
    int32_t call;                /* of a chunk with a call: its number, */
    bool call_begins;            /* whether the chunk has its name; otherwise its arguments */
    bool begins;                 /* a chat's first chunk, which has the role */
    json_t *logprobs;            /* of a chunk; NULL: null */
    const fv_api_logprobs *kept; /* of an unstreamed answer; NULL: null */
    json_t *ids;                 /* of the tokens of a chunk; NULL: none */
    json_t *prompt_ids;          /* of the prompt, in one chunk; NULL: none */
    /* Lists of an unstreamed answer; NULL: none. */
    const fv_api_list *all_ids, *all_prompt_ids, *prompt_logprobs;
    json_t *fovea; /* NULL: none */
    Fovea__Inference__V1__FinishReason finish;
} fv_api_choice;

/* Makes a chunk of a stream with one choice, or with `choice` NULL the last one with the usage.
 * `usages`: chunks have the field "usage". */
json_t *fv_api_chunk(const fv_api_names *names, const fv_api_choice *choice, bool usages,
                     const fv_api_usage *usage);

/* Prints an unstreamed answer. Gives *out [*n_out] (free it). */
fv_status fv_api_whole(const fv_api_names *names, const fv_api_choice *choices, int32_t n,
                       const fv_api_usage *usage, char **out, size_t *n_out);

/* {"policy", "report", "conversation", "keep_ms"}. `report`: include the report. */
json_t *fv_api_fovea(const Fovea__Inference__V1__Finished *f, bool report, fv_arena *arena);

/* {"error": {"message", "type", "param", "code"}}. param "": taken from `sentence` if that begins
 * with a field's name. */
json_t *fv_api_error(fv_status st, const char *sentence, const char *param);

unsigned fv_api_http_status(fv_status st);

#endif
