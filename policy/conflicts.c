/* Methods that cannot be combined. Pairs are patterns in the text form, so the table reads like a
 * policy and names methods that a reader can look up. Immutable data, any thread. */
#include "policy/conflicts.h"

#include "policy/words_internal.h"

const fv_conflict *fv_conflicts(int32_t *n) {
#define FV_CONFLICT(a, b, why) {a, b, why},
    static const fv_conflict table[] = {
#include "policy/methods.def"
        {NULL, NULL, NULL}, /* the table must not be empty */
    };
    *n = (int32_t)(sizeof table / sizeof table[0]) - 1;
    return table;
}

static const fv_choice *find_stage(const fv_policy *p, word name) {
    for (int s = 0; s < FV_N_STAGE; s++)
        if (word_is(name, fv_stage_name((fv_stage)s))) return &p->stage[s];
    return NULL;
}

/* "key=value": a parameter prints this value; "key!=value": none does. */
static bool has_word(const fv_choice *c, word item) {
    word key, value;
    char text[FV_PARAM_TEXT_MAX];
    if (!split(item, '=', &key, &value)) return false;
    bool other = key.n > 0 && key.s[key.n - 1] == '!';
    key.n -= other;
    for (int32_t i = 0; i < c->method->n_param; i++) {
        if (!word_is(key, c->method->param[i].name)) continue;
        fv_choice_print(c, i, text);
        return word_is(value, text) != other;
    }
    return other;
}

bool fv_policy_matches(const fv_policy *p, const char *pattern) {
    const char *at = pattern, *end = pattern + strlen(pattern);
    word head, stage, method, item;
    if (!next_word(&at, end, ',', &head) || !split(head, '=', &stage, &method)) return false;
    const fv_choice *c = find_stage(p, stage);
    if (!c || !c->method) return false;
    if (!word_is(method, "*") && !word_is(method, c->method->name)) return false;
    while (next_word(&at, end, ',', &item))
        if (!has_word(c, item)) return false;
    return true;
}

fv_status fv_conflicts_check(const fv_policy *p, const fv_conflict *table, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (fv_policy_matches(p, table[i].a) && fv_policy_matches(p, table[i].b))
            return FV_FAIL(FV_EINVAL, "policy: %s cannot be combined with %s: %s", table[i].a,
                           table[i].b, table[i].why);
    return FV_OK;
}
