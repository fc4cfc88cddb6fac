/* The text form of a policy and its checks. Pure functions, any thread. */
#include "policy/policy.h"

#include <assert.h>

#include "policy/conflicts.h"
#include "policy/words_internal.h"

static fv_status find_stage(word name, fv_stage *out) {
    names l;
    names_init(&l, name);
    for (int s = 0; s < FV_N_STAGE; s++) {
        if (word_is(name, fv_stage_name((fv_stage)s))) {
            *out = (fv_stage)s;
            return FV_OK;
        }
        names_add(&l, fv_stage_name((fv_stage)s));
    }
    return FV_FAIL(FV_EINVAL, "policy: unknown stage '%.*s'; available: %s%s", (int)name.n, name.s,
                   l.all, names_hint(&l));
}

static fv_status find_method(fv_stage stage, word name, const fv_method_info **out) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    names l;
    names_init(&l, name);
    for (int32_t i = 0; i < n; i++) {
        if (m[i].stage != stage) continue;
        if (word_is(name, m[i].name)) {
            *out = &m[i];
            return FV_OK;
        }
        names_add(&l, m[i].name);
    }
    return FV_FAIL(FV_EINVAL, "policy: stage %s has no method '%.*s'; it has %s%s",
                   fv_stage_name(stage), (int)name.n, name.s, l.all, names_hint(&l));
}

/* ---- drafts ------------------------------------------------------------------------------ */

static fv_status draft_stage(fv_policy_draft *d, word stage_name, word method_name,
                             fv_choice **out) {
    fv_stage stage = FV_N_STAGE;
    const fv_method_info *method = NULL;
    FV_TRY(find_stage(stage_name, &stage));
    if (d->given[stage])
        return FV_FAIL(FV_EINVAL, "policy: stage %s is given twice", fv_stage_name(stage));
    d->given[stage] = true;
    *out = &d->policy.stage[stage];
    if (word_is(method_name, "none")) {
        **out = (fv_choice){0};
        return FV_OK;
    }
    FV_TRY(find_method(stage, method_name, &method));
    /* if a preset has this method, its other parameters stay */
    if ((*out)->method != method) fv_choice_init(*out, method);
    return FV_OK;
}

fv_status fv_policy_draft_stage(fv_policy_draft *d, const char *stage, const char *method,
                                fv_choice **out) {
    return draft_stage(d, word_of(stage), word_of(method), out);
}

static fv_status parse(const char *text, fv_policy_draft *d);

/* NULL: no preset has this name. */
static const fv_preset_info *find_preset(word name) {
    int32_t n;
    const fv_preset_info *presets = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++)
        if (word_is(name, presets[i].name)) return &presets[i];
    return NULL;
}

static void preset_names(names *l, word name) {
    int32_t n;
    const fv_preset_info *presets = fv_policy_presets(&n);
    names_init(l, name);
    for (int32_t i = 0; i < n; i++) names_add(l, presets[i].name);
}

static fv_status no_preset(word name) {
    names l;
    preset_names(&l, name);
    return FV_FAIL(FV_EINVAL, "policy: unknown preset '%.*s'; available: %s%s", (int)name.n, name.s,
                   l.all, names_hint(&l));
}

fv_status fv_policy_draft_preset(fv_policy_draft *d, const char *name) {
    const fv_preset_info *preset = find_preset(word_of(name));
    fv_policy_draft of_preset = {0};
    if (!preset) return no_preset(word_of(name));
    FV_TRY(parse(preset->text, &of_preset));
    d->policy = of_preset.policy;
    return FV_OK;
}

fv_status fv_policy_draft_finish(const fv_policy_draft *d, fv_policy *out) {
    int32_t n;
    const fv_conflict *table = fv_conflicts(&n);
    FV_TRY(fv_conflicts_check(&d->policy, table, n));
    *out = d->policy;
    return FV_OK;
}

/* ---- the text form ----------------------------------------------------------------------- */

static fv_status parse_stage(fv_policy_draft *d, word clause) {
    const char *at = clause.s, *end = clause.s + clause.n;
    word head, stage, method, item;
    fv_choice *c;
    if (!next_word(&at, end, ',', &head) || !split(head, '=', &stage, &method))
        return FV_FAIL(FV_EINVAL, "policy: '%.*s': write STAGE=METHOD,PARAMETER=VALUE,...;...",
                       (int)clause.n, clause.s);
    FV_TRY(draft_stage(d, stage, method, &c));
    while (next_word(&at, end, ',', &item)) {
        if (!c->method)
            return FV_FAIL(FV_EINVAL, "policy: %.*s=none takes no parameters", (int)stage.n,
                           stage.s);
        FV_TRY(fv_choice_set(c, item.s, item.n));
    }
    return FV_OK;
}

/* Error for a single word: a method without its stage, or a misspelled preset. */
static fv_status no_clause(word name) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++)
        if (word_is(name, m[i].name))
            return FV_FAIL(FV_EINVAL, "policy: '%.*s' is a method: write %s=%s", (int)name.n,
                           name.s, fv_stage_name(m[i].stage), m[i].name);
    names l;
    preset_names(&l, name);
    return FV_FAIL(FV_EINVAL,
                   "policy: '%.*s' is no preset, and not STAGE=METHOD,PARAMETER=VALUE,...%s "
                   "(`fovea policies` lists all)",
                   (int)name.n, name.s, names_hint(&l));
}

static fv_status parse_clause(fv_policy_draft *d, word clause, bool first) {
    word key, value;
    bool pair = split(clause, '=', &key, &value), named = pair && word_is(key, "preset");
    const fv_preset_info *preset = named ? find_preset(value) : pair ? NULL : find_preset(clause);
    if (named && !preset) return no_preset(value);
    if (preset && !first)
        return FV_FAIL(FV_EINVAL, "policy: the preset '%s' must come first", preset->name);
    if (preset) return fv_policy_draft_preset(d, preset->name);
    return pair ? parse_stage(d, clause) : no_clause(clause);
}

static fv_status parse(const char *text, fv_policy_draft *d) {
    bool first = true;
    const char *at = text, *end = text + strlen(text);
    word clause;
    while (next_word(&at, end, ';', &clause)) {
        if (clause.n == 0) continue;
        FV_TRY(parse_clause(d, clause, first));
        first = false;
    }
    return FV_OK;
}

fv_status fv_policy_parse(const char *text, fv_policy *out) {
    fv_policy_draft d = {0};
    FV_TRY(parse(text, &d));
    return fv_policy_draft_finish(&d, out);
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
            char value[FV_PARAM_TEXT_MAX];
            if (!fv_choice_is_written(c, i)) continue;
            fv_choice_print(c, i, value);
            n += (size_t)snprintf(out + n, FV_POLICY_TEXT_MAX - n, ",%s=%s",
                                  c->method->param[i].name, value);
        }
        assert(n < FV_POLICY_TEXT_MAX);
    }
}

bool fv_policy_is_exact(const fv_policy *p) {
    for (int s = 0; s < FV_N_STAGE; s++)
        if (p->stage[s].method) return false;
    return true;
}
