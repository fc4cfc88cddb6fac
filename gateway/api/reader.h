#ifndef FOVEA_GATEWAY_API_READER_H
#define FOVEA_GATEWAY_API_READER_H

/* Shared by the files that read a body. Its JSON comes as events (json.h), and a shape says what becomes of those
 * inside of an object or array:
 *
 *     {"messages": [{"role": ...  -->  root: member("messages", ARRAY) -> fv_api_enter turns
 *                                      turns: member(OBJECT)           -> fv_api_enter turn
 *                                      turn: member("role", STRING)
 *
 * The reader knows the path of the value that it is at, which is what an error names. */
#include "gateway/api/data_url.h"
#include "gateway/api/json.h"
#include "gateway/api/request.h"

enum { FV_API_LEVELS_MAX = 8, FV_API_KEY_MAX = 128 };

typedef struct fv_api_shape {
    /* A value of it: a scalar, a whole string, or the beginning of an object or array, which must be entered or skipped.
     * key: "" in an array; a long one is cut off. */
    fv_status (*member)(fv_api_reader *r, const char *key, const fv_json_event *e);
    fv_status (*end)(fv_api_reader *r); /* NULL: nothing to check */
    /* The value of this key, if it is a string, comes in pieces, with the first one's `first`. NULL: none does. */
    const char *in_pieces;
    fv_status (*piece)(fv_api_reader *r, const fv_json_event *e, bool first);
    bool unnumbered; /* the path of a value is that of its array */
} fv_api_shape;

typedef struct fv_api_level {
    const fv_api_shape *shape;
    size_t path; /* characters of its path */
    size_t n;    /* values that are complete */
} fv_api_level;

typedef enum fv_api_part_type {
    FV_API_PART_NONE,
    FV_API_PART_TEXT,
    FV_API_PART_IMAGE,
    FV_API_PART_VIDEO
} fv_api_part_type;

/* A URL of an image or a video. */
typedef struct fv_api_url_reading {
    enum { FV_API_URL_UNKNOWN, FV_API_URL_HTTP, FV_API_URL_DATA } type;
    fv_data_url data;
    ProtobufCBinaryData *to;
    bool given;
} fv_api_url_reading;

struct fv_api_reader {
    fv_json json;
    fv_api_reader_options opt;
    fv_arena *arena;
    fv_api_request *out;
    char param[FV_API_PARAM_MAX]; /* the path */
    size_t n_fed, n_data;         /* bytes of the body; and of those, of data: URLs */
    fv_api_level levels[FV_API_LEVELS_MAX];
    int32_t n_level;
    int32_t n_skipped; /* objects and arrays that are open inside of a value that is skipped */
    bool in_string;
    char key[FV_API_KEY_MAX + 1];
    size_t n_key;
    char *text; /* [n_text] of the string that is read; owned, terminated when it is whole */
    size_t n_text, cap_text;
    const char *policy_from; /* where the policy was given; NULL: not yet */
    const char *policy;
    uint64_t given; /* a bit for each field of the body that was there and not null */
    bool truth;     /* of a shape, in whose `end` it is looked at */
    /* messages */
    Fovea__Inference__V1__Turn *turn;
    Fovea__Inference__V1__Part *part;
    fv_api_part_type part_type; /* as its field "type" says */
    uint32_t part_values;       /* a bit for each type whose value was there */
    size_t n_part;              /* of all turns */
    fv_api_url_reading url;
};

/* From a member: what is inside of the object or array goes to this shape. */
fv_status fv_api_enter(fv_api_reader *r, const fv_api_shape *shape);
/* From a member: the value is not looked at, whatever it is. */
fv_status fv_api_skip(fv_api_reader *r, const fv_json_event *e);

/* The path's next step, for an error: ".key", or "key" at the front. */
void fv_api_name(fv_api_reader *r, const char *key);
/* From a member of an array: the path is the array's. */
void fv_api_unnumber(fv_api_reader *r);

const fv_api_level *fv_api_top(const fv_api_reader *r);

/* Adds to the string that is read. FV_EINVAL: it would have more than `max` bytes. */
fv_status fv_api_keep(fv_api_reader *r, const char *text, size_t n, size_t max);

/* Room for an element beyond the n of an array in the arena, which grows by the double; *list is its address. */
fv_status fv_api_room(fv_arena *arena, void *list, size_t n, size_t size);

/* FV_EINVAL unless the value is of that type. */
fv_status fv_api_text(fv_api_reader *r, const fv_json_event *e, char **out); /* in the arena */
fv_status fv_api_number(const fv_json_event *e, double *out);                /* finite as a float */
fv_status fv_api_integer(const fv_json_event *e, int64_t min, int64_t max, int64_t *out);
fv_status fv_api_bool(const fv_json_event *e, bool *out);

/* Fields. */
fv_status fv_api_messages(fv_api_reader *r, const fv_json_event *e); /* messages.c */

/* url.c: the field "url" of an object, in pieces. Whoever enters the object begins it, and looks at `given` in its end.
 * to: the bytes of the image or video. */
void fv_api_url_begin(fv_api_reader *r, bool video, ProtobufCBinaryData *to);
fv_status fv_api_url_piece(fv_api_reader *r, const fv_json_event *e);

/* request.c: the object that a body is. */
extern const fv_api_shape fv_api_body;
fv_status fv_api_body_begin(fv_api_reader *r); /* before anything is read */
fv_status fv_api_body_end(fv_api_reader *r); /* when it is there: what depends on several fields */

#endif
