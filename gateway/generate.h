#ifndef FOVEA_GATEWAY_GENERATE_H
#define FOVEA_GATEWAY_GENERATE_H

/* GENERATE: the answer to one HTTP request that has tokens generated, shared by the files that make
 * it. Loop thread.
 *
 *   generate.c    reads the request, makes a call for each choice, ends
 *   media.c       before the calls: images at URLs, videos, and what the model is
 *   choice.c      the events of a call -> text, reasoning, tool calls
 *   response.h    writes them as responses of OpenAI's Responses API
 *   completion.c  writes them as completions of OpenAI's API, streamed (stream.c) or whole
 */
#include "gateway/api/answer.h"
#include "gateway/decode.h"
#include "gateway/model.h"
#include "telemetry/otlp/spans.h"
#include "text/calls/calls.h"
#include "text/calls/thinking.h"

typedef struct fv_answer fv_answer;

/* Text of one kind, as it comes within one event. */
typedef struct fv_pending {
    char *text; /* [n] owned, terminated */
    size_t n, cap;
    bool thought;
} fv_pending;

typedef struct fv_choice {
    fv_answer *answer;
    int32_t index;
    fv_lane *lane;
    fv_rpc_call *call; /* NULL: over, or not begun */
    bool paused, finished, begun;
    bool finds_thinking;
    fv_thinking thinking;
    fv_calls_parser *parser; /* owned; NULL: no tools */
    fv_pending pending;
    char *text; /* [n_text] of an unstreamed answer; owned, terminated */
    size_t n_text, cap_text;
    char *thought; /* [n_thought] its reasoning; likewise */
    size_t n_thought, cap_thought;
    fv_api_call *calls; /* [n_call] owned */
    int32_t n_call;
    size_t cap_call, n_call_bytes;
    uint32_t n_char; /* characters of the text so far, that of an echoed prompt included */
    fv_api_logprobs logprobs;
    fv_api_list ids, prompt_ids, prompt_logprobs; /* of an unstreamed answer */
    json_t *prompt_ids_held;                      /* of a stream until it has all; owned */
    json_t *fovea;                                /* owned; NULL: none */
    Fovea__Inference__V1__FinishReason reason;
    fv_api_usage usage;
} fv_choice;

/* Fetches the bytes at one URL of the request. */
typedef struct fv_fetching {
    fv_answer *answer;
    const fv_api_url *url;
    fv_fetch *fetch; /* NULL: not begun */
} fv_fetching;

/* Decodes one video of the request. */
typedef struct fv_answer_video {
    fv_answer *answer;
    const fv_api_video *video;
    fv_decoding *work; /* NULL: not begun */
} fv_answer_video;

/* How an answer is written. */
typedef struct fv_output {
    const char *name;                   /* of its span */
    const char *prefix;                 /* of its id */
    fv_status (*prepare)(fv_answer *a); /* before the calls begin; NULL: nothing to do */
    /* These write a stream: the beginning of a choice, once, and a part of a choice. */
    void (*begin)(fv_choice *c);
    fv_status (*part)(fv_choice *c, const fv_api_choice *part);
    /* All choices are finished. */
    void (*complete)(fv_answer *a);
    /* A stream that has begun fails. */
    void (*fail)(fv_answer *a, fv_status st, const char *why, const char *param);
    bool takes_parts; /* also of an answer that is no stream, whose choices then keep no text */
} fv_output;

extern const fv_output fv_chat_output, fv_text_output; /* completion.c */
extern const fv_output fv_response_output;             /* response_write.c */

struct fv_answer {
    fv_gateway_task task; /* first */
    const fv_output *output;
    fv_span span;
    fv_gateway *gateway;
    fv_http_request *http; /* NULL: client gone */
    fv_arena arena;
    fv_reading reading; /* owns the message and its images; ended once the calls have packed them */
    fv_api_request request;
    fv_fetching fetches[FV_API_URLS_MAX];
    int32_t n_fetch;          /* not over yet */
    fv_model_question *model; /* NULL: not asked */
    fv_answer_video videos[FV_API_VIDEOS_MAX];
    int32_t n_decoding;             /* not over yet */
    const fv_calls_form *form;      /* of tool calls; NULL: none are looked for */
    json_t *tools;                  /* owned; NULL: none */
    fv_response_remote_op *loading; /* of what a response continues; NULL: nothing is under way */
    fv_kept_response *previous; /* what was loaded; a reference; NULL: nothing, or it is in use */
    struct fv_responding *responding; /* of a response (response.h); owned; NULL: not begun */
    fv_api_names names;
    size_t n_kept; /* bytes of the choices' texts and lists */
    char id[48];
    uint64_t seed;  /* of each prompt's first choice */
    int32_t n_call; /* not over yet */
    int32_t n_left; /* choices not finished yet */
    bool streaming, over;
    bool may_cut; /* the request has stop strings that are not part of the text */
    fv_alive_stream alive;
    int32_t n_choice;   /* those of the first prompt, those of the second one, ...; 0: not begun */
    fv_choice *choices; /* [n_choice] owned */
};

/* generate.c: starts the calls, once the request is complete. */
void fv_answer_begin_calls(fv_answer *a);
/* Fails with the last error. param: the field to blame; "": as the sentence says. */
void fv_answer_refuse(fv_answer *a, fv_status st, const char *param);
void fv_answer_fail(fv_answer *a, fv_status st, const char *why, const char *param,
                    int64_t retry_ms);
void fv_answer_cancel_calls(fv_answer *a); /* the answer is over */
/* Drops the message and what was got for it. */
void fv_answer_forget(fv_answer *a);
fv_api_usage fv_answer_usage(const fv_answer *a);

/* media.c: gets all that the request needs, then calls fv_answer_begin_calls. */
void fv_answer_get_media(fv_answer *a);
void fv_answer_forget_media(fv_answer *a);

/* choice.c: an event of the choice's call. */
fv_status fv_choice_message(fv_choice *c, const Fovea__Inference__V1__GenerateEvent *e);
void fv_choice_fini(fv_choice *c);

/* stream.c: begin a stream of events, unless it has begun; send JSON as one event, named where
 * `name` is not NULL; takes the JSON. */
void fv_answer_begin_stream(fv_answer *a);
void fv_answer_send_event(fv_answer *a, const char *name, json_t *json);
void fv_answer_end_stream(fv_answer *a, const char *last);
void fv_answer_on_quiet(fv_alive_stream *s);

#endif
