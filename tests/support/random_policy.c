#include "tests/support/random_policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/conflicts.h"

static uint64_t draw(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

static int32_t below(uint64_t *state, int32_t n) { return (int32_t)(draw(state) % (uint64_t)n); }

/* A number in [0, 1]: a fraction, a decimal, all bits random, next to 1, or tiny. */
static double share(uint64_t *state) {
    double any = (double)(draw(state) >> 11) * 0x1p-53;
    switch (below(state, 6)) {
    case 0: return any;
    case 1: return (double)below(state, 65) / 64;
    case 2: return (double)below(state, 1001) / 1000;
    case 3: return nextafter(1, 0);
    case 4: return ldexp(any, -below(state, 1000));
    default: return 1.0 / (1 + below(state, 1000));
    }
}

static double number(const fv_param_info *p, uint64_t *state) {
    double v = p->min + share(state) * (p->max - p->min);
    if (p->type != FV_PARAM_FLOAT) v = floor(v);
    return v < p->min ? p->min : v > p->max ? p->max : v + 0.0;
}

static void fill(fv_choice *c, uint64_t *state) {
    for (int32_t i = 0; i < c->method->n_param; i++) {
        const fv_param_info *p = &c->method->param[i];
        char *text = p->type == FV_PARAM_TEXT ? c->text[(int32_t)c->value[i]] : NULL;
        int32_t n = 1 + below(state, FV_PARAM_TEXT_MAX - 1);
        if (below(state, 4) == 0) continue; /* at its default */
        c->given[i] = true;
        if (text) {
            for (int32_t k = 0; k < n; k++) {
                text[k] = (char)('!' + below(state, '~' - '!' + 1));
                if (strchr(",;", text[k])) text[k] = '=';
            }
            text[n] = '\0';
        } else if (fv_param_is_layer(p->type) && below(state, 2)) {
            c->value[i] = fmax(p->min, below(state, 32)); /* of 32 */
            c->given[i] = false;
            c->early[i] = below(state, 2);
        } else {
            c->value[i] = number(p, state);
        }
    }
}

static void draw_policy(uint64_t *state, fv_policy *out) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    *out = (fv_policy){0};
    for (int32_t i = 0; i < n; i++) {
        fv_choice *c = &out->stage[m[i].stage];
        if (below(state, 8)) continue;
        fv_choice_init(c, &m[i]);
        fill(c, state);
    }
}

void random_policy(uint64_t *state, fv_policy *out) {
    int32_t n;
    const fv_conflict *conflicts = fv_conflicts(&n);
    do draw_policy(state, out);
    while (fv_conflicts_check(out, conflicts, n) != FV_OK);
}

bool same_policy(const fv_policy *a, const fv_policy *b) {
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_choice *x = &a->stage[s], *y = &b->stage[s];
        if (x->method != y->method) return false;
        for (int32_t i = 0; x->method && i < x->method->n_param; i++) {
            fv_param_type type = x->method->param[i].type;
            if (memcmp(&x->value[i], &y->value[i], sizeof x->value[i]) != 0) return false;
            if (fv_param_is_layer(type) &&
                (x->given[i] != y->given[i] || x->early[i] != y->early[i]))
                return false;
            if (type == FV_PARAM_TEXT &&
                strcmp(x->text[(int32_t)x->value[i]], y->text[(int32_t)y->value[i]]) != 0)
                return false;
        }
    }
    return true;
}

/* Values that 10 digits do not represent exactly. */
static int64_t long_values(const fv_policy *p) {
    int64_t n = 0;
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_choice *c = &p->stage[s];
        for (int32_t i = 0; c->method && i < c->method->n_param; i++) {
            char text[64];
            snprintf(text, sizeof text, "%.10g", c->value[i]);
            n += strtod(text, NULL) != c->value[i];
        }
    }
    return n;
}

int64_t check_policy_texts(uint64_t seed, int32_t n) {
    uint64_t state = seed;
    int64_t n_long = 0;
    for (int32_t i = 0; i < n; i++) {
        char text[FV_POLICY_TEXT_MAX];
        fv_policy p, again;
        random_policy(&state, &p);
        fv_policy_print(&p, text);
        n_long += long_values(&p);
        if (fv_policy_parse(text, &again) == FV_OK && same_policy(&p, &again)) continue;
        fprintf(stderr, "policy %d: not the same after print and parse: %s\n", i, text);
        abort();
    }
    return n_long;
}
