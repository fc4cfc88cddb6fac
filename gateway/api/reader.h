#ifndef FOVEA_GATEWAY_API_READER_H
#define FOVEA_GATEWAY_API_READER_H

/* Shared by the files that read a body. JSON arrives as events (json.h); a shape handles the events
 * inside one object or array:
 *
 *     {"messages": [{"role": ...  -->  root: member("messages", ARRAY) -> fv_api_enter turns
 *                                      turns: member(OBJECT)           -> fv_api_enter turn
 *                                      turn: member("role", STRING)
 *
 * The reader tracks the path of the current value, which errors name. */
#include "gateway/api/data_url.h"
#include "gateway/api/json.h"
#include "gateway/api/request.h"

enum { FV_API_LEVELS_MAX = 8, FV_API_KEY_MAX = 128 };

typedef struct fv_api_shape {
    /* Handles one value: a scalar, a whole string, or the beginning of an object or array, which it
     * must enter or skip. key: "" in an array; long keys are cut off. */
    fv_status (*member)(fv_api_reader *r, const char *key, const fv_json_event *e);
    fv_status (*end)(fv_api_reader *r); /* NULL: nothing to check */
    /* The key whose string value goes to `piece` in pieces; `first`: the first one. NULL: none. */
    const char *in_pieces;
    fv_status (*piece)(fv_api_reader *r, const fv_json_event *e, bool first);
    bool unnumbered; /* elements have the path of their array */
} fv_api_shape;

typedef struct fv_api_level {
    const fv_api_shape *shape;
    size_t path; /* length of its path */
    size_t n;    /* complete values so far */
} fv_api_level;

typedef enum fv_api_part_type {
    FV_API_PART_NONE,
    FV_API_PART_TEXT,
    FV_API_PART_IMAGE,
    FV_API_PART_VIDEO
} fv_api_part_type;

/* The URL of an image or a video while it is read. */
typedef struct fv_api_url_reading {
    enum { FV_API_URL_UNKNOWN, FV_API_URL_HTTP, FV_API_URL_DATA } type;
    fv_data_url data;
    ProtobufCBinaryData *to;
    bool given;
} fv_api_url_reading;

/* Values that are written as JSON again while they are read. */
typedef struct fv_api_capture {
    char *s; /* [n] owned */
    size_t n, cap;
    int32_t depth; /* open objects and arrays */
    bool first, in_string;
    char **to; /* receives the whole value; NULL: a member of an object that goes on */
} fv_api_capture;

/* An item of a response's input while it is read, and what goes on from item to item. */
typedef struct fv_api_item {
    int32_t type;
    char *call_id, *name, *arguments; /* NULL: not given */
    char *thought;                    /* reasoning before the assistant's next turn; NULL: none */
    Fovea__Inference__V1__Turn *open; /* an assistant's turn, which calls may join; NULL: none */
    struct json_t *members;           /* its other members; owned */
} fv_api_item;

/* Fields that say how the chat is rendered, until the body ends. */
typedef struct fv_api_chat_fields {
    bool opens, opens_given, continues, continues_given;
    char *variables, *effort, *tools, *tool_choice; /* JSON; NULL: not given */
    char *chat_template;
} fv_api_chat_fields;

/* Fields that say what form the answer has, as JSON; NULL: not given. */
typedef struct fv_api_form_fields {
    char *format, *outputs, *json, *regex, *choice, *grammar;
} fv_api_form_fields;

struct fv_api_reader {
    fv_json json;
    fv_api_reader_options opt;
    fv_arena *arena;
    fv_api_request *out;
    char param[FV_API_PARAM_MAX]; /* the path */
    size_t n_fed, n_data;         /* bytes of the body, and of its data: URLs */
    fv_api_level levels[FV_API_LEVELS_MAX];
    int32_t n_level;
    int32_t n_skipped; /* open objects and arrays of the value being skipped */
    fv_api_capture capture;
    fv_api_chat_fields chat;
    fv_api_form_fields form;
    bool in_string;
    char key[FV_API_KEY_MAX + 1];
    size_t n_key;
    char *text; /* [n_text] the current string; owned, terminated */
    size_t n_text, cap_text;
    const char *policy_from; /* where the policy was given; NULL: not yet */
    const char *policy;
    uint64_t given;      /* a bit for each field of the body that was given and not null */
    bool truth;          /* of a shape's members, for those after them and its `end` */
    int32_t n_id;        /* token ids of all prompts */
    size_t n_prediction; /* bytes of the prediction's parts so far */
    /* messages */
    Fovea__Inference__V1__Turn *turn;
    Fovea__Inference__V1__Part *part;
    fv_api_part_type part_type; /* from the field "type" */
    uint32_t part_values;       /* a bit for each type whose value was given */
    size_t n_part;              /* of all turns */
    bool has_text;              /* of the turn: its content is a text */
    fv_api_item item;
    fv_api_url_reading url;
};

/* Called in `member`: the values of the object or array go to this shape. */
fv_status fv_api_enter(fv_api_reader *r, const fv_api_shape *shape);
/* Called in `member`: skips the value, whatever it is. */
fv_status fv_api_skip(fv_api_reader *r, const fv_json_event *e);

/* Called in `member`: skips a value that has no effect, and lists its path in out->ignored;
 * FV_EINVAL where opt.strict. */
