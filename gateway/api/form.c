/* Reads the fields that say what form the answer has: OpenAI's response_format, vLLM's structured_outputs, and the
 * guided_* fields before these. Each is kept as JSON until the body ends, and becomes the one constraint of the
 * message. Whether a schema can be enforced is for the workers to say. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"

typedef Fovea__Inference__V1__Constraint constraint_message;

enum { CHOICES_MAX = 4096 };

/* ---- keeping ------------------------------------------------------------------------------- */

#define KEEP(name, member)                                                                         \
    fv_status name(fv_api_reader *r, const fv_json_event *e) {                                     \
        return fv_api_capture_value(r, e, &r->form.member);                                        \
    }

KEEP(fv_api_response_format, format)
KEEP(fv_api_structured_outputs, outputs)
KEEP(fv_api_guided_json, json)
KEEP(fv_api_guided_regex, regex)
KEEP(fv_api_guided_choice, choice)
KEEP(fv_api_guided_grammar, grammar)

/* ---- the constraint ------------------------------------------------------------------------ */

static fv_status new_constraint(fv_api_reader *r, constraint_message **out) {
    Fovea__Inference__V1__TokenRules *rules;
    FV_TRY(fv_api_rules_of(r, &rules));
    if (rules->constraint)
        return FV_FAIL(FV_EINVAL, "the form of the answer is given twice: only one of json, regex, "
                                  "choice, grammar, json_object and structural_tag is possible");
    FV_TRY(FV_ARENA_NEW(r->arena, 1, *out));
    fovea__inference__v1__constraint__init(*out);
    (*out)->after_reasoning = true;
    rules->constraint = *out;
    return FV_OK;
}

static fv_status set_any_object(fv_api_reader *r) {
    constraint_message *m;
    FV_TRY(new_constraint(r, &m));
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_OBJECT;
    m->json_object = true;
    return FV_OK;
}

static fv_status write_json(fv_api_reader *r, const json_t *v, char **out) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    fv_status st = text ? fv_arena_strndup(r->arena, text, strlen(text), out)
                        : FV_FAIL(FV_ENOMEM, "out of memory for a schema");
    free(text);
    return st;
}

/* JSON, or a text that is JSON. */
static fv_status json_text(fv_api_reader *r, const json_t *v, char **out) {
    if (json_is_string(v))
        return fv_arena_strndup(r->arena, json_string_value(v), json_string_length(v), out);
    return write_json(r, v, out);
}

static fv_status set_schema(fv_api_reader *r, const json_t *v) {
    constraint_message *m;
    if (!json_is_object(v) && !json_is_boolean(v) && !json_is_string(v))
        return FV_FAIL(FV_EINVAL, "a JSON Schema must be an object");
    FV_TRY(new_constraint(r, &m));
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_SCHEMA;
    return json_text(r, v, &m->json_schema);
}

static fv_status set_regex(fv_api_reader *r, const json_t *v) {
    constraint_message *m;
    if (!json_is_string(v)) return FV_FAIL(FV_EINVAL, "a regular expression must be a string");
    FV_TRY(new_constraint(r, &m));
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX;
    return json_text(r, v, &m->regex);
}

static fv_status set_grammar(fv_api_reader *r, const json_t *v) {
    constraint_message *m;
    if (!json_is_string(v)) return FV_FAIL(FV_EINVAL, "a grammar must be a string");
    FV_TRY(new_constraint(r, &m));
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_GRAMMAR;
    return json_text(r, v, &m->grammar);
}

static fv_status set_tag(fv_api_reader *r, const json_t *v) {
    constraint_message *m;
    FV_TRY(new_constraint(r, &m));
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_STRUCTURAL_TAG;
    return json_text(r, v, &m->structural_tag);
}

