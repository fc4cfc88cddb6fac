/* A template and, after a NUL, the text of a turn. Any template ends within its bounds with text or
 * an error, and a second run writes the same. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static json_t *constants(void) {
    return json_pack("{s:s, s:b, s:n}", "bos_token", "<s>", "add_generation_prompt", 1, "tools");
}

static json_t *variables(const char *text, size_t n) {
    json_t *part = json_pack("{s:s}", "type", "text");
    json_object_set_new_nocheck(part, "text", json_stringn_nocheck(text, n));
    return json_pack("{s:[{s:s, s:o}, {s:s, s:[{s:s}, o]}]}", "messages", "role", "system",
                     "content", json_stringn_nocheck(text, n), "role", "user", "content", "type",
                     "image", part);
}

static void check_marks(const fv_jinja_text *t) {
    for (size_t i = 0; i < t->n; i++) expect(t->user[i] <= 1);
    expect(t->text[t->n] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *program = (const char *)data, *end = n ? memchr(data, '\0', n) : NULL;
    size_t n_program = end ? (size_t)(end - program) : n;
    size_t n_text = end ? n - n_program - 1 : 0;
    fv_jinja *p = NULL;
    fv_jinja_text a = {0}, b = {0};
    fv_status st = fv_jinja_parse(n ? program : "", n_program, "fuzz", &p);
    if (st != FV_OK) {
        expect((st == FV_EDATA || st == FV_EUNSUPPORTED) && *fv_last_error() && !p);
        return 0;
    }
    json_t *vars = constants(), *user = variables(end ? end + 1 : "", n_text);
    st = fv_jinja_run(p, vars, user, 0, 0, &a);
    if (st == FV_OK) {
        check_marks(&a);
        expect(fv_jinja_run(p, vars, user, 0, 0, &b) == FV_OK);
        expect(a.n == b.n && memcmp(a.text, b.text, a.n) == 0 && memcmp(a.user, b.user, a.n) == 0);
    } else {
        expect((st == FV_EINVAL || st == FV_EUNSUPPORTED) && *fv_last_error());
        expect(!a.text);
    }
    (void)fv_jinja_content_form(p);
    (void)fv_jinja_expects_none(p);
    fv_jinja_text_free(&a);
    fv_jinja_text_free(&b);
    json_decref(user);
    json_decref(vars);
    fv_jinja_free(p);
    return 0;
}
