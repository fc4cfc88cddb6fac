/* Texts that options give: the form of an answer, as a spec for an engine here and as a message for a
 * fleet, and the variables of chat templates. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/request.h"
#include "common/file.h"

typedef Fovea__Inference__V1__Constraint constraint_message;

static fv_status read_text(const char *path, fv_arena *a, char **out, size_t *n) {
    char *data, *kept;
    FV_TRY(fv_file_read(path, FV_GRAMMAR_BYTES_MAX, &data, n));
    fv_status st = memchr(data, '\0', *n) ? FV_FAIL(FV_EINVAL, "%s has a NUL byte", path)
                                          : fv_arena_strndup(a, data, *n, &kept);
    free(data);
    if (st == FV_OK) *out = kept;
    return st;
}

static fv_status read_spec(const char *path, fv_arena *a, fv_grammar_spec *out) {
    char *text = NULL;
    FV_TRY(read_text(path, a, &text, &out->n_text));
    out->text = text;
    return FV_OK;
}

fv_status fv_request_form(const fv_options *o, fv_arena *a, fv_grammar_spec *out) {
    const char *const *choice;
    const char *schema = fv_options_string(o, "json-schema"),
               *regex = fv_options_string(o, "regex"), *grammar = fv_options_string(o, "grammar");
    const int n_choice = fv_options_list(o, "choice", &choice);
    *out = (fv_grammar_spec){0};
    if ((schema != NULL) + (regex != NULL) + (grammar != NULL) + (n_choice > 0) > 1)
        return FV_FAIL(FV_EINVAL,
                       "only one of --json-schema, --regex, --grammar and --choice is possible");
    if (schema) {
        out->kind = FV_GRAMMAR_JSON_SCHEMA;
        return read_spec(schema, a, out);
    }
    if (grammar) {
        out->kind = FV_GRAMMAR_EBNF;
        return read_spec(grammar, a, out);
    }
    if (regex)
        *out = (fv_grammar_spec){.kind = FV_GRAMMAR_REGEX, .text = regex, .n_text = strlen(regex)};
    if (n_choice > 0)
        *out = (fv_grammar_spec){
            .kind = FV_GRAMMAR_CHOICE, .choice = choice, .n_choice = (size_t)n_choice};
    return FV_OK;
}

static fv_status fill(const fv_grammar_spec *s, fv_arena *a, constraint_message *m) {
    char *text = (char *)(uintptr_t)s->text; /* messages are written, and never changed */
    switch (s->kind) {
    case FV_GRAMMAR_JSON_SCHEMA:
        m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_SCHEMA;
        m->json_schema = text;
        return FV_OK;
    case FV_GRAMMAR_REGEX:
        m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX;
        m->regex = text;
        return FV_OK;
    case FV_GRAMMAR_EBNF:
        m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_GRAMMAR;
        m->grammar = text;
        return FV_OK;
    default: break;
    }
    m->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_CHOICE;
    FV_TRY(FV_ARENA_NEW(a, 1, m->choice));
    fovea__inference__v1__choice__init(m->choice);
    m->choice->n_text = s->n_choice;
    m->choice->text = (char **)(uintptr_t)s->choice;
    return FV_OK;
}

fv_status fv_request_form_message(const fv_options *o, fv_arena *a,
                                  Fovea__Inference__V1__TokenRules **out) {
    fv_grammar_spec s;
    Fovea__Inference__V1__TokenRules *rules;
    FV_TRY(fv_request_form(o, a, &s));
    if (!s.kind) return FV_OK;
    FV_TRY(FV_ARENA_NEW(a, 1, rules));
    fovea__inference__v1__token_rules__init(rules);
    FV_TRY(FV_ARENA_NEW(a, 1, rules->constraint));
    fovea__inference__v1__constraint__init(rules->constraint);
    *out = rules;
    return fill(&s, a, rules->constraint);
}

fv_status fv_request_variables(const fv_options *o, fv_arena *a, char **out) {
    const char *path = fv_options_string(o, "chat-variables");
    size_t n;
    *out = NULL;
    if (!path) return FV_OK;
    FV_TRY(read_text(path, a, out, &n));
    json_t *object = json_loadb(*out, n, JSON_REJECT_DUPLICATES, NULL);
    const bool good = json_is_object(object);
    json_decref(object);
    if (good) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--chat-variables: %s must hold one JSON object", path);
}
