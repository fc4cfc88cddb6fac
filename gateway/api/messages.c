/* messages: turns of text, images and videos. */
#include <string.h>
#include <strings.h>

#include "gateway/api/data_url.h"
#include "gateway/api/reader.h"

typedef Fovea__Inference__V1__Part part_message;
typedef Fovea__Inference__V1__Turn turn_message;
typedef Fovea__Inference__V1__Image image_message;

/* OpenAI's newer name of the system's role. */
static fv_status read_role(fv_api_reader *r, const json_t *v, turn_message *turn) {
    FV_TRY(fv_api_text(r, v, &turn->role));
    if (strcmp(turn->role, "developer") == 0) turn->role = (char *)(uintptr_t) "system";
    if (strcmp(turn->role, "system") == 0 || strcmp(turn->role, "user") == 0 ||
        strcmp(turn->role, "assistant") == 0)
        return FV_OK;
    return FV_FAIL(FV_EINVAL, "role '%.32s' is not supported; use system, user or assistant",
                   turn->role);
}

static bool is_http(const char *url) {
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

static fv_status add_url(fv_api_reader *r, const json_t *url, ProtobufCBinaryData *bytes) {
    fv_api_url *to = &r->out->urls[r->out->n_url];
    if (r->out->n_url == FV_API_URLS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d http(s) URLs in a request", FV_API_URLS_MAX);
    FV_TRY(fv_api_text(r, url, &to->url));
    FV_TRY(fv_arena_strndup(r->arena, r->param, strlen(r->param), &to->param));
    to->bytes = bytes;
    r->out->n_url++;
    return FV_OK;
}

static fv_status read_url(fv_api_reader *r, const json_t *url, bool video,
                          ProtobufCBinaryData *bytes) {
    const char *text = json_string_value(url);
    size_t n = json_string_length(url);
    if (!text) return FV_FAIL(FV_EINVAL, "the URL must be a string");
    if (is_http(text)) return add_url(r, url, bytes);
    fv_api_cut_find(r->cuts, &text, &n);
    return fv_data_url_read(text, n, video, r->arena, bytes);
}

static fv_status add_image(fv_api_reader *r, const json_t *url) {
    Fovea__Inference__V1__GenerateRequest *m = &r->out->message;
    image_message *image;
    if (m->n_images >= FV_API_IMAGES_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d images", FV_API_IMAGES_MAX);
    if (!m->images) FV_TRY(FV_ARENA_NEW(r->arena, FV_API_IMAGES_MAX, m->images));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, image));
    fovea__inference__v1__image__init(image);
    m->images[m->n_images++] = image;
    return read_url(r, url, false, &image->data);
}

/* {"url": ..., "detail": ...}: detail has no effect, because sizes are the model's. */
static fv_status read_image(fv_api_reader *r, const json_t *v) {
    const char *key;
    json_t *field;
    if (!json_is_object(v)) return FV_FAIL(FV_EINVAL, "it must be an object with a url");
    json_object_foreach((json_t *)(uintptr_t)v, key, field) {
        if (strcmp(key, "url") == 0 || strcmp(key, "detail") == 0) continue;
        fv_api_enter(r, key);
        return FV_FAIL(FV_EINVAL, "this field is not supported");
    }
    size_t at = fv_api_enter(r, "url");
    FV_TRY(add_image(r, json_object_get(v, "url")));
    fv_api_leave(r, at);
    return FV_OK;
}

static fv_status read_rate(const json_t *v, double *out) {
    FV_TRY(fv_api_number(v, out));
    if (*out >= 1e-3 && *out <= 1000) return FV_OK;
    return FV_FAIL(FV_EINVAL, "%g frames per second: expected 0.001..1000", *out);
}

/* {"url": ..., "num_frames": N, "fps": F}, the numbers under their names in transformers. Its frames take
 * the place of the part. */
static fv_status read_video(fv_api_reader *r, const json_t *v, turn_message *turn) {
    fv_api_request *q = r->out;
    const char *key;
    json_t *field;
    if (q->kind == FV_API_TOKENS) return FV_FAIL(FV_EINVAL, "videos are not decoded here");
    if (!json_is_object(v)) return FV_FAIL(FV_EINVAL, "it must be an object with a url");
    if (!json_object_get(v, "url")) return FV_FAIL(FV_EINVAL, "the video has no url");
    if (q->n_video == FV_API_VIDEOS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d videos", FV_API_VIDEOS_MAX);
    fv_api_video *video = &q->videos[q->n_video];
    *video = (fv_api_video){.turn = turn, .part = turn->n_parts - 1, .image = q->message.n_images};
    FV_TRY(fv_arena_strndup(r->arena, r->param, strlen(r->param), &video->param));
    json_object_foreach((json_t *)(uintptr_t)v, key, field) {
        size_t at = fv_api_enter(r, key);
        int64_t n = 0;
        if (strcmp(key, "url") == 0)
            FV_TRY(read_url(r, field, true, &video->file));
        else if (strcmp(key, "num_frames") == 0)
            FV_TRY(fv_api_integer(field, 1, FV_API_IMAGES_MAX, &n));
        else if (strcmp(key, "fps") == 0)
            FV_TRY(read_rate(field, &video->rate));
        else
            return FV_FAIL(FV_EINVAL, "this field is not supported");
        if (n) video->frames = (int32_t)n;
        fv_api_leave(r, at);
    }
    q->n_video++;
    return FV_OK;
}

/* Of the last part of the turn so far. */
static fv_status read_part(fv_api_reader *r, const json_t *v, turn_message *turn,
                           part_message *out) {
    static Fovea__Inference__V1__NextImage next = FOVEA__INFERENCE__V1__NEXT_IMAGE__INIT;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type) return FV_FAIL(FV_EINVAL, "a part must be an object with a type");
    bool text = strcmp(type, "text") == 0, video = strcmp(type, "video_url") == 0;
    if (!text && !video && strcmp(type, "image_url") != 0) {
        fv_api_enter(r, "type");
        return FV_FAIL(FV_EINVAL,
                       "part type '%.32s' is not supported; use text, image_url or video_url",
                       type);
    }
    if (json_object_size(v) > 2)
        return FV_FAIL(FV_EINVAL, "a %s part has no other fields than type and %s", type, type);
    size_t at = fv_api_enter(r, type);
    const json_t *value = json_object_get(v, type);
    if (text) {
        out->kind_case = FOVEA__INFERENCE__V1__PART__KIND_TEXT;
        FV_TRY(fv_api_text(r, value, &out->text));
    } else if (video) {
        FV_TRY(read_video(r, value, turn));
    } else {
        out->kind_case = FOVEA__INFERENCE__V1__PART__KIND_IMAGE;
        out->image = &next;
        FV_TRY(read_image(r, value));
    }
    fv_api_leave(r, at);
    return FV_OK;
}

static fv_status read_parts(fv_api_reader *r, const json_t *v, turn_message *turn) {
    part_message *part;
    size_t n = json_array_size(v);
    if (n == 0) return FV_FAIL(FV_EINVAL, "content must be a text or a list of parts");
    FV_TRY(FV_ARENA_NEW(r->arena, n, part));
    FV_TRY(FV_ARENA_NEW(r->arena, n, turn->parts));
    for (size_t i = 0; i < n; i++) {
        size_t at = fv_api_enter_index(r, i);
        fovea__inference__v1__part__init(&part[i]);
        turn->parts[i] = &part[i];
        turn->n_parts = i + 1;
        FV_TRY(read_part(r, json_array_get(v, i), turn, &part[i]));
        fv_api_leave(r, at);
    }
    return FV_OK;
}

static fv_status read_turn(fv_api_reader *r, const json_t *v, turn_message *turn) {
    const char *key;
    json_t *field;
    if (!json_is_object(v)) return FV_FAIL(FV_EINVAL, "a message must be an object");
    if (!json_object_get(v, "role")) return FV_FAIL(FV_EINVAL, "the message has no role");
    json_object_foreach((json_t *)(uintptr_t)v, key, field) {
        size_t at = fv_api_enter(r, key);
        if (strcmp(key, "role") == 0)
            FV_TRY(read_role(r, field, turn));
        else if (strcmp(key, "content") == 0 && json_is_string(field))
            FV_TRY(fv_api_text(r, field, &turn->text));
        else if (strcmp(key, "content") == 0)
            FV_TRY(read_parts(r, field, turn));
        else if (!json_is_null(field))
            return FV_FAIL(FV_EINVAL, "this field is not supported");
        fv_api_leave(r, at);
    }
    return FV_OK;
}

fv_status fv_api_messages(fv_api_reader *r, const json_t *v) {
    Fovea__Inference__V1__Prompt *prompt;
    Fovea__Inference__V1__Chat *chat;
    turn_message *turn;
    size_t n = json_array_size(v);
    if (n == 0) return FV_FAIL(FV_EINVAL, "it must be a list of messages");
    FV_TRY(FV_ARENA_NEW(r->arena, 1, prompt));
    FV_TRY(FV_ARENA_NEW(r->arena, 1, chat));
    FV_TRY(FV_ARENA_NEW(r->arena, n, turn));
    FV_TRY(FV_ARENA_NEW(r->arena, n, chat->turns));
    turn_message **turns = chat->turns;
    fovea__inference__v1__prompt__init(prompt);
    fovea__inference__v1__chat__init(chat);
    chat->turns = turns;
    prompt->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    prompt->chat = chat;
    for (size_t i = 0; i < n; i++) {
        size_t at = fv_api_enter_index(r, i);
        fovea__inference__v1__turn__init(&turn[i]);
        turns[i] = &turn[i];
        chat->n_turns = i + 1;
        FV_TRY(read_turn(r, json_array_get(v, i), &turn[i]));
        fv_api_leave(r, at);
    }
    r->out->message.prompt = prompt;
    return FV_OK;
}