fv_status fv_api_ignore(fv_api_reader *r, const fv_json_event *e);

/* Appends a key to the path, for an error: ".key", or "key" at the front. */
void fv_api_name(fv_api_reader *r, const char *key);
/* Called in `member` of an array: resets the path to the array's. */
void fv_api_unnumber(fv_api_reader *r);

const fv_api_level *fv_api_top(const fv_api_reader *r);

/* Appends to the current string. FV_EINVAL: it would have more than `max` bytes. */
fv_status fv_api_keep(fv_api_reader *r, const char *text, size_t n, size_t max);

/* Makes room for one more element in an array of n in the arena; doubles its size. `list` points to
 * the array's pointer. */
fv_status fv_api_room(fv_arena *arena, void *list, size_t n, size_t size);

/* Read a value; FV_EINVAL unless it has that type. */
fv_status fv_api_text(fv_api_reader *r, const fv_json_event *e, char **out); /* in the arena */
fv_status fv_api_number(const fv_json_event *e, double *out);                /* finite as a float */
fv_status fv_api_integer(const fv_json_event *e, int64_t min, int64_t max, int64_t *out);
fv_status fv_api_bool(const fv_json_event *e, bool *out);

/* unsupported.c: _unsupported reads a field that is in no table of the caller's: refuses it where
 * it asks for what does not exist here, and ignores it otherwise. _nothing accepts only values that
 * ask for nothing: false, "none", an empty text or list. */
fv_status fv_api_unsupported(fv_api_reader *r, const char *key, const fv_json_event *e);
fv_status fv_api_nothing(fv_api_reader *r, const fv_json_event *e);

/* messages.c: reads the field "messages". _new_chat begins the chat, _new_turn adds a turn, r->turn;
 * _turn_role and _turn_content read these fields of it. */
fv_status fv_api_messages(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_new_chat(fv_api_reader *r);
fv_status fv_api_new_turn(fv_api_reader *r);
fv_status fv_api_turn_role(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_turn_content(fv_api_reader *r, const fv_json_event *e);

/* input.c: reads the field "input". */
fv_status fv_api_input(fv_api_reader *r, const fv_json_event *e);
void fv_api_item_fini(fv_api_item *item);

/* responses.c: reads a field that only responses have; *is: it is one. _end checks them. _name: the
 * name of field i, of those that have an effect; NULL: there are no more. */
fv_status fv_api_response_field(fv_api_reader *r, const char *key, const fv_json_event *e,
                                bool *is);
fv_status fv_api_response_end(fv_api_reader *r);
const char *fv_api_response_field_name(int32_t i);

/* template.c: read the fields of these names. _template_end completes the chat of the message. */
fv_status fv_api_add_generation_prompt(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_continue_final_message(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_speculate(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_prediction(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_add_special_tokens(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_template_variables(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_reasoning_effort(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_chat_template(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_processor(fv_api_reader *r, const fv_json_event *e); /* mm_processor_kwargs */
fv_status fv_api_template_end(fv_api_reader *r);

/* tools.c: read the fields of these names. _tools_end checks them, once all are read. */
fv_status fv_api_tools(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_tool_choice_field(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_tools_end(fv_api_reader *r);

/* capture.c, called in `member`. _value: writes the value as JSON to *out, in the arena, once it is
 * complete. _member: adds a member to the object that _end gives; *out stays untouched where it has
 * none. _event: the next event of a value of which r->capture.depth objects and arrays are open. */
fv_status fv_api_capture_value(fv_api_reader *r, const fv_json_event *e, char **out);
fv_status fv_api_capture_member(fv_api_reader *r, const char *key, const fv_json_event *e);
fv_status fv_api_capture_end(fv_api_reader *r, char **out);
fv_status fv_api_capture_event(fv_api_reader *r, const fv_json_event *e);

/* url.c: reads the field "url" of an object in pieces. The object's shape begins it, and checks
 * `given` in its `end`. to: receives the bytes of the image or video. */
void fv_api_url_begin(fv_api_reader *r, bool video, ProtobufCBinaryData *to);
fv_status fv_api_url_piece(fv_api_reader *r, const fv_json_event *e);

/* rules.c: read the fields of these names. */
fv_status fv_api_min_tokens(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_max_tokens(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_stop_ids(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_allowed_ids(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_bad_words(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_top_p(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_repetition_penalty(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_truncate(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_prompt_logprobs(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_skip_special(fv_api_reader *r, const fv_json_event *e);
/* Asks for at least n alternatives for each token of the prompt. */
void fv_api_want_prompt_logprobs(fv_api_request *q, uint32_t n);

/* form.c: read the fields of these names. _form_end writes the message's constraint. */
fv_status fv_api_response_format(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_structured_outputs(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_guided_json(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_guided_regex(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_guided_choice(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_guided_grammar(fv_api_reader *r, const fv_json_event *e);
fv_status fv_api_form_end(fv_api_reader *r);

/* The rules of the message, made when they are first needed (rules.c). */
fv_status fv_api_rules_of(fv_api_reader *r, Fovea__Inference__V1__TokenRules **out);

/* request.c: the body's object. */
extern const fv_api_shape fv_api_body;
fv_status fv_api_body_begin(fv_api_reader *r); /* before the first byte */
fv_status fv_api_body_end(fv_api_reader *r);   /* at the end: checks that need several fields */

#endif
