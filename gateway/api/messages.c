/* Reads "messages": turns of text, images and videos. The fields of a part come in any order, so
 * they are checked against its type when the part ends. */
#include <string.h>

#include "gateway/api/reader.h"

typedef Fovea__Inference__V1__Part part_message;
typedef Fovea__Inference__V1__Turn turn_message;
typedef Fovea__Inference__V1__Chat chat_message;
typedef Fovea__Inference__V1__Image image_message;

static fv_status refuse_url(void) { return FV_FAIL(FV_EINVAL, "the URL must be a string"); }

/* ---- images ------------------------------------------------------------------------------ */

static fv_status add_image(fv_api_reader *r) {
    Fovea__Inference__V1__GenerateRequest *m = &r->out->message;
    image_message *image;
    if (m->n_images >= FV_API_IMAGES_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d images", FV_API_IMAGES_MAX);
    FV_TRY(fv_api_room(r->arena, &m->images, m->n_images, sizeof *m->images));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, image));
    fovea__inference__v1__image__init(image);
    m->images[m->n_images++] = image;
    fv_api_url_begin(r, false, &image->data);
    return FV_OK;
}

static fv_status read_image_url(fv_api_reader *r, const fv_json_event *e, bool first) {
    if (first) FV_TRY(add_image(r));
    return fv_api_url_piece(r, e);
}

/* Ignores other fields, such as "detail": the model decides image sizes. */
static fv_status read_image_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    return strcmp(key, "url") == 0 ? refuse_url() : fv_api_skip(r, e);
}

static fv_status end_image(fv_api_reader *r) {
    if (r->url.given) return FV_OK;
    fv_api_name(r, "url");
    return refuse_url();
}

/* {"url": ..., "detail": ...} */
static const fv_api_shape image = {
    .member = read_image_field, .end = end_image, .in_pieces = "url", .piece = read_image_url};

static void set_image(fv_api_reader *r) {
    static Fovea__Inference__V1__NextImage next = FOVEA__INFERENCE__V1__NEXT_IMAGE__INIT;
    r->part->kind_case = FOVEA__INFERENCE__V1__PART__KIND_IMAGE;
    r->part->image = &next;
}

static fv_status read_image(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT)
        return FV_FAIL(FV_EINVAL, "it must be a URL or an object with a url");
    set_image(r);
    r->url.given = false;
    return fv_api_enter(r, &image);
}

/* "image_url": "data:..." */
static fv_status read_image_piece(fv_api_reader *r, const fv_json_event *e, bool first) {
    if (first) {
        set_image(r);
        r->part_values |= 1u << FV_API_PART_IMAGE;
    }
    return read_image_url(r, e, first);
}

/* ---- videos ------------------------------------------------------------------------------ */

static fv_api_video *video_of(fv_api_reader *r) { return &r->out->videos[r->out->n_video]; }

static fv_status read_video_url(fv_api_reader *r, const fv_json_event *e, bool first) {
    if (first) fv_api_url_begin(r, true, &video_of(r)->file);
    return fv_api_url_piece(r, e);
}

static fv_status read_rate(const fv_json_event *e, double *out) {
    FV_TRY(fv_api_number(e, out));
    if (*out >= 1e-3 && *out <= 1000) return FV_OK;
    return FV_FAIL(FV_EINVAL, "%g frames per second: expected 0.001..1000", *out);
}

static fv_status read_video_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    int64_t n;
    if (strcmp(key, "url") == 0) return refuse_url();
    if (strcmp(key, "fps") == 0) return read_rate(e, &video_of(r)->rate);
    if (strcmp(key, "num_frames") != 0) return fv_api_skip(r, e);
    FV_TRY(fv_api_integer(e, 1, FV_API_IMAGES_MAX, &n));
    video_of(r)->frames = (int32_t)n;
    return FV_OK;
}

static fv_status end_video(fv_api_reader *r) {
    if (!r->url.given) return FV_FAIL(FV_EINVAL, "the video has no url");
    r->out->n_video++;
    return FV_OK;
}

/* {"url": ..., "num_frames": N, "fps": F}, the numbers under their names in transformers. */
static const fv_api_shape video = {
    .member = read_video_field, .end = end_video, .in_pieces = "url", .piece = read_video_url};

