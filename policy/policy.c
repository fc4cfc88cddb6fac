/* Policies: the table, the text form and its checks. Immutable data, any thread. */
#include "policy/policy.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* methods.def lists a method's parameters behind it; the same walk counts and fills them. */
typedef struct method_table {
    fv_method_info row[64];
    int32_t n;
} method_table;

static void add_method(method_table *t, fv_stage stage, const char *name, const char *source,
                       const char *summary) {
    assert(t->n < (int32_t)(sizeof t->row / sizeof t->row[0]));
    t->row[t->n++] =
        (fv_method_info){.stage = stage, .name = name, .source = source, .summary = summary};
}

static void add_param(method_table *t, const char *method, fv_param_info param) {
    fv_method_info *m = &t->row[t->n - 1];
    assert(strcmp(m->name, method) == 0 && m->n_param < FV_MAX_PARAMS);
    m->param[m->n_param++] = param;
}

static method_table build_table(void) {
    method_table t = {.n = 0};
#define FV_METHOD(stage, name, source, summary)                                                    \
    add_method(&t, FV_STAGE_##stage, #name, source, summary);
#define FV_PARAM(stage, method, name, type, fallback, min, max, unit, meaning)                     \
    add_param(&t, #method,                                                                         \
              (fv_param_info){#name, FV_PARAM_##type, fallback, min, max, unit, meaning});
#include "policy/methods.def"
    return t;
}

static method_table table;

static void init_table(void) { table = build_table(); }

const fv_method_info *fv_policy_methods(int32_t *n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_table);
    *n = table.n;
    return table.row;
}

const fv_preset_info *fv_policy_presets(int32_t *n) {
#define FV_PRESET(name, text, meaning) {#name, text, meaning},
    static const fv_preset_info presets[] = {
#include "policy/methods.def"
    };
    *n = (int32_t)(sizeof presets / sizeof presets[0]);
    return presets;
}

const char *fv_stage_name(fv_stage s) {
#define FV_STAGE(id, name, where) #name,
    static const char *const names[] = {
#include "policy/methods.def"
    };
    return names[s];
}

const char *fv_stage_where(fv_stage s) {
#define FV_STAGE(id, name, where) where,
    static const char *const wheres[] = {
#include "policy/methods.def"
    };
    return wheres[s];
}

/* ---- the text form --------------------------------------------------------------------- */

typedef struct word {
    const char *s;
    size_t n;
} word;

static bool word_is(word w, const char *s) { return strlen(s) == w.n && memcmp(w.s, s, w.n) == 0; }

/* Cuts [*p, end) at the first `sep`; false at the end of the text. */
static bool next_word(const char **p, const char *end, char sep, word *out) {
    if (*p >= end) return false;
    const char *stop = memchr(*p, sep, (size_t)(end - *p));
    if (!stop) stop = end;
    *out = (word){*p, (size_t)(stop - *p)};
    *p = stop + 1;
    return true;
}

static bool split(word w, char sep, word *left, word *right) {
    const char *at = memchr(w.s, sep, w.n);
    if (!at) return false;
    *left = (word){w.s, (size_t)(at - w.s)};
    *right = (word){at + 1, (size_t)(w.s + w.n - at - 1)};
    return true;
}

static void join_names(char *out, size_t cap, const char *name) {
    size_t n = strlen(out);
    snprintf(out + n, cap - n, "%s%s", n ? ", " : "", name);
}

static fv_status find_stage(word name, fv_stage *out) {
    char all[256] = "";
    for (int s = 0; s < FV_N_STAGE; s++) {
        if (word_is(name, fv_stage_name((fv_stage)s))) {
            *out = (fv_stage)s;
            return FV_OK;
        }
        join_names(all, sizeof all, fv_stage_name((fv_stage)s));
    }
    return FV_FAIL(FV_EINVAL, "policy: there is no stage '%.*s'; stages are %s", (int)name.n,
                   name.s, all);
}

static fv_status find_method(fv_stage stage, word name, const fv_method_info **out) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    char all[512] = "";
    for (int32_t i = 0; i < n; i++) {
        if (m[i].stage != stage) continue;
        if (word_is(name, m[i].name)) {
            *out = &m[i];
            return FV_OK;
        }
        join_names(all, sizeof all, m[i].name);
    }
    return FV_FAIL(FV_EINVAL, "policy: stage %s has no method '%.*s'; it has %s",
                   fv_stage_name(stage), (int)name.n, name.s, all[0] ? all : "none yet");
}

static fv_status parse_param(fv_choice *c, word item) {
    const fv_method_info *m = c->method;
    word key, value;
    if (!split(item, '=', &key, &value))
        return FV_FAIL(FV_EINVAL, "policy: '%.*s' in %s=%s: write PARAMETER=VALUE", (int)item.n,
                       item.s, fv_stage_name(m->stage), m->name);
    char all[512] = "";
    for (int32_t i = 0; i < m->n_param; i++) {
        const fv_param_info *p = &m->param[i];
        join_names(all, sizeof all, p->name);
        if (!word_is(key, p->name)) continue;
        char text[64], *end;
        snprintf(text, sizeof text, "%.*s", (int)value.n, value.s);
        double v = strtod(text, &end);
        if (value.n == 0 || value.n >= sizeof text || *end || !isfinite(v))
            return FV_FAIL(FV_EINVAL, "policy: %s.%s: '%s' is not a number", m->name, p->name,
                           text);
        if (p->type != FV_PARAM_FLOAT && v != floor(v))
            return FV_FAIL(FV_EINVAL, "policy: %s.%s is a whole number, not %s", m->name, p->name,
                           text);
        if (v < p->min || v > p->max)
            return FV_FAIL(FV_EINVAL, "policy: %s.%s is %g; it must be %g..%g", m->name, p->name, v,
                           p->min, p->max);
        c->value[i] = v;
        c->given[i] = true;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "policy: %s=%s has no parameter '%.*s'; it has %s",
                   fv_stage_name(m->stage), m->name, (int)key.n, key.s, all[0] ? all : "none");
}

static fv_status parse_stage(fv_policy *p, word clause, bool *seen) {
    const char *at = clause.s, *end = clause.s + clause.n;
    word head, stage_name, method_name, item;
    if (!next_word(&at, end, ',', &head) || !split(head, '=', &stage_name, &method_name))
        return FV_FAIL(FV_EINVAL, "policy: '%.*s': write STAGE=METHOD,PARAMETER=VALUE,...;...",
                       (int)clause.n, clause.s);
    fv_stage stage = FV_N_STAGE;
    FV_TRY(find_stage(stage_name, &stage));
    if (seen[stage])
        return FV_FAIL(FV_EINVAL, "policy: stage %s is given twice", fv_stage_name(stage));
    seen[stage] = true;
    fv_choice *c = &p->stage[stage];
    const fv_method_info *method = NULL;
    FV_TRY(find_method(stage, method_name, &method));
    /* Over a preset's own method only what is written changes. */
    if (c->method != method) {
        *c = (fv_choice){.method = method};
        for (int32_t i = 0; i < method->n_param; i++) c->value[i] = method->param[i].fallback;
    }
    while (next_word(&at, end, ',', &item)) FV_TRY(parse_param(c, item));
    return FV_OK;
}

static fv_status apply_preset(fv_policy *p, word name) {
    int32_t n;
    const fv_preset_info *presets = fv_policy_presets(&n);
    char all[512] = "";
    for (int32_t i = 0; i < n; i++) {
        if (word_is(name, presets[i].name)) return fv_policy_parse(presets[i].text, p);
        join_names(all, sizeof all, presets[i].name);
    }
    return FV_FAIL(FV_EINVAL, "policy: there is no preset '%.*s'; presets are %s", (int)name.n,
                   name.s, all);
}

fv_status fv_policy_parse(const char *text, fv_policy *out) {
    fv_policy p = {0};
    bool seen[FV_N_STAGE] = {false};
    const char *at = text, *end = text + strlen(text);
    word clause, key, value;
    for (bool first = true; next_word(&at, end, ';', &clause); first = false) {
        if (clause.n == 0) continue;
        if (split(clause, '=', &key, &value) && word_is(key, "preset")) {
            if (!first) return FV_FAIL(FV_EINVAL, "policy: preset=... must stand first");
            FV_TRY(apply_preset(&p, value));
        } else {
            FV_TRY(parse_stage(&p, clause, seen));
        }
    }
    *out = p;
    return FV_OK;
}

void fv_policy_print(const fv_policy *p, char out[FV_POLICY_TEXT_MAX]) {
    size_t n = 0;
    out[0] = '\0';
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_choice *c = &p->stage[s];
        if (!c->method) continue;
        n += (size_t)snprintf(out + n, FV_POLICY_TEXT_MAX - n, "%s%s=%s", n ? ";" : "",
                              fv_stage_name((fv_stage)s), c->method->name);
        for (int32_t i = 0; i < c->method->n_param && n < FV_POLICY_TEXT_MAX; i++) {
            /* An unwritten layer stays unwritten: its value depends on the checkpoint's depth. */
            if (c->method->param[i].type == FV_PARAM_LAYER && !c->given[i]) continue;
            n += (size_t)snprintf(out + n, FV_POLICY_TEXT_MAX - n, ",%s=%.10g",
                                  c->method->param[i].name, c->value[i]);
        }
        assert(n < FV_POLICY_TEXT_MAX);
    }
}

bool fv_policy_is_exact(const fv_policy *p) {
    for (int s = 0; s < FV_N_STAGE; s++)
        if (p->stage[s].method) return false;
    return true;
}

static int32_t param_index(const fv_choice *c, const char *param) {
    for (int32_t i = 0; i < c->method->n_param; i++)
        if (strcmp(c->method->param[i].name, param) == 0) return i;
    assert(!"a parameter that the method does not have");
    return 0;
}

double fv_choice_value(const fv_choice *c, const char *param) {
    return c->value[param_index(c, param)];
}

int32_t fv_choice_layer(const fv_choice *c, const char *param, int32_t n_layer) {
    int32_t i = param_index(c, param);
    double mapped = floor(c->value[i] * n_layer / 32 + 0.5);
    return (int32_t)(c->given[i] ? c->value[i] : fmax(mapped, c->method->param[i].min));
}
