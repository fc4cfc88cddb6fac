/* The member `format` of a structural tag: a tree of formats, which describes the whole answer.
 *
 *   const_string, regex, grammar, json_schema, any_text   what the name says
 *   qwen_xml_parameter                                     tag_xml.c
 *   token                                                  a special token by its name, or the same text
 *   sequence, or                                           their elements, in order; one of them
 *   tag                                                    begin, content, end
 *   triggered_tags                                         free text, in which each trigger begins a tag
 *   tags_with_separator                                    tags, with a text between two
 *
 * Any text within a tag goes on up to the tag's end. */
#include <string.h>

#include "grammar/tag_internal.h"

typedef struct where {
    const char *end; /* of the innermost tag; "": none */
    int depth;
} where;

typedef fv_status (*reader)(fv_compile *c, const json_t *f, where w, fv_expr **out);

static fv_status read_format(fv_compile *c, const json_t *f, where w, fv_expr **out);

static fv_status text_at(const json_t *f, const char *key, const char **out) {
    const char *s = json_string_value(json_object_get(f, key));
    if (!s) return FV_FAIL(FV_EINVAL, "its member `%s` must be a string", key);
    *out = s;
    return FV_OK;
}

/* ---- leaves ------------------------------------------------------------------------------ */

static fv_status read_const(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const char *s;
    (void)w;
    FV_TRY(text_at(f, "value", &s));
    return fv_expr_text(c, s, strlen(s), out);
}

static fv_status read_regex(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const char *s;
    (void)w;
    FV_TRY(text_at(f, "pattern", &s));
    return fv_regex_read(c, s, strlen(s), false, out);
}

static fv_status read_grammar(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const char *s;
    int32_t rule;
    (void)w;
    FV_TRY(text_at(f, "grammar", &s));
    FV_TRY(fv_ebnf_read(c, s, strlen(s), &rule));
    return fv_expr_rule(c, rule, out);
}

static fv_status read_schema(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const json_t *schema = json_object_get(f, "json_schema");
    int32_t rule;
    (void)w;
    if (!schema) return FV_FAIL(FV_EINVAL, "its member `json_schema` is missing");
    FV_TRY(fv_schema_rule(c, schema, &rule));
    return fv_expr_rule(c, rule, out);
}

static fv_status read_xml(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    (void)w;
    return fv_tag_xml(c, json_object_get(f, "json_schema"), out);
}

static fv_status read_any(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    (void)f;
    return fv_expr_without(c, &w.end, w.end[0] != '\0', out);
}

static fv_status read_token(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const char *s;
    (void)w;
    FV_TRY(text_at(f, "token", &s));
    if (!*s) return FV_FAIL(FV_EINVAL, "its member `token` is empty");
    return fv_expr_mark(c, s, out);
}

/* ---- lists ------------------------------------------------------------------------------- */

static fv_status read_list(fv_compile *c, const json_t *list, const char *key, reader read, where w,
                           fv_exprs *out) {
    const size_t n = json_array_size(list);
    fv_expr *e;
    if (n == 0 || n > FV_TAG_LIST_MAX)
        return FV_FAIL(FV_EINVAL, "its member `%s` must be a list of 1..%d", key, FV_TAG_LIST_MAX);
    for (size_t i = 0; i < n; i++) {
        FV_TRY(read(c, json_array_get(list, i), w, &e));
        FV_TRY(fv_exprs_add(out, e));
    }
    return FV_OK;
}

static fv_status read_joined(fv_compile *c, const json_t *f, const char *key, reader read, where w,
                             fv_expr_kind kind, fv_expr **out) {
    fv_exprs list = {0};
    fv_status st = read_list(c, json_object_get(f, key), key, read, w, &list);
    if (st == FV_OK) st = fv_expr_list(c, kind, list.item, list.n, out);
    free(list.item);
    return st;
}

static fv_status read_sequence(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    return read_joined(c, f, "elements", read_format, w, FV_EXPR_SEQ, out);
}

static fv_status read_or(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    return read_joined(c, f, "elements", read_format, w, FV_EXPR_ALT, out);
}

/* ---- tags -------------------------------------------------------------------------------- */

/* A text, or a format `token`; *text: as it is written. */
static fv_status read_mark(fv_compile *c, const json_t *v, const char **text, fv_expr **out) {
    const json_t *token = json_object_get(v, "token");
    *text = json_string_value(token ? token : v);
    if (!*text) return FV_FAIL(FV_EINVAL, "a tag's `begin` and `end` are texts or tokens");
    return token ? read_token(c, v, (where){0}, out) : fv_expr_text(c, *text, strlen(*text), out);
}

