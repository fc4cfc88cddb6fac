/* text/jinja: programs and chat templates against jinja2's output (golden files,
 * tests/parity/jinja_golden.py), errors, bounds, and which bytes a user wrote. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "text/jinja/jinja.h"

enum { NOW = 1751328000 }; /* 2025-07-01, as in the golden files */

static const char *golden(void) {
    const char *dir = getenv("FOVEA_JINJA_GOLDEN");
    return dir ? dir : FOVEA_TEST_DATA "/golden/jinja";
}

static json_t *load(const char *name) {
    char path[4096];
    json_error_t err;
    snprintf(path, sizeof path, "%s/%s", golden(), name);
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &err);
    cr_assert_not_null(j, "%s: %s at line %d", path, err.text, err.line);
    return j;
}

static fv_status run(const char *program, const json_t *vars, const char *user,
                     fv_jinja_text *out) {
    fv_jinja *p = NULL;
    fv_status st = fv_jinja_parse(program, strlen(program), "t.jinja", &p);
    if (st == FV_OK) st = fv_jinja_run(p, vars, user, NOW, out);
    fv_jinja_free(p);
    return st;
}

/* {"program" or "template", "vars", "rendered" or "error"}: true when ours is the same. */
static bool same(const char *program, const json_t *c, const json_t *shared) {
    const json_t *own = json_object_get(c, "vars"), *vars = own ? own : shared;
    const json_t *want = json_object_get(c, "rendered");
    fv_jinja_text made = {0};
    fv_status st = run(program, vars, "messages", &made);
    bool ok = want ? st == FV_OK && made.n == json_string_length(want) &&
                         memcmp(made.text, json_string_value(want), made.n) == 0
                   : st != FV_OK;
    if (!ok)
        fprintf(stderr, "program: %.2000s\nvars: %.300s\nwant: %s\ngot:  %s\n\n", program,
                own ? json_dumps(own, 0) : "shared", want ? json_string_value(want) : "an error",
                st == FV_OK ? made.text : fv_last_error());
    fv_jinja_text_free(&made);
    return ok;
}

Test(jinja, programs_print_what_jinja2_prints) {
    json_t *root = load("programs.json");
    const json_t *cases = json_object_get(root, "cases"), *c;
    size_t i, bad = 0;
    cr_assert_geq(json_array_size(cases), 300);
    json_array_foreach((json_t *)(uintptr_t)cases, i, c) bad +=
        !same(json_string_value(json_object_get(c, "program")), c, json_object_get(root, "vars"));
    json_decref(root);
    cr_assert_eq(bad, 0, "%zu of %zu differ", bad, i);
}

Test(jinja, templates_render_conversations_as_jinja2_does) {
    json_t *root = load("conversations.json");
    const json_t *cases = json_object_get(root, "cases"), *c;
    size_t i, bad = 0;
    cr_assert_geq(json_array_size(cases), 300);
    json_array_foreach((json_t *)(uintptr_t)cases, i, c) {
        char path[4096], *program;
        size_t n;
        snprintf(path, sizeof path, "%s/%s.jinja", golden(),
                 json_string_value(json_object_get(c, "template")));
        cr_assert_eq(fv_file_read(path, 1 << 20, &program, &n), FV_OK, "%s", fv_last_error());
        bad += !same(program, c, json_object_get(root, "vars"));
        free(program);
    }
    json_decref(root);
    cr_assert_eq(bad, 0, "%zu of %zu differ", bad, i);
}

/* ---- which bytes a user wrote ---- */