/* Notes the video's place: its frames will replace the part. */
static fv_status read_video(fv_api_reader *r, const fv_json_event *e) {
    const fv_api_request *q = r->out;
    if (q->kind == FV_API_TOKENS) return FV_FAIL(FV_EINVAL, "/tokenize does not accept videos");
    if (q->kind == FV_API_RESPONSE)
        return FV_FAIL(FV_EINVAL, "responses take no videos: use /v1/chat/completions");
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object with a url");
    if (q->n_video == FV_API_VIDEOS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d videos", FV_API_VIDEOS_MAX);
    *video_of(r) =
        (fv_api_video){.turn = r->turn, .part = r->turn->n_parts - 1, .image = q->message.n_images};
    FV_TRY(fv_arena_strndup(r->arena, r->param, strlen(r->param), &video_of(r)->param));
    r->url.given = false;
    return fv_api_enter(r, &video);
}

/* ---- parts ------------------------------------------------------------------------------- */

static fv_status read_text(fv_api_reader *r, const fv_json_event *e) {
    r->part->kind_case = FOVEA__INFERENCE__V1__PART__KIND_TEXT;
    return fv_api_text(r, e, &r->part->text);
}

/* A part's value has a key of its own. */
static const struct {
    const char *key;
    fv_status (*read)(fv_api_reader *r, const fv_json_event *e);
} values[] = {
    [FV_API_PART_TEXT] = {"text", read_text},
    [FV_API_PART_IMAGE] = {"image_url", read_image},
    [FV_API_PART_VIDEO] = {"video_url", read_video},
};

static const struct {
    const char *name;
    fv_api_part_type value;
} types[] = {{"text", FV_API_PART_TEXT},          {"image_url", FV_API_PART_IMAGE},
             {"video_url", FV_API_PART_VIDEO},    {"input_text", FV_API_PART_TEXT},
             {"output_text", FV_API_PART_TEXT},   {"input_image", FV_API_PART_IMAGE},
             {"reasoning_text", FV_API_PART_TEXT}};

static fv_api_part_type find_value(const char *key) {
    fv_api_part_type t = FV_API_PART_VIDEO;
    while (t != FV_API_PART_NONE && strcmp(values[t].key, key) != 0) t--;
    return t;
}

static fv_status refuse_untyped(void) {
    return FV_FAIL(FV_EINVAL, "a part must be a text, or an object with a type");
}

static fv_status read_type(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_STRING) {
        fv_api_unnumber(r); /* the part is to blame */
        return refuse_untyped();
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, e->text) == 0) r->part_type = types[i].value;
    if (r->part_type != FV_API_PART_NONE) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "part type '%.32s' is not supported; use text, image_url or video_url", e->text);
}

/* Fields that are not known, such as cache_control, have no effect, as those that are null. */
static fv_status read_part_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    const fv_api_part_type t = find_value(key);
    if (strcmp(key, "type") == 0) return read_type(r, e);
    if (t == FV_API_PART_NONE || e->type == FV_JSON_NULL) return fv_api_skip(r, e);
    r->part_values |= 1u << t;
    return values[t].read(r, e);
}

/* A part without a type has that of its value. */
static fv_status end_part(fv_api_reader *r) {
    fv_api_part_type t = r->part_type;
    for (fv_api_part_type i = FV_API_PART_VIDEO; t == FV_API_PART_NONE && i > 0; i--)
        if (r->part_values == 1u << i) t = i;
    if (t == FV_API_PART_NONE) return refuse_untyped();
    if (r->part_values == 1u << t) return FV_OK;
    if (r->part_values & 1u << t)
        return FV_FAIL(FV_EINVAL, "a part has one value, and this one's is %s", values[t].key);
    fv_api_name(r, values[t].key);
    return values[t].read(r, &(fv_json_event){.type = FV_JSON_NULL});
}

static const fv_api_shape part = {.member = read_part_field,
                                  .end = end_part,
                                  .in_pieces = "image_url",
                                  .piece = read_image_piece};

