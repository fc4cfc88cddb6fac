#ifndef FOVEA_GATEWAY_API_REQUEST_H
#define FOVEA_GATEWAY_API_REQUEST_H

/* REQUEST: the JSON of a chat or text completion or a response, as OpenAI defines it and vLLM extends
 * it -> a GenerateRequest. Unsupported fields that would change the answer are refused by name, others that
 * are unknown are ignored and listed; the router checks ranges. docs/HTTP.md lists the fields.
 *
 * A body is parsed as it arrives and is never in memory as a whole: images and videos are decoded
 * from base64 piece by piece; the rest is limited in bytes, and each list in length. Work is linear
 * in the bytes. One thread at a time. */
#include "common/arena.h"
#include "inference.pb-c.h"

enum {
    FV_API_PARAM_MAX = 128,
    FV_API_CHOICES_MAX = 16,  /* answers to a prompt */
    FV_API_ANSWERS_MAX = 128, /* answers to all prompts of a request, and so its prompts */
    FV_API_URLS_MAX = 16,
    FV_API_URL_MAX = 4096,   /* bytes of an http(s) URL */
    FV_API_IMAGES_MAX = 256, /* the router checks the model's limit */
    FV_API_VIDEOS_MAX = 4,
    FV_API_TURNS_MAX = 4096,      /* messages */
    FV_API_ROLE_MAX = 64,         /* bytes of a role */
    FV_API_PARTS_MAX = 4096,      /* parts of all messages */
    FV_API_IDS_MAX = 1 << 20,     /* ids of all prompts: more than the context of any model */
    FV_API_IGNORED_MAX = 16,      /* names of ignored fields that are kept */
    FV_API_RESPONSE_ID_MAX = 128, /* bytes */
    FV_API_TOOLS_MAX = 128,
    FV_API_TOOLS_BYTES = 256 << 10, /* of the field "tools" */
};

typedef enum fv_api_kind {
    FV_API_CHAT = 1,      /* /v1/chat/completions */
    FV_API_TEXT = 2,      /* /v1/completions */
    FV_API_TOKENS = 4,    /* /tokenize */
    FV_API_IDS = 8,       /* /detokenize: the ids are read into the prompt */
    FV_API_RESPONSE = 16, /* /v1/responses */
} fv_api_kind;

typedef enum fv_api_tool_choice {
    FV_API_TOOL_AUTO,     /* the model decides */
    FV_API_TOOL_NONE,     /* no tools are told to the model, and none is called */
    FV_API_TOOL_REQUIRED, /* at least one call */
    FV_API_TOOL_NAMED     /* a call of one function */
} fv_api_tool_choice;

/* An http(s) URL, whose bytes go into the message. */
typedef struct fv_api_url {
    char *url, *param; /* param: its path in the body */
    ProtobufCBinaryData *bytes;
} fv_api_url;

/* A video, which its frames will replace. */
typedef struct fv_api_video {
    ProtobufCBinaryData file;
    int32_t frames; /* 0: by rate, or both 0: the default */
    double rate;
    Fovea__Inference__V1__Turn *turn;
    size_t part, image; /* its part of the turn, and how many images precede it */
    char *param;        /* its path in the body */
} fv_api_video;

/* Borrowed until the message has been sent. */
typedef struct fv_api_frame {
    ProtobufCBinaryData png;
    const char *time; /* the text before it, if sent as an image */
    double seconds;
} fv_api_frame;

typedef struct fv_api_frames {
    const fv_api_frame *frame; /* [n] */
    size_t n;
    double fps;    /* of these frames */
    bool as_video; /* the model reads them as one video; otherwise each is an image */
} fv_api_frames;

/* Decoded bytes of an image or a video. */
typedef struct fv_api_bytes {
    struct fv_api_bytes *next;
    uint8_t *data; /* owned */
} fv_api_bytes;

/* Fields of responses alone. */
typedef struct fv_api_response_fields {
    char *instructions, *previous; /* NULL: none */
    char *metadata, *format;       /* JSON; NULL: none */
    char *effort;                  /* reasoning_effort; NULL: none */
    char *tools;                   /* as they were given; NULL: none */
    bool store;
} fv_api_response_fields;

