/* Binds arguments by position and by name; calls macros; the built-in functions. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja/internal.h"

const fv_jj_row *fv_jj_find_row(const fv_jj_row *table, const char *name, size_t n) {
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0) return table;
    return NULL;
}

const fv_jj_row *fv_jj_find_filter(const char *name, size_t n) {
    const fv_jj_row *row = fv_jj_find_row(fv_jj_filters, name, n);
    return row ? row : fv_jj_find_row(fv_jj_list_filters, name, n);
}

/* Index of `name` among names separated by blanks; -1: none. */
static int place_of(const char *names, const char *name) {
    size_t n = strlen(name);
    for (int at = 0; *names; at++) {
        size_t len = strcspn(names, " ");
        if (len == n && memcmp(names, name, n) == 0) return at;
        names += len + (names[len] == ' ');
    }
    return -1;
}

static int count(const char *names) {
    int n = *names != '\0';
    for (; *names; names++) n += *names == ' ';
    return n;
}

fv_status fv_jj_call_row(fv_jj_run *r, const fv_jj_row *row, const fv_jj_value *self,
                         fv_jj_args *args, fv_jj_value *out) {
    fv_jj_value on = *self; /* out may be self */
    FV_TRY(
        fv_jj_steps(r, 1 + (size_t)args->n + (on.kind == FV_JJ_STR ? fv_jj_reading(on.str.n) : 0)));
    memset(args->bound, 0, sizeof args->bound);
    for (int32_t i = 0; row->parameters && i < args->n; i++) {
        const char *name = args->name ? args->name[i] : NULL;
        int at = name ? place_of(row->parameters, name) : i;
        if (at < 0) return FV_JJ_FAIL(r, FV_EINVAL, "'%s' has no argument '%s'", row->name, name);
        if (at >= count(row->parameters))
            return FV_JJ_FAIL(r, FV_EINVAL, "'%s' takes at most %d arguments", row->name,
                              count(row->parameters));
        args->bound[at] = &args->v[i];
    }
    return row->function(r, &on, args, out);
}

/* ---- macros ---- */

/* Defines the named arguments as variables of a separate scope; of equal names the first counts. */
static fv_status name_arguments(fv_jj_run *r, const fv_jj_args *args, fv_jj_scope **out) {
    fv_jj_scope *before = r->scope;
    FV_TRY(fv_jj_enter(r, NULL));
    *out = r->scope;
    for (int32_t i = args->n - 1; i >= 0; i--)
        if (args->name[i]) FV_TRY(fv_jj_define(r, args->name[i], args->v[i]));
    r->scope = before;
    return FV_OK;
}

static bool is_parameter(fv_jj_run *r, const fv_jj_node *macro, const char *name) {
    const fv_jj_node *p = macro->list;
    for (; p && p->name != name; p = p->next) fv_jj_spend(r, 1);
    return p != NULL;
}

/* Defines what a macro can read beside its n parameters, where the program has these names: `caller`,
 * the body of a call block; `varargs` and `kwargs`, arguments that are no parameters. */
static fv_status bind_rest(fv_jj_run *r, const fv_jj_node *macro, const fv_jj_args *args,
                           const fv_jj_scope *named, int32_t n, int32_t *used) {
    const fv_jj_names *names = &r->program->names;
    const char *caller = fv_jj_names_find(names, "caller"),
               *more = fv_jj_names_find(names, "varargs"),
               *pairs = fv_jj_names_find(names, "kwargs");
    const fv_jj_value *body = caller ? fv_jj_look_up(r, named, caller) : NULL;
    fv_jj_value list, dict;
    if (body && !is_parameter(r, macro, caller)) {
        FV_TRY(fv_jj_define(r, caller, *body));
        *used += 1;
    }
    if (more) {
        FV_TRY(fv_jj_new_list(r, FV_JJ_TUPLE, &list));
        for (int32_t i = n; i < args->n; i++)
            if (!args->name[i]) FV_TRY(fv_jj_push(r, list.list, args->v[i]));
        *used += list.list->n;
        FV_TRY(fv_jj_define(r, more, list));
    }
    if (!pairs) return FV_OK;
    FV_TRY(fv_jj_new_dict(r, FV_JJ_DICT, &dict));
    for (int32_t i = 0; i < args->n; i++) {
        const char *name = args->name[i];
        if (!name || name == caller || is_parameter(r, macro, name)) continue;
        fv_jj_value key = fv_jj_text(name);
        FV_TRY(fv_jj_dict_put(r, dict.dict, &key, args->v[i]));
    }
    *used += dict.dict->keys.n;
    return fv_jj_define(r, pairs, dict);
}

static fv_status bind_parameters(fv_jj_run *r, const fv_jj_node *macro, const fv_jj_args *args) {
    int32_t at = 0, used = 0;
    fv_jj_value v;
    fv_jj_scope *named;
    FV_TRY(name_arguments(r, args, &named));
    for (const fv_jj_node *p = macro->list; p; p = p->next, at++) {
        const fv_jj_value *given = at < args->n && !args->name[at] ? &args->v[at] : NULL;
        if (!given) given = fv_jj_look_up(r, named, p->name);
        used += given != NULL;
        v = fv_jj_undefined(p->name);
        if (given)
            v = *given;
        else if (p->a)
            FV_TRY(fv_jj_eval(r, p->a, &v));
        FV_TRY(fv_jj_define(r, p->name, v));
    }
    FV_TRY(bind_rest(r, macro, args, named, at, &used));
    if (used == args->n) return FV_OK;
    return FV_JJ_FAIL(r, FV_EINVAL, "the macro '%s' has no place for an argument", macro->name);
}

