/* Structural tags: free text, in which each trigger begins one of the structures: its `begin`, a JSON value of its
 * schema, its `end`.
 *
 *   {"type": "structural_tag", "triggers": ["<call="], "structures": [
 *     {"begin": "<call=now>", "schema": {...}, "end": "</call>"}]}
 *
 * The newer form has one member `format` instead (tag_format.c). */
#include "grammar/tag_internal.h"

#include <string.h>

static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

fv_status fv_tag_free_text(fv_compile *c, const json_t *triggers, const char *end, fv_expr **out) {
    const char *text[FV_TAG_TRIGGERS_MAX + 1];
    const size_t n = json_array_size(triggers);
    if (n == 0 || n > FV_TAG_TRIGGERS_MAX)
        return FV_FAIL(FV_EINVAL, "its `triggers` must be a list of 1..%d", FV_TAG_TRIGGERS_MAX);
    for (size_t i = 0; i < n; i++) text[i] = json_string_value(json_array_get(triggers, i));
    for (size_t i = 0; i < n; i++)
        if (!text[i] || !*text[i])
            return FV_FAIL(FV_EINVAL, "triggers must be texts that are not empty");
    text[n] = end;
    return fv_expr_without(c, text, n + (*end != '\0'), out);
}

static fv_status structure(fv_compile *c, const json_t *s, const json_t *triggers, fv_expr **out) {
    const char *begin = text_of(s, "begin"), *end = text_of(s, "end");
    const json_t *schema = json_object_get(s, "schema");
    bool triggered = false;
    int32_t rule;
    fv_expr *first, *value, *last;
    for (size_t i = 0; i < json_array_size(triggers); i++) {
        const char *t = json_string_value(json_array_get(triggers, i));
        triggered |= t && strncmp(begin, t, strlen(t)) == 0;
    }
    if (!triggered)
        return FV_FAIL(FV_EINVAL, "the structure '%.64s' begins with no trigger", begin);
    if (!schema) return FV_FAIL(FV_EINVAL, "the structure '%.64s' has no schema", begin);
    FV_TRY(fv_schema_rule(c, schema, &rule));
    FV_TRY(fv_expr_text(c, begin, strlen(begin), &first));
    FV_TRY(fv_expr_rule(c, rule, &value));
    FV_TRY(fv_expr_text(c, end, strlen(end), &last));
    return fv_expr_seq(c, out, first, value, last, NULL);
}

static fv_status answer(fv_compile *c, fv_expr *e, int32_t *rule) {
    FV_TRY(fv_rule_new(c, "the answer", 10, rule));
    c->rule[*rule].expr = e;
    return FV_OK;
}

static fv_status tags(fv_compile *c, const json_t *root, int32_t *rule) {
    const json_t *triggers = json_object_get(root, "triggers"),
                 *list = json_object_get(root, "structures");
    const size_t n = json_array_size(list);
    fv_expr *text, *e, *one[FV_TAG_LIST_MAX];
    if (json_array_size(triggers) == 0 || json_array_size(triggers) > FV_TAG_TRIGGERS_MAX ||
        n == 0 || n > FV_TAG_LIST_MAX)
        return FV_FAIL(FV_EINVAL,
                       "it must have a `format`, or 1..%d `triggers` and 1..%d `structures`",
                       FV_TAG_TRIGGERS_MAX, FV_TAG_LIST_MAX);
    FV_TRY(fv_tag_free_text(c, triggers, "", &text));
    for (size_t i = 0; i < n; i++) FV_TRY(structure(c, json_array_get(list, i), triggers, &one[i]));
    FV_TRY(fv_expr_list(c, FV_EXPR_ALT, one, n, &e));
    FV_TRY(fv_expr_seq(c, &e, e, text, NULL));
    FV_TRY(fv_expr_repeat(c, e, 0, -1, &e));
    FV_TRY(fv_expr_seq(c, &e, text, e, NULL));
    return answer(c, e, rule);
}

static fv_status read_root(fv_compile *c, const json_t *root, int32_t *rule) {
    const json_t *format = json_object_get(root, "format");
    fv_expr *e;
    if (!format) return tags(c, root, rule);
    FV_TRY(fv_tag_format(c, format, &e));
    return answer(c, e, rule);
}

fv_status fv_tag_read(fv_compile *c, const char *text, size_t n, int32_t *rule) {
    json_error_t err;
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &err);
    if (!root) return FV_FAIL(FV_EINVAL, "not valid JSON: %s", err.text);
    fv_status st = fv_compile_step(c, (int64_t)n);
    if (st == FV_OK) st = read_root(c, root, rule);
    json_decref(root);
    return st;
}