/* The arena owns all memory except `bytes`. */
typedef struct fv_api_request {
    fv_api_kind kind;
    Fovea__Inference__V1__GenerateRequest message; /* its prompt is the first one */
    Fovea__Inference__V1__Prompt **prompts;        /* [n_prompt] */
    int32_t n_prompt;
    protobuf_c_boolean stream;
    protobuf_c_boolean report; /* report in an unstreamed answer; streams always have it */
    bool include_usage;
    bool usage_always;         /* with include_usage: in each chunk */
    bool logprobs;             /* asked for; message.n_logprobs alternatives */
    protobuf_c_boolean echo;   /* of a completion: the prompt is part of its text */
    bool prompt_only;          /* with echo: the answer's token is dropped */
    bool prompt_logprobs;      /* return those of the prompt */
    protobuf_c_boolean ids;    /* return the ids of prompt and answer */
    protobuf_c_boolean as_ids; /* logprobs name tokens by their ids */
    int32_t n;                 /* answers to each prompt */
    int32_t best_of;           /* 0: not given */
    bool seeded;               /* message.sampling->seed was given */
    protobuf_c_boolean texts;  /* /tokenize: with the tokens' texts */
    char *tools;               /* those that may be called, a checked list as text; NULL: none */
    fv_api_tool_choice tool_choice;
    char *tool_name;                   /* of FV_API_TOOL_NAMED */
    protobuf_c_boolean parallel_calls; /* more than one call in an answer */
    bool special_given;                /* skip_special_tokens was given */
    fv_api_response_fields response;
    fv_api_url urls[FV_API_URLS_MAX];
    int32_t n_url;
    fv_api_video videos[FV_API_VIDEOS_MAX];
    int32_t n_video;                         /* without frames yet */
    fv_api_bytes *bytes;                     /* bytes of all images and videos */
    const char *ignored[FV_API_IGNORED_MAX]; /* paths of fields without effect; the first ones */
    int32_t n_ignored;
} fv_api_request;

void fv_api_bytes_free(const fv_api_bytes *all); /* NULL is fine */

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct fv_api_reader fv_api_reader; /* opaque */

typedef struct fv_api_reader_options {
    fv_api_kind kind;
    const char *policy;  /* header x-fovea-policy; borrowed until the end; NULL: none */
    size_t json_max;     /* bytes of a body outside its data: URLs */
    bool strict;         /* refuse fields that would be ignored */
    bool chat_templates; /* read the field chat_template; otherwise it is refused */
} fv_api_reader_options;

/* Gives *reader. *out is complete once fv_api_reader_end returns FV_OK. The caller frees out->bytes
 * in any case, after closing the reader. */
fv_status fv_api_reader_open(const fv_api_reader_options *opt, fv_arena *arena, fv_api_request *out,
                             fv_api_reader **reader);
void fv_api_reader_close(fv_api_reader *r); /* NULL is fine */

/* _feed reads the next n bytes of the body; _end checks that the body is complete. FV_EINVAL:
 * fv_api_reader_param returns the field to blame ("messages[0].content[1].image_url") or "", and
 * fv_last_error why. FV_ENOMEM: more than json_max bytes, or out of memory. Nothing may be fed
 * after a failure. */
fv_status fv_api_reader_feed(fv_api_reader *r, const char *bytes, size_t n);
fv_status fv_api_reader_end(fv_api_reader *r);
const char *fv_api_reader_param(const fv_api_reader *r);

/* ---- the table of fields ---------------------------------------------------------------- */

typedef enum fv_api_field_type {
    FV_API_ANY, /* has a reader of its own */
    FV_API_NUMBER,
    FV_API_INTEGER, /* min..max */
    FV_API_FLAG,
} fv_api_field_type;

typedef struct fv_api_field_info {
    const char *name;
    unsigned kinds; /* fv_api_kind */
    fv_api_field_type type;
    int64_t min, max;
} fv_api_field_info;

/* Gives row i of the table that drives the reader; false: there are no more. For documentation. */
bool fv_api_field(int32_t i, fv_api_field_info *out);

/* Replaces the last video without frames by these frames. FV_EINVAL: too many images. */
fv_status fv_api_put_frames(fv_api_request *r, const fv_api_frames *frames, fv_arena *arena);

/* Prints a conversation's handle as clients see it, in base64url; allocates in the arena. */
fv_status fv_api_handle_print(const ProtobufCBinaryData *handle, fv_arena *arena, char **out);

#endif
