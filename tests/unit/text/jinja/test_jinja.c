/* text/jinja: programs and chat templates against jinja2's output (golden files,
 * tests/parity/jinja_golden.py), errors, bounds, and which bytes a user wrote. */
#include <criterion/criterion.h>
#include <stddef.h>
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
    const json_t *theirs = user ? json_object_get(vars, user) : NULL;
    json_t *members = theirs ? json_pack("{s:O}", user, theirs) : NULL;
    if (st == FV_OK) st = fv_jinja_run(p, vars, members, NOW, 0, out);
    json_decref(members);
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
    refuse("{% block x %}{% endblock %}", FV_EUNSUPPORTED, "the block 'block'");
    refuse("\n{{ 1 | xmlattr }}", FV_EUNSUPPORTED,
           "t.jinja:2: the filter 'xmlattr' is not supported");
    refuse("{{ 1 is nosuch }}", FV_EUNSUPPORTED, "the test 'nosuch'");
    refuse("{% for x in y recursive %}{% endfor %}", FV_EUNSUPPORTED, "the loop 'recursive'");
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
    refuse("{% set r = range(99999) %}{% for a in r %}{{ -1 in r }}{% endfor %}", FV_EINVAL,
           "does not end within");
    refuse("{% set ns = namespace(s='0123456789') %}{% for a in range(99) %}"
           "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           FV_EINVAL, "more than 64 MiB");
    refuse("{{ 'a' * 999999999 }}", FV_EINVAL, "t.jinja:1: ");
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
        refuse(costly[i], FV_EINVAL, "does not end within");
    refuse("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", FV_EINVAL, "levels of nesting");
    char deep[4096] = "{{ ";
    for (int i = 0; i < 2000; i++) strcat(deep, i < 1000 ? "(" : ")");
    strcat(deep, " }}");
    refuse(deep, FV_EUNSUPPORTED, "levels of nesting");
}

/* ---- work ---- */

/* Writes `one` n times with its number for '#'; returns the end. */
static char *times(char *at, int n, const char *one) {
    for (int i = 0; i < n; i++)
        for (const char *c = one; *c; c++) {
            if (*c == '#')
                at += sprintf(at, "%d", i);
            else
                *at++ = *c;
        }
    *at = '\0';
    return at;
}

enum { MANY = 2000 };

/* A program of `setup`, `begin`, n parts and `end`; its work is the steps beyond those with n =
 * 0. */
typedef struct work {
    const char *setup, *begin, *part, *end;
} work;

static int64_t steps_of(const work *w, int n_setup, int n) {
    static char text[1 << 20];
    fv_jinja *p;
    char *at = times(text, n_setup, w->setup);
    at = stpcpy(at, w->begin);
    at = stpcpy(times(at, n, w->part), w->end);
    cr_assert_lt(at - text, (ptrdiff_t)sizeof text);
    json_t *vars = json_object();
    cr_assert_eq(fv_jinja_parse(text, (size_t)(at - text), "t", &p), FV_OK, "%s", fv_last_error());
    int64_t steps = fv_jinja_count_steps(p, vars);
    fv_jinja_free(p);
    json_decref(vars);
    return steps;
}

