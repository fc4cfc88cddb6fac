/* Reads fields that ask for what does not exist here. A value that asks for nothing is no reason to
 * refuse a request: clients send "tool_choice": "none" and {"type": "text"} with every request.
 * Other values are refused, because an answer without them would be a wrong one. */
#include <string.h>

#include "gateway/api/reader.h"

static const char no_structure[] =
    "this field is not supported: use response_format or structured_outputs";
static const char no_tools[] = "tool calls are not supported in this way: it must be \"none\" or "
                               "\"auto\"; use tools and tool_choice in a chat";

static bool is_text(const fv_json_event *e, const char *text) {
    return e->type == FV_JSON_STRING && strcmp(e->text, text) == 0;
}

/* ---- values that ask for nothing --------------------------------------------------------- */

static fv_status refuse(void) { return FV_FAIL(FV_EINVAL, "this is not supported here"); }

static fv_status refuse_element(fv_api_reader *r, const char *key, const fv_json_event *e) {
    (void)r, (void)key, (void)e;
    return refuse();
}

static const fv_api_shape nothing = {.member = refuse_element, .unnumbered = true};

fv_status fv_api_nothing(fv_api_reader *r, const fv_json_event *e) {
    if (e->type == FV_JSON_ARRAY) return fv_api_enter(r, &nothing);
    return e->type == FV_JSON_FALSE || is_text(e, "") || is_text(e, "none") ? FV_OK : refuse();
}

/* ---- forms by names that nothing else uses ------------------------------------------------- */

static fv_status refuse_structure(fv_api_reader *r, const fv_json_event *e) {
    (void)r, (void)e;
    return FV_FAIL(FV_EINVAL, "%s", no_structure);
}

/* ---- tools ------------------------------------------------------------------------------- */

static fv_status read_tool_choice(fv_api_reader *r, const fv_json_event *e) {
    (void)r;
    return is_text(e, "none") || is_text(e, "auto") ? FV_OK : FV_FAIL(FV_EINVAL, "%s", no_tools);
}

/* ---- the rest ---------------------------------------------------------------------------- */

static fv_status read_beam_search(fv_api_reader *r, const fv_json_event *e) {
    bool asked;
    (void)r;
    FV_TRY(fv_api_bool(e, &asked));
    return asked ? FV_FAIL(FV_EINVAL, "beam search is not supported: it must be false; use n for "
                                      "several sampled answers")
                 : FV_OK;
}

static fv_status refuse_modality(void) {
    return FV_FAIL(FV_EINVAL, "answers are text: it must be [\"text\"]");
}

static fv_status read_modality(fv_api_reader *r, const char *key, const fv_json_event *e) {
    (void)r, (void)key;
    return is_text(e, "text") ? FV_OK : refuse_modality();
}

static const fv_api_shape modalities = {.member = read_modality};

static fv_status read_modalities(fv_api_reader *r, const fv_json_event *e) {
    return e->type == FV_JSON_ARRAY ? fv_api_enter(r, &modalities) : refuse_modality();
}

static fv_status refuse_search(fv_api_reader *r, const fv_json_event *e) {
    (void)r, (void)e;
    return FV_FAIL(FV_EINVAL, "the web is not searched here; leave this field out");
}

static fv_status refuse_embeds(fv_api_reader *r, const fv_json_event *e) {
    (void)r, (void)e;
    return FV_FAIL(FV_EINVAL, "embeddings are not accepted; use prompt");
}

static const struct unsupported {
    const char *name;
    fv_status (*read)(fv_api_reader *r, const fv_json_event *e);
} table[] = {
    {"structural_tag", refuse_structure},  {"json_schema", refuse_structure},
    {"regex", refuse_structure},           {"ebnf", refuse_structure},
    {"grammar", refuse_structure},         {"tool_choice", read_tool_choice},
    {"function_call", read_tool_choice},   {"use_beam_search", read_beam_search},
    {"modalities", read_modalities},       {"web_search_options", refuse_search},
    {"prompt_embeds", refuse_embeds},      {"suffix", fv_api_nothing},
    {"logits_processors", fv_api_nothing}, {"echo", fv_api_nothing},
};

fv_status fv_api_unsupported(fv_api_reader *r, const char *key, const fv_json_event *e) {
    const bool answers = r->out->kind & (FV_API_CHAT | FV_API_TEXT | FV_API_RESPONSE);
    for (size_t i = 0; answers && i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, key) == 0) return table[i].read(r, e);
    return fv_api_ignore(r, e);
}