static fv_status add_part(fv_api_reader *r, const char *key, const fv_json_event *e) {
    turn_message *t = r->turn;
    (void)key;
    if (e->type != FV_JSON_OBJECT && e->type != FV_JSON_STRING) return refuse_untyped();
    if (r->n_part == FV_API_PARTS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d parts in all messages", FV_API_PARTS_MAX);
    FV_TRY(fv_api_room(r->arena, &t->parts, t->n_parts, sizeof *t->parts));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, r->part));
    fovea__inference__v1__part__init(r->part);
    t->parts[t->n_parts++] = r->part;
    r->n_part++;
    if (e->type == FV_JSON_STRING) return read_text(r, e);
    r->part_type = FV_API_PART_NONE;
    r->part_values = 0;
    return fv_api_enter(r, &part);
}

static const fv_api_shape parts = {.member = add_part};

/* ---- turns ------------------------------------------------------------------------------- */

/* Which roles there are is for the checkpoint's template to say. */
fv_status fv_api_turn_role(fv_api_reader *r, const fv_json_event *e) {
    if (e->type == FV_JSON_STRING && (e->n == 0 || e->n > FV_API_ROLE_MAX))
        return FV_FAIL(FV_EINVAL, "a role has 1..%d bytes", FV_API_ROLE_MAX);
    return fv_api_text(r, e, &r->turn->role);
}

fv_status fv_api_turn_content(fv_api_reader *r, const fv_json_event *e) {
    r->has_text = e->type == FV_JSON_STRING;
    if (r->has_text) return fv_api_text(r, e, &r->turn->text);
    if (e->type == FV_JSON_ARRAY) return fv_api_enter(r, &parts);
    return FV_FAIL(FV_EINVAL, "content must be a text or a list of parts");
}

/* Fields beside role and content go to the template as they are. */
static fv_status read_turn_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (strcmp(key, "role") == 0) return fv_api_turn_role(r, e);
    if (e->type == FV_JSON_NULL) return FV_OK;
    if (strcmp(key, "content") == 0) return fv_api_turn_content(r, e);
    return strlen(key) < FV_API_KEY_MAX ? fv_api_capture_member(r, key, e) : fv_api_skip(r, e);
}

/* An empty list is no content, as null is. */
static fv_status end_turn(fv_api_reader *r) {
    r->turn->no_content = !r->has_text && r->turn->n_parts == 0;
    if (!*r->turn->role) return FV_FAIL(FV_EINVAL, "the message has no role");
    return fv_api_capture_end(r, &r->turn->members);
}

static const fv_api_shape turn = {.member = read_turn_field, .end = end_turn};

fv_status fv_api_new_turn(fv_api_reader *r) {
    chat_message *chat = r->out->message.prompt->chat;
    if (chat->n_turns == FV_API_TURNS_MAX) {
        fv_api_unnumber(r);
        return FV_FAIL(FV_EINVAL, "more than %d messages", FV_API_TURNS_MAX);
    }
    FV_TRY(fv_api_room(r->arena, &chat->turns, chat->n_turns, sizeof *chat->turns));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, r->turn));
    fovea__inference__v1__turn__init(r->turn);
    chat->turns[chat->n_turns++] = r->turn;
    r->has_text = false;
    return FV_OK;
}

static fv_status add_turn(fv_api_reader *r, const char *key, const fv_json_event *e) {
    (void)key;
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "a message must be an object");
    FV_TRY(fv_api_new_turn(r));
    return fv_api_enter(r, &turn);
}

static fv_status refuse_messages(void) {
    return FV_FAIL(FV_EINVAL, "it must be a list of one or more messages");
}

static fv_status end_turns(fv_api_reader *r) {
    return fv_api_top(r)->n ? FV_OK : refuse_messages();
}

static const fv_api_shape turns = {.member = add_turn, .end = end_turns};

fv_status fv_api_new_chat(fv_api_reader *r) {
    Fovea__Inference__V1__Prompt *prompt;
    FV_TRY(FV_ARENA_NEW(r->arena, 1, prompt));
    fovea__inference__v1__prompt__init(prompt);
    prompt->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    FV_TRY(FV_ARENA_NEW(r->arena, 1, prompt->chat));
    fovea__inference__v1__chat__init(prompt->chat);
    r->out->message.prompt = prompt;
    return FV_OK;
}

fv_status fv_api_messages(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_ARRAY) return refuse_messages();
    FV_TRY(fv_api_new_chat(r));
    return fv_api_enter(r, &turns);
}
