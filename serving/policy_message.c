/* Policies in messages. A message is converted to the text form and parsed, so that both mean
 * the same and fail with the same sentences. Only names and texts are checked before, because they must not
 * contain separators of the text form. Pure functions; any thread. */
#include "serving/policy_message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef Fovea__Inference__V1__Policy policy_message;
typedef Fovea__Inference__V1__StagePolicy stage_message;
typedef Fovea__Inference__V1__Param param_message;

typedef struct text {
    char s[4 * FV_POLICY_TEXT_MAX];
    size_t n;
} text;

static fv_status put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static fv_status put(text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof t->s - t->n)
        return FV_FAIL(FV_EINVAL, "policy: longer than any policy can be");
    t->n += (size_t)n;
    return FV_OK;
}

static fv_status check_name(const char *what, const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (*name && name[strspn(name, letters)] == '\0') return FV_OK;
    return FV_FAIL(FV_EINVAL, "policy: '%.64s' is not a %s", name, what);
}

static fv_status put_param(text *t, const param_message *p) {
    FV_TRY(check_name("parameter", p->name));
    if (!p->text[0]) return put(t, ",%s=%.17g", p->name, p->value);
    if (strpbrk(p->text, ",;"))
        return FV_FAIL(FV_EINVAL, "policy: %s: a text has no ',' and no ';'", p->name);
    return put(t, ",%s=%s", p->name, p->text);
}

static fv_status put_stage(text *t, const stage_message *s) {
    FV_TRY(check_name("stage", s->stage));
    FV_TRY(check_name("method", s->method));
    FV_TRY(put(t, ";%s=%s", s->stage, s->method));
    for (size_t i = 0; i < s->n_params; i++) FV_TRY(put_param(t, s->params[i]));
    return FV_OK;
}

fv_status fv_policy_from_message(const policy_message *m, fv_policy *out) {
    text t = {.n = 0};
    if (m && m->preset[0]) {
        FV_TRY(check_name("preset", m->preset));
        FV_TRY(put(&t, "preset=%s", m->preset));
    }
    for (size_t i = 0; m && i < m->n_stages; i++) FV_TRY(put_stage(&t, m->stages[i]));
    return fv_policy_parse(t.s, out);
}

static fv_status param_message_of(const fv_choice *c, int32_t i, fv_arena *a, param_message **out) {
    const fv_param_info *info = &c->method->param[i];
    param_message *p;
    FV_TRY(FV_ARENA_NEW(a, 1, p));
    fovea__inference__v1__param__init(p);
    p->name = (char *)info->name;
    bool words = info->type == FV_PARAM_CHOICE || info->type == FV_PARAM_TEXT;
    if (words || (fv_param_is_layer(info->type) && !c->given[i])) {
        FV_TRY(FV_ARENA_NEW(a, FV_PARAM_TEXT_MAX, p->text));
        fv_choice_print(c, i, p->text);
    } else {
        p->value = c->value[i];
    }
    *out = p;
    return FV_OK;
}

static fv_status stage_message_of(fv_stage stage, const fv_choice *c, fv_arena *a,
                                  stage_message **out) {
    stage_message *s;
    const fv_method_info *method = c->method;
    FV_TRY(FV_ARENA_NEW(a, 1, s));
    fovea__inference__v1__stage_policy__init(s);
    s->stage = (char *)fv_stage_name(stage);
    s->method = (char *)method->name;
    FV_TRY(FV_ARENA_NEW(a, method->n_param, s->params));
    for (int32_t i = 0; i < method->n_param; i++)
        if (fv_choice_writes(c, i)) FV_TRY(param_message_of(c, i, a, &s->params[s->n_params++]));
    *out = s;
    return FV_OK;
}

fv_status fv_policy_to_message(const fv_policy *p, fv_arena *a, policy_message **out) {
    policy_message *m = NULL;
    if (!fv_policy_is_exact(p)) {
        FV_TRY(FV_ARENA_NEW(a, 1, m));
        fovea__inference__v1__policy__init(m);
        FV_TRY(FV_ARENA_NEW(a, FV_N_STAGE, m->stages));
        for (int s = 0; s < FV_N_STAGE; s++)
            if (p->stage[s].method)
                FV_TRY(stage_message_of((fv_stage)s, &p->stage[s], a, &m->stages[m->n_stages++]));
    }
    *out = m;
    return FV_OK;
}
