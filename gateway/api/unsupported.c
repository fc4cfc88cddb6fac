/* Reads fields that ask for what does not exist here. A value that asks for nothing is no reason to
 * refuse a request: clients send "tool_choice": "none" and {"type": "text"} with every request.
 * Other values are refused, because an answer without them would be a wrong one. */
#include <string.h>

#include "gateway/api/reader.h"

static const char no_structure[] =
    "structured output is not supported: answers are plain text; describe the format in the prompt";
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

/* ---- response_format --------------------------------------------------------------------- */

static fv_status read_format_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    if (strcmp(key, "type") == 0) r->truth = is_text(e, "text");
    return fv_api_skip(r, e);
}

static fv_status end_format(fv_api_reader *r) {
    return r->truth ? FV_OK
                    : FV_FAIL(FV_EINVAL, "%s; only {\"type\": \"text\"} is accepted", no_structure);
}

static const fv_api_shape format = {.member = read_format_field, .end = end_format};

static fv_status read_format(fv_api_reader *r, const fv_json_event *e) {
    r->truth = false;
    return e->type == FV_JSON_OBJECT ? fv_api_enter(r, &format) : end_format(r);
}

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
    {"response_format", read_format},      {"structured_outputs", refuse_structure},
    {"guided_json", refuse_structure},     {"guided_regex", refuse_structure},
    {"guided_choice", refuse_structure},   {"guided_grammar", refuse_structure},
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
