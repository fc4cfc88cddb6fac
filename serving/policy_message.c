/* Policies in messages. Pure functions; any thread. */
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__Policy policy_message;
typedef Fovea__Inference__V1__StagePolicy stage_message;
typedef Fovea__Inference__V1__Param param_message;

static fv_status set_param(fv_choice *c, const param_message *p) {
    return p->text[0] ? fv_choice_set_text(c, p->name, p->text)
                      : fv_choice_set_number(c, p->name, p->value);
}

static fv_status set_stage(fv_policy_draft *d, const stage_message *s) {
    fv_choice *c;
    FV_TRY(fv_policy_draft_stage(d, s->stage, s->method, &c));
    if (!c->method && s->n_params)
        return FV_FAIL(FV_EINVAL, "policy: %.64s=none takes no parameters", s->stage);
    if (s->n_params > FV_MAX_PARAMS)
        return FV_FAIL(FV_EINVAL, "policy: %s=%s has %zu parameters; no method has more than %d",
                       s->stage, s->method, s->n_params, FV_MAX_PARAMS);
    for (size_t i = 0; i < s->n_params; i++) FV_TRY(set_param(c, s->params[i]));
    return FV_OK;
}

fv_status fv_policy_from_message(const policy_message *m, fv_policy *out) {
    fv_policy_draft d = {0};
    if (m && m->preset[0]) FV_TRY(fv_policy_draft_preset(&d, m->preset));
    for (size_t i = 0; m && i < m->n_stages; i++) FV_TRY(set_stage(&d, m->stages[i]));
    return fv_policy_draft_finish(&d, out);
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
        if (fv_choice_is_written(c, i))
            FV_TRY(param_message_of(c, i, a, &s->params[s->n_params++]));
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