static fv_status set_choice(fv_api_reader *r, const json_t *v) {
    constraint_message *m;
    const size_t n = json_array_size(v);
    if (n == 0 || n > CHOICES_MAX)
        return FV_FAIL(FV_EINVAL, "choices must be a list of 1 to %d strings", CHOICES_MAX);
    FV_TRY(new_constraint(r, &m));
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_CHOICE;
    FV_TRY(FV_ARENA_NEW(r->arena, 1, m->choice));
    fovea__inference__v1__choice__init(m->choice);
    FV_TRY(FV_ARENA_NEW(r->arena, n, m->choice->text));
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(v, i);
        if (!json_is_string(s) || !json_string_length(s))
            return FV_FAIL(FV_EINVAL, "choices must be strings that are not empty");
        FV_TRY(json_text(r, s, &m->choice->text[i]));
    }
    m->choice->n_text = n;
    return FV_OK;
}

/* ---- the fields ---------------------------------------------------------------------------- */

static fv_status read_format(fv_api_reader *r, const json_t *v) {
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *nested =
                     json_object_get(v, "json_schema"), /* a response has its members in v itself */
        *schema = json_object_get(nested ? nested : v, "schema");
    if (!type) return FV_FAIL(FV_EINVAL, "it must be an object with a type");
    if (strcmp(type, "text") == 0) return FV_OK;
    if (strcmp(type, "json_object") == 0) return set_any_object(r);
    if (strcmp(type, "structural_tag") == 0) return set_tag(r, v);
    if (strcmp(type, "json_schema") != 0)
        return FV_FAIL(FV_EINVAL,
                       "its type must be text, json_object, json_schema or structural_tag");
    return schema ? set_schema(r, schema)
                  : FV_FAIL(FV_EINVAL, "json_schema must have the member `schema`");
}

static fv_status read_object_flag(fv_api_reader *r, const json_t *v) {
    if (!json_is_boolean(v)) return FV_FAIL(FV_EINVAL, "json_object must be true or false");
    return json_is_true(v) ? set_any_object(r) : FV_OK;
}

/* How a form is written or computed elsewhere: without effect on what is legal here. */
static bool is_hint(const char *key) {
    static const char *const hints[] = {"disable_fallback", "disable_any_whitespace",
                                        "disable_additional_properties"};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strcmp(hints[i], key) == 0) return true;
    return false;
}

static fv_status read_outputs(fv_api_reader *r, const json_t *all) {
    static const struct {
        const char *key;
        fv_status (*set)(fv_api_reader *r, const json_t *v);
    } keys[] = {{"json", set_schema},        {"regex", set_regex},
                {"choice", set_choice},      {"grammar", set_grammar},
                {"structural_tag", set_tag}, {"json_object", read_object_flag}};
    const char *key;
    json_t *v;
    if (!json_is_object(all)) return FV_FAIL(FV_EINVAL, "it must be an object");
    json_object_foreach((json_t *)(uintptr_t)all, key, v) {
        size_t i = 0;
        if (json_is_null(v) || is_hint(key)) continue;
        while (i < sizeof keys / sizeof *keys && strcmp(keys[i].key, key) != 0) i++;
        if (i == sizeof keys / sizeof *keys)
            return FV_FAIL(FV_EINVAL, "its member '%.40s' is not supported", key);
        FV_TRY(keys[i].set(r, v));
    }
    return FV_OK;
}

static fv_status read_kept(fv_api_reader *r, const char *name, const char *text,
                           fv_status (*read)(fv_api_reader *r, const json_t *v)) {
    if (!text) return FV_OK;
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!v) v = json_loads(text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    fv_status st = v ? read(r, v) : FV_FAIL(FV_EINVAL, "a number in it is too large");
    json_decref(v);
    if (st != FV_OK) fv_api_name(r, name);
    return st;
}

fv_status fv_api_form_end(fv_api_reader *r) {
    const fv_api_form_fields *f = &r->form;
    r->out->response.format = f->format;
    FV_TRY(read_kept(r, r->out->kind == FV_API_RESPONSE ? "text.format" : "response_format",
                     f->format, read_format));
    FV_TRY(read_kept(r, "structured_outputs", f->outputs, read_outputs));
    FV_TRY(read_kept(r, "guided_json", f->json, set_schema));
    FV_TRY(read_kept(r, "guided_regex", f->regex, set_regex));
    FV_TRY(read_kept(r, "guided_choice", f->choice, set_choice));
    return read_kept(r, "guided_grammar", f->grammar, set_grammar);
}
