/* Reads the fields that say how a chat becomes a prompt. They may come before "messages", so they
 * are kept until the body ends. */
#include <string.h>

#include "gateway/api/reader.h"

enum { EFFORT_MAX = 64 };

fv_status fv_api_add_generation_prompt(fv_api_reader *r, const fv_json_event *e) {
    r->chat.opens_given = true;
    return fv_api_bool(e, &r->chat.opens);
}

fv_status fv_api_continue_final_message(fv_api_reader *r, const fv_json_event *e) {
    r->chat.continues_given = true;
    return fv_api_bool(e, &r->chat.continues);
}

fv_status fv_api_add_special_tokens(fv_api_reader *r, const fv_json_event *e) {
    bool adds;
    FV_TRY(fv_api_bool(e, &adds));
    r->out->message.special_case =
        FOVEA__INFERENCE__V1__GENERATE_REQUEST__SPECIAL_ADD_SPECIAL_TOKENS;
    r->out->message.add_special_tokens = adds;
    return FV_OK;
}

fv_status fv_api_template_variables(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_capture_value(r, e, &r->chat.variables);
}

fv_status fv_api_reasoning_effort(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_STRING || e->n > EFFORT_MAX)
        return FV_FAIL(FV_EINVAL, "it must be a string of at most %d bytes", EFFORT_MAX);
    FV_TRY(fv_api_text(r, e, &r->out->response.effort));
    return fv_api_capture_value(r, e, &r->chat.effort);
}

fv_status fv_api_chat_template(fv_api_reader *r, const fv_json_event *e) {
    if (!r->opt.chat_templates)
        return FV_FAIL(FV_EINVAL, "this server takes no chat templates from requests "
                                  "(--allow-chat-template): use chat_template_kwargs, or leave it "
                                  "out");
    return fv_api_text(r, e, &r->chat.chat_template);
}

/* ---- mm_processor_kwargs ----------------------------------------------------------------- */

static fv_status bounds_of(fv_api_reader *r, Fovea__Inference__V1__ImageBounds **out) {
    if (!r->out->message.image_bounds) {
        FV_TRY(FV_ARENA_NEW(r->arena, 1, *out));
        fovea__inference__v1__image_bounds__init(*out);
        r->out->message.image_bounds = *out;
    }
    *out = r->out->message.image_bounds;
    return FV_OK;
}

/* `least` and `most` are the names of the two limits. */
static fv_status read_bound(fv_api_reader *r, const char *key, const fv_json_event *e,
                            const char *least, const char *most) {
    Fovea__Inference__V1__ImageBounds *bounds;
    int64_t n;
    const bool is_least = strcmp(key, least) == 0;
    if (e->type == FV_JSON_NULL) return FV_OK;
    if (!is_least && strcmp(key, most) != 0) return fv_api_skip(r, e);
    FV_TRY(fv_api_integer(e, 1, INT32_MAX, &n));
    FV_TRY(bounds_of(r, &bounds));
    *(is_least ? &bounds->pixels_min : &bounds->pixels_max) = (uint32_t)n;
    return FV_OK;
}

static fv_status read_size(fv_api_reader *r, const char *key, const fv_json_event *e) {
    return read_bound(r, key, e, "shortest_edge", "longest_edge");
}

/* {"shortest_edge": ..., "longest_edge": ...}, which are areas here, as in transformers. */
static const fv_api_shape size = {.member = read_size};

static fv_status read_processor_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (strcmp(key, "size") == 0 && e->type == FV_JSON_OBJECT) return fv_api_enter(r, &size);
    return read_bound(r, key, e, "min_pixels", "max_pixels");
}

static const fv_api_shape processor = {.member = read_processor_field};

fv_status fv_api_processor(fv_api_reader *r, const fv_json_event *e) {
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "it must be an object");
    return fv_api_enter(r, &processor);
}

/* ---- the end of the body ----------------------------------------------------------------- */

/* Joins reasoning_effort, tools and chat_template_kwargs to one object; the latter's members come last,
 * so that they count. */
static fv_status join_variables(fv_api_reader *r, char **out) {
    const struct {
        const char *name, *json;
    } members[] = {{"reasoning_effort", r->chat.effort}, {"tools", r->chat.tools}};
    const char *variables = r->chat.variables;
    const bool more = variables && strcmp(variables, "{}") != 0;
    size_t bytes = more ? strlen(variables) + 2 : 2;
    bool any = more;
    for (size_t i = 0; i < 2; i++) {
        if (!members[i].json) continue;
        bytes += strlen(members[i].name) + strlen(members[i].json) + 4;
        any = true;
    }
    if (!any) return FV_OK;
    FV_TRY(FV_ARENA_NEW(r->arena, bytes, *out));
    char *at = *out;
    *at++ = '{';
    for (size_t i = 0; i < 2; i++) {
        if (!members[i].json) continue;
        if (at > *out + 1) *at++ = ',';
        *at++ = '"';
        at = stpcpy(stpcpy(stpcpy(at, members[i].name), "\":"), members[i].json);
    }
    if (more && at > *out + 1) *at++ = ',';
    strcpy(at, more ? variables + 1 : "}");
    return FV_OK;
}

fv_status fv_api_template_end(fv_api_reader *r) {
    Fovea__Inference__V1__Prompt *prompt = r->out->message.prompt;
    if (!prompt || prompt->form_case != FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT) return FV_OK;
    Fovea__Inference__V1__Chat *chat = prompt->chat;
    if (r->chat.opens_given) {
        chat->generation_case = FOVEA__INFERENCE__V1__CHAT__GENERATION_ADD_GENERATION_PROMPT;
        chat->add_generation_prompt = r->chat.opens;
    }
    if (r->chat.continues_given) {
        chat->continuation_case = FOVEA__INFERENCE__V1__CHAT__CONTINUATION_CONTINUE_FINAL_MESSAGE;
        chat->continue_final_message = r->chat.continues;
    }
    if (r->chat.opens && r->chat.continues) {
        fv_api_name(r, "continue_final_message");
        return FV_FAIL(FV_EINVAL, "it cannot be true together with add_generation_prompt");
    }
    if (r->chat.chat_template) chat->template_ = r->chat.chat_template;
    return join_variables(r, &chat->variables);
}