static fv_status read_tag(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const json_t *content = json_object_get(f, "content");
    const char *text;
    fv_expr *begin, *inside, *end;
    if (!content) return FV_FAIL(FV_EINVAL, "a tag has no `content`");
    FV_TRY(read_mark(c, json_object_get(f, "begin"), &text, &begin));
    FV_TRY(read_mark(c, json_object_get(f, "end"), &text, &end));
    FV_TRY(read_format(c, content, (where){text, w.depth + 1}, &inside));
    return fv_expr_seq(c, out, begin, inside, end, NULL);
}

static fv_status check_triggered(const json_t *f) {
    const json_t *triggers = json_object_get(f, "triggers"), *tag, *trigger;
    size_t i, k;
    json_array_foreach((json_t *)(uintptr_t)json_object_get(f, "tags"), i, tag) {
        const json_t *begin = json_object_get(tag, "begin");
        const json_t *token = json_object_get(begin, "token");
        const char *s = json_string_value(token ? token : begin);
        bool is = false;
        json_array_foreach((json_t *)(uintptr_t)triggers, k, trigger) {
            const char *t = json_string_value(trigger);
            is |= s && t && strncmp(s, t, strlen(t)) == 0;
        }
        if (!is) return FV_FAIL(FV_EINVAL, "the tag '%.64s' begins with no trigger", s ? s : "");
    }
    return FV_OK;
}

static fv_status read_triggered(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const bool at_least_one = json_is_true(json_object_get(f, "at_least_one"));
    const bool once = json_is_true(json_object_get(f, "stop_after_first"));
    fv_expr *text, *tag, *after;
    FV_TRY(check_triggered(f));
    FV_TRY(fv_tag_free_text(c, json_object_get(f, "triggers"), w.end, &text));
    FV_TRY(read_joined(c, f, "tags", read_tag, w, FV_EXPR_ALT, &tag));
    if (once) {
        FV_TRY(fv_expr_repeat(c, tag, at_least_one, 1, &tag));
        return fv_expr_seq(c, out, text, tag, NULL);
    }
    FV_TRY(fv_expr_seq(c, &after, tag, text, NULL));
    FV_TRY(fv_expr_repeat(c, after, at_least_one, -1, &after));
    return fv_expr_seq(c, out, text, after, NULL);
}

static fv_status read_separated(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const bool at_least_one = json_is_true(json_object_get(f, "at_least_one"));
    const bool once = json_is_true(json_object_get(f, "stop_after_first"));
    const char *s;
    fv_expr *tag, *between, *more;
    FV_TRY(text_at(f, "separator", &s));
    FV_TRY(fv_expr_text(c, s, strlen(s), &between));
    FV_TRY(read_joined(c, f, "tags", read_tag, w, FV_EXPR_ALT, &tag));
    FV_TRY(fv_expr_seq(c, &more, between, tag, NULL));
    FV_TRY(fv_expr_repeat(c, more, 0, once ? 0 : -1, &more));
    FV_TRY(fv_expr_seq(c, &tag, tag, more, NULL));
    return fv_expr_repeat(c, tag, at_least_one, 1, out);
}

/* ---- any format -------------------------------------------------------------------------- */

static const struct {
    const char *type;
    reader read;
} formats[] = {{"const_string", read_const},
               {"regex", read_regex},
               {"grammar", read_grammar},
               {"json_schema", read_schema},
               {"qwen_xml_parameter", read_xml},
               {"any_text", read_any},
               {"token", read_token},
               {"sequence", read_sequence},
               {"or", read_or},
               {"tag", read_tag},
               {"triggered_tags", read_triggered},
               {"tags_with_separator", read_separated}};

static fv_status read_format(fv_compile *c, const json_t *f, where w, fv_expr **out) {
    const char *type = json_string_value(json_object_get(f, "type"));
    FV_TRY(fv_compile_step(c, 1));
    if (++w.depth > FV_TAG_DEPTH_MAX)
        return FV_FAIL(FV_EINVAL, "formats nested deeper than %d", FV_TAG_DEPTH_MAX);
    for (size_t i = 0; type && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].type, type) == 0)
            return fv_fail_prefix(formats[i].read(c, f, w, out), "%s", type);
    return FV_FAIL(FV_EINVAL, "the format '%.64s' is not supported", type ? type : "");
}

fv_status fv_tag_format(fv_compile *c, const json_t *format, fv_expr **out) {
    return read_format(c, format, (where){"", 0}, out);
}