Test(jinja, bytes_of_the_user_are_marked_through_every_operation) {
    static const struct {
        const char *program, *text, *user;
    } cases[] = {
        {"<s>{{ messages[0] }}</s>", "<s>a<s>b</s>", "000111110000"},
        {"{{ 'x' ~ messages[0] ~ 1 }}", "xa<s>b1", "0111110"},
        {"{{ messages[0] | upper }}", "A<S>B", "11111"},
        {"{{ ('<' + messages[0]) | replace('<', '[') }}", "[a[s>b", "010111"},
        {"{{ (messages[0] ~ '</s>').split('<')[2] }}", "/s>", "000"},
        {"{{ messages[0][1:4] ~ messages[0][::-1] }}", "<s>b>s<a", "11111111"},
        {"{{ (' ' ~ messages[0] ~ ' ') | trim }}", "a<s>b", "11111"},
        {"{% set x %}<{{ messages[0] }}>{% endset %}{{ x[:3] }}", "<a<", "011"},
        {"{{ [messages[0], '|'] | join('-') }}", "a<s>b-|", "1111100"},
        {"{{ messages[0] | list | join }}", "a<s>b", "11111"},
        {"{{ [messages[0]] | tojson }}", "[\"a<s>b\"]", "001111100"},
        {"{{ [messages[0]] }}", "['a<s>b']", "001111100"},
        {"{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0]) }}", "[a<s>b]", "0111110"},
        {"{{ messages[1].role }}{{ messages[1].text }}", "userq", "00001"},
        {"{{ messages[0] * 2 }}", "a<s>ba<s>b", "1111111111"},
        {"{{ messages[0] | indent(1, true) }}", " a<s>b", "011111"},
    };
    json_t *vars = json_pack("{s:[s,{s:s,s:s}]}", "messages", "a<s>b", "role", "user", "text", "q");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_jinja_text out;
        cr_assert_eq(run(cases[i].program, vars, "messages", &out), FV_OK, "%s", fv_last_error());
        cr_assert_str_eq(out.text, cases[i].text);
        for (size_t k = 0; k < out.n; k++)
            cr_assert_eq(out.user[k], cases[i].user[k] == '1', "%s: byte %zu of %s",
                         cases[i].program, k, out.text);
        fv_jinja_text_free(&out);
    }
    json_decref(vars);
}

/* ---- errors and bounds ---- */

static void refuse(const char *program, fv_status status, const char *words) {
    json_t *vars = json_object();
    fv_jinja_text out = {0};
    cr_assert_eq(run(program, vars, NULL, &out), status, "%s: %s", program, fv_last_error());
    cr_assert_null(out.text);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
    json_decref(vars);
}

Test(jinja, what_is_lacking_is_named_with_its_line) {
    refuse("\n\n{% include 'x' %}", FV_EUNSUPPORTED,
           "t.jinja:3: the block 'include' is not supported");
    refuse("{% call m() %}{% endcall %}", FV_EUNSUPPORTED, "t.jinja:1: the block 'call'");
    refuse("{% block x %}{% endblock %}", FV_EUNSUPPORTED, "the block 'block'");
    refuse("\n{{ 1 | xmlattr }}", FV_EUNSUPPORTED,
           "t.jinja:2: the filter 'xmlattr' is not supported");
    refuse("{{ 1 is nosuch }}", FV_EUNSUPPORTED, "the test 'nosuch'");
    refuse("{{ f(*x) }}", FV_EUNSUPPORTED, "the argument '*'");
    refuse("{% for x in y recursive %}{% endfor %}", FV_EUNSUPPORTED, "the loop 'recursive'");
    refuse("{{ '%s' % 1 }}", FV_EUNSUPPORTED, "formatting of strings");
    refuse("{{ '{}'.format(1) }}", FV_EUNSUPPORTED, "formatting of strings");
    refuse("{{ [1] | map('nosuch') | list }}", FV_EUNSUPPORTED, "the filter 'nosuch'");
}

Test(jinja, syntax_errors_say_what_is_expected_where) {
    refuse("a\n{% if x %}b", FV_EDATA, "t.jinja:2: endif elif else  is expected");
    refuse("{{ 1 2 }}", FV_EDATA, "'}}' is expected, not a constant");
    refuse("{{ 'a }}", FV_EDATA, "t.jinja:1: the string has no end");
    refuse("\n\n{# a", FV_EDATA, "t.jinja:3: the comment has no end");
    refuse("{{ a", FV_EDATA, "'{{' has no end");
    refuse("{{ ? }}", FV_EDATA, "unexpected '?'");
    refuse("{% break %}", FV_EDATA, "a loop around this");
}