static fv_status call_macro(fv_jj_run *r, const fv_jj_callable *c, const fv_jj_args *args,
                            fv_jj_value *out) {
    fv_jj_scope *outer = r->scope;
    FV_TRY(fv_jj_enter(r, c->scope));
    FV_TRY(bind_parameters(r, c->macro, args));
    FV_TRY(fv_jj_exec_text(r, c->macro->body, out));
    r->scope = outer;
    return FV_OK;
}

fv_status fv_jj_call(fv_jj_run *r, const fv_jj_value *callee, fv_jj_args *args, fv_jj_value *out) {
    FV_TRY(fv_jj_fail_undefined(r, callee));
    if (callee->kind != FV_JJ_CALLABLE)
        return FV_JJ_FAIL(r, FV_EINVAL, "a '%s' cannot be called", fv_jj_type(callee));
    const fv_jj_callable *c = callee->callable;
    return c->macro ? call_macro(r, c, args, out) : fv_jj_call_row(r, c->row, &c->self, args, out);
}

/* ---- functions ---- */

static fv_status range(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                       fv_jj_value *out) {
    enum { RANGE_MAX = 100000 }; /* the limit of jinja2's sandbox */
    int64_t n[3] = {0, 0, 1};
    (void)self;
    for (int i = 0; i < 3; i++)
        if (args->bound[i]) FV_TRY(fv_jj_need_int(r, args->bound[i], "a bound of range", &n[i]));
    int64_t from = args->bound[1] ? n[0] : 0, to = args->bound[1] ? n[1] : n[0], step = n[2];
    if (!args->bound[0] || step == 0)
        return FV_JJ_FAIL(r, FV_EINVAL, "range needs %s", "an end and a step other than 0");
    FV_TRY(fv_jj_new_list(r, FV_JJ_LIST, out));
    while (step > 0 ? from < to : from > to) {
        if (out->list->n == RANGE_MAX)
            return FV_JJ_FAIL(r, FV_EINVAL, "a range of more than %d numbers", RANGE_MAX);
        FV_TRY(fv_jj_push(r, out->list, fv_jj_int(from)));
        if (__builtin_add_overflow(from, step, &from)) break;
    }
    return FV_OK;
}

static fv_status fill(fv_jj_run *r, const fv_jj_args *args, fv_jj_dict *d) {
    for (int32_t i = 0; i < args->n; i++) {
        if (!args->name[i] && args->v[i].kind != FV_JJ_DICT)
            return FV_JJ_FAIL(r, FV_EINVAL, "members come as name=value or a dict, not '%s'",
                              fv_jj_type(&args->v[i]));
        if (args->name[i]) {
            fv_jj_value key = fv_jj_text(args->name[i]);
            FV_TRY(fv_jj_dict_put(r, d, &key, args->v[i]));
            continue;
        }
        const fv_jj_dict *from = args->v[i].dict;
        for (int32_t k = 0; k < from->keys.n; k++)
            FV_TRY(fv_jj_dict_put(r, d, &from->keys.v[k], from->values.v[k]));
    }
    return FV_OK;
}

static fv_status namespace(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                           fv_jj_value *out) {
    (void)self;
    FV_TRY(fv_jj_new_dict(r, FV_JJ_NAMESPACE, out));
    return fill(r, args, out->dict);
}

static fv_status dict(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                      fv_jj_value *out) {
    (void)self;
    FV_TRY(fv_jj_new_dict(r, FV_JJ_DICT, out));
    return fill(r, args, out->dict);
}

static fv_status raise_exception(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                                 fv_jj_value *out) {
    fv_jj_str s = {.s = ""};
    (void)self;
    (void)out;
    if (args->bound[0]) FV_TRY(fv_jj_str_of(r, args->bound[0], &s));
    return FV_JJ_FAIL(r, FV_EINVAL, "the chat template refuses: %.*s", (int)(s.n < 400 ? s.n : 400),
                      s.s);
}

static fv_status strftime_now(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                              fv_jj_value *out) {
    char format[128], text[256];
    struct tm tm;
    time_t now = (time_t)r->now;
    fv_jj_str s;
    (void)self;
    if (!args->bound[0]) return FV_JJ_FAIL(r, FV_EINVAL, "strftime_now needs %s", "a format");
    FV_TRY(fv_jj_need_str(r, args->bound[0], "a format of time", &s));
    if (s.n >= sizeof format || !gmtime_r(&now, &tm))
        return FV_JJ_FAIL(r, FV_EINVAL, "a format of time has at most %zu bytes",
                          sizeof format - 1);
    memcpy(format, s.s, s.n);
    format[s.n] = '\0';
    FV_TRY(fv_jj_steps(r, s.n));
    fv_jj_out made = {0};
    size_t n = strftime(text, sizeof text, format, &tm);
    FV_TRY(fv_jj_put(r, &made, text, n, NULL));
    *out = fv_jj_taken(&made);
    return FV_OK;
}

const fv_jj_row fv_jj_functions[] = {{"range", "start stop step", range},
                                     {"namespace", NULL, namespace},
                                     {"dict", NULL, dict},
                                     {"raise_exception", "message", raise_exception},
                                     {"strftime_now", "format", strftime_now},
                                     {0}};