/* Four times the size is at most about four times the work. */
Test(jinja, work_grows_with_the_size_of_a_program) {
    static const work cases[] = {
        {"{%set v#=1%}", "{{[", "v#,", "]}}"},
        {"{%macro m#()%}{%endmacro%}", "", "{{m#()}}", ""},
        {"", "{%set d={", "'k#':#,", "}%}"},
        {"", "{%set d={", "#:#,", "}%}"},
        {"", "{%set n=namespace(", "k#=1,", ")%}"},
        {"", "{%set d=dict(", "k#=1,", ")%}{%set e=d.k1%}{{d==d}}"},
        {"", "{{[", "'k#',", "]|unique|list|length}}"},
        {"", "{{", "'k#'", "}}"},
        {"", "{{", "'k#'~", "1}}"},
        {"", "{{[", "#,", "]|sort(reverse=true)|join(',')}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t one = steps_of(&cases[i], MANY, MANY),
                four = steps_of(&cases[i], 4 * MANY, 4 * MANY);
        cr_assert_lt(four, 5 * one, "case %zu: %lld steps, and of four times the size %lld", i,
                     (long long)one, (long long)four);
    }
}

Test(jinja, arguments_are_found_by_name_without_a_search) {
    enum { N = 4 * MANY };
    static char text[1 << 20];
    fv_jinja *p;
    char *at = times(stpcpy(text, "{%macro m("), N, "a#,");
    at = stpcpy(at, ")%}{{a0}}{{a7}}{%endmacro%}{{m(");
    for (int i = N - 1; i >= 0; i--) at += sprintf(at, "a%d=%d,", i, i);
    stpcpy(at, ")}}");
    json_t *vars = json_object();
    fv_jinja_text out;
    cr_assert_eq(fv_jinja_parse(text, strlen(text), "t", &p), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_jinja_run(p, vars, NULL, 0, 0, &out), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(out.text, "07");
    cr_assert_lt(fv_jinja_count_steps(p, vars), 20 * N);
    fv_jinja_text_free(&out);
    fv_jinja_free(p);
    json_decref(vars);
}

/* Each operation does thousands of times more work than it has nodes; its steps must count the
 * work. */
Test(jinja, every_operation_pays_for_what_it_works) {
    static const struct {
        const char *before, *operation;
        int64_t least; /* steps of the operation */
    } cases[] = {
        {"{%set l=range(50000)%}", "{%set x=l|sum%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l|reject|list%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l|select('eq',-1)|list%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l|map('string')|list%}", 50000},
        {"{%set l=['']*50000%}", "{%set x=l|join%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l|tojson%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l|string%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=-1 in l%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l|max%}", 50000},
        {"{%set l=range(50000)%}", "{%set x=l+l%}", 100000},
        {"{%set s='a'*800000%}", "{%set x=s[9999999]%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s[-1]%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s[1:2]%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s|length%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s.count('aab')%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s.find('b')%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s.rfind('b')%}", 50000},
        {"{%set s='a'*800000%}", "{%set x='b' in s%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s.isalpha()%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s.splitlines()%}", 50000},
        {"{%set s=' '*800000%}", "{%set x=s.strip()%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s.replace('b','c')%}", 50000},
        {"{%set s='a'*800000%}", "{%set x=s|upper%}", 200000},
        {"{%set s='a'*800000%}", "{%set x=[s]|string%}", 200000},
        {"{%set s='a'*800000%}", "{%set x=[s]|tojson%}", 200000},
        {"{%set s='a'*800000%}{%set t='a'*800000%}", "{%set x=s==t%}", 12500},
        {"{%set f=1.2345678901234567e300%}", "{%set x=f|string%}", 32},
        {"", "{%set x=1e308%1e-300%}", 32},
        {"{%set t=(0,)*50%}",
         "{%for a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,"
         "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a in [t]*1000%}{%endfor%}",
         50000},
        {"",
         "{%set x=range(1000)|map('default',boolean=1,boolean=1,boolean=1,boolean=1,boolean=1,"
         "boolean=1,boolean=1,boolean=1,boolean=1,boolean=1)|list%}",
         10000},
        {"", "{%set x=range(1000)|map(attribute='0.0.0.0.0.0.0.0.0.0',default=[1])|list%}", 10000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        work without = {"", cases[i].before, "", ""},
             with = {"", cases[i].before, "", cases[i].operation};
        int64_t steps = steps_of(&with, 0, 0) - steps_of(&without, 0, 0);
        cr_assert_geq(steps, cases[i].least, "%s: %lld steps", cases[i].operation,
                      (long long)steps);
        cr_assert_lt(steps, 20 * cases[i].least, "%s: %lld steps", cases[i].operation,
                     (long long)steps);
    }
}

Test(jinja, a_run_ends_when_its_time_is_over) {
    static const char program[] =
        "{% for a in range(99999) %}{% for b in range(99) %}{{ a }}{% endfor %}{% endfor %}";
    fv_jinja *p;
    fv_jinja_text out = {0};
    json_t *vars = json_object();
    cr_assert_eq(fv_jinja_parse(program, strlen(program), "t", &p), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_jinja_run(p, vars, NULL, 0, 1e-9, &out), FV_EDEADLINE);
    cr_assert_not_null(strstr(fv_last_error(), "its time is over"), "%s", fv_last_error());
    cr_assert_null(out.text);
    fv_jinja_free(p);
    json_decref(vars);
}

Test(jinja, long_programs_and_names_are_refused) {
    static char text[FV_JINJA_PROGRAM_BYTES + 16];
    memset(text, 'a', FV_JINJA_PROGRAM_BYTES + 1);
    refuse(text, FV_EUNSUPPORTED, "at most 1048576 are read");
    memset(text, '1', FV_JINJA_PROGRAM_BYTES);
    memcpy(text, "\n{{[", 4);
    for (int i = 5; i < FV_JINJA_PROGRAM_BYTES; i += 2) text[i] = ',';
    strcpy(text + FV_JINJA_PROGRAM_BYTES - 4, "]}}");
    refuse(text, FV_EUNSUPPORTED, "t.jinja:2: more than 262144 statements and expressions");
    strcpy(text, "\n{{ ");
    memset(text + 4, 'a', FV_JINJA_NAME_BYTES + 1);
    strcpy(text + 4 + FV_JINJA_NAME_BYTES + 1, " }}");
    refuse(text, FV_EUNSUPPORTED, "t.jinja:2: a name of 256 bytes; at most 255 are read");
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
        {"{% for m in messages %}{% set c = m.content %}{% set c = m.calls %}{% for x in c %}{% "
         "endfor %}"
         "{% endfor %}",
         FV_JINJA_CONTENT_TEXT},
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