Test(jinja, failures_of_a_run_name_line_and_reason) {
    refuse("\n{{ raise_exception('roles must alternate') }}", FV_EINVAL,
           "t.jinja:2: the chat template refuses: roles must alternate");
    refuse("{{ nosuch.x }}", FV_EINVAL, "t.jinja:1: 'nosuch' is undefined");
    refuse("{{ 'a' + 1 }}", FV_EINVAL, "'str' + 'int' has no meaning");
    refuse("{{ [1].append(2) }}", FV_EINVAL, "'append' is undefined");
    refuse("{{ 9223372036854775807 + 1 }}", FV_EINVAL, "does not fit 64 bits");
}

Test(jinja, steps_depth_and_bytes_are_bounded) {
    refuse("{% set r = range(99999) %}{% for a in r %}{{ -1 in r }}{% endfor %}", FV_ENOMEM,
           "does not end within");
    refuse("{% set ns = namespace(s='0123456789') %}{% for a in range(99) %}"
           "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           FV_ENOMEM, "more than 64 MiB");
    refuse("{{ 'a' * 999999999 }}", FV_ENOMEM, "t.jinja:1: ");
    /* single operations over long values */
    static const char *const costly[] = {
        "{{ ('a' * 8000000) | trim('b' * 8000000) | length }}",
        "{% for i in range(9999) %}{{ ('a' * 400000).strip('b' * 1000) }}{% endfor %}",
        "{{ ('a' * 8000000).rfind('a' * 4000000 ~ 'b') }}",
        "{{ ('a' * 8000000).rsplit('a' * 4000000 ~ 'b') | length }}",
        "{% set s = 'a' * 4000000 %}{% set l = [s, s, s, s, s, s, s, s] %}"
        "{% for i in range(9999) %}{{ (s ~ 'b') in l }}{% endfor %}",
        "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(30) %}"
        "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
        "{{ ns.a == ns.b }}",
        "{% set s = 'a' * 4000000 %}{% set t = s ~ 'b' %}"
        "{% for i in range(99999) %}{{ s < t }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof costly / sizeof *costly; i++)
        refuse(costly[i], FV_ENOMEM, "does not end within");
    refuse("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", FV_ENOMEM, "levels of nesting");
    char deep[4096] = "{{ ";
    for (int i = 0; i < 2000; i++) strcat(deep, i < 1000 ? "(" : ")");
    strcat(deep, " }}");
    refuse(deep, FV_EUNSUPPORTED, "levels of nesting");
}

/* ---- the type of `content` ---- */

Test(jinja, a_program_shows_how_it_reads_content) {
    static const struct {
        const char *program;
        fv_jinja_content form;
    } cases[] = {
        {"{% for m in messages %}{{ m['content'] }}{% endfor %}", FV_JINJA_CONTENT_TEXT},
        {"{% for m in messages %}{{ m.content | trim }}{% endfor %}", FV_JINJA_CONTENT_TEXT},
        {"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor "
         "%}",
         FV_JINJA_CONTENT_TEXT},
        {"{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}",
         FV_JINJA_CONTENT_PARTS},
        {"{% for m in messages %}{% for c in m.content | selectattr('type') %}{% endfor %}{% "
         "endfor %}",
         FV_JINJA_CONTENT_PARTS},
        {"{% for m in messages %}{% set c = m['content'] %}{% for x in c %}{% endfor %}{% endfor "
         "%}",
         FV_JINJA_CONTENT_PARTS},
        {"{% for m in messages %}{% if m.content is not string %}{% for x in m.content %}{% endfor "
         "%}"
         "{% endif %}{% endfor %}",
         FV_JINJA_CONTENT_EITHER},
        {"{% macro r(content) %}{% if content is string %}{% else %}{% for x in content %}{% "
         "endfor %}"
         "{% endif %}{% endmacro %}",
         FV_JINJA_CONTENT_EITHER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_jinja *p;
        const char *program = cases[i].program;
        cr_assert_eq(fv_jinja_parse(program, strlen(program), "t", &p), FV_OK, "%s",
                     fv_last_error());
        cr_assert_eq(fv_jinja_content_form(p), cases[i].form, "%s", program);
        fv_jinja_free(p);
    }
}
