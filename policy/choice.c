/* Sets and reads the parameters of a method: defaults, overrides, and the typed values that the method
 * uses. Pure functions, for any thread. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "policy/policy.h"
#include "policy/words_internal.h"

void fv_choice_init(fv_choice *c, const fv_method_info *method) {
    int32_t n_text = 0;
    *c = (fv_choice){.method = method};
    for (int32_t i = 0; i < method->n_param; i++) {
        const fv_param_info *p = &method->param[i];
        c->value[i] = p->fallback;
        if (p->type != FV_PARAM_TEXT) continue;
        assert(n_text < FV_MAX_TEXTS);
        c->value[i] = n_text;
        snprintf(c->text[n_text++], FV_PARAM_TEXT_MAX, "%s", p->text);
    }
}

static fv_status set_value(fv_choice *c, int32_t i, double v) {
    const fv_param_info *p = &c->method->param[i];
    if (p->type != FV_PARAM_FLOAT && v != floor(v))
        return FV_FAIL(FV_EINVAL, "policy: %s.%s is a whole number, not %.17g", c->method->name,
                       p->name, v);
    if (!(v >= p->min && v <= p->max))
        return FV_FAIL(FV_EINVAL, "policy: %s.%s is %g; it must be %g..%g", c->method->name,
                       p->name, v, p->min, p->max);
    c->value[i] = v + 0.0; /* -0 becomes 0 */
    c->given[i] = true;
    c->early[i] = false;
    return FV_OK;
}

static fv_status set_number(fv_choice *c, int32_t i, word value) {
    const fv_param_info *p = &c->method->param[i];
    char text[64], *end;
    snprintf(text, sizeof text, "%.*s", (int)value.n, value.s);
    double v = strtod(text, &end);
    if (p->type == FV_PARAM_FLOAT && end > text && *end == '/') { /* 1/256 */
        const char *by = end + 1;
        v /= strtod(by, &end);
        if (end == by) end = text;
    }
    bool early = fv_param_is_layer(p->type) && end > text && strcmp(end, "/32+") == 0;
    bool of_32 = early || (fv_param_is_layer(p->type) && end > text && strcmp(end, "/32") == 0);
    if (value.n == 0 || value.n >= sizeof text || (*end && !of_32) || !isfinite(v))
        return FV_FAIL(FV_EINVAL, "policy: %s.%s: '%s' is not a number", c->method->name, p->name,
                       text);
    if (of_32 && v > 32)
        return FV_FAIL(FV_EINVAL,
                       "policy: %s.%s is %s; a layer of 32 is at most 32/32, and one of the "
                       "checkpoint's own is written without /32",
                       c->method->name, p->name, text);
    FV_TRY(set_value(c, i, v));
    c->given[i] = !of_32;
    c->early[i] = early;
    return FV_OK;
}

static fv_status set_word(fv_choice *c, int32_t i, word value) {
    const fv_param_info *p = &c->method->param[i];
    names l;
    names_init(&l, value);
    for (int32_t w = 0; p->word[w]; w++) {
        if (word_is(value, p->word[w])) {
            c->value[i] = w;
            return FV_OK;
        }
        names_add(&l, p->word[w]);
    }
    return FV_FAIL(FV_EINVAL, "policy: %s.%s: unknown value '%.*s'; use one of %s%s",
                   c->method->name, p->name, (int)value.n, value.s, l.all, names_hint(&l));
}

static fv_status set_text(fv_choice *c, int32_t i, word value) {
    const fv_param_info *p = &c->method->param[i];
    bool good = value.n > 0 && value.n < FV_PARAM_TEXT_MAX;
    for (size_t k = 0; k < value.n; k++)
        good &= value.s[k] > ' ' && value.s[k] <= '~' && value.s[k] != ',' && value.s[k] != ';';
    if (!good)
        return FV_FAIL(FV_EINVAL,
                       "policy: %s.%s must be 1..%d printable characters without ' ', ',' and ';'",
                       c->method->name, p->name, FV_PARAM_TEXT_MAX - 1);
    char *text = c->text[(int32_t)c->value[i]];
    memcpy(text, value.s, value.n);
    text[value.n] = '\0';
    return FV_OK;
}

static fv_status set_param(fv_choice *c, int32_t i, word value) {
    c->given[i] = true;
    switch (c->method->param[i].type) {
    case FV_PARAM_CHOICE: return set_word(c, i, value);
    case FV_PARAM_TEXT: return set_text(c, i, value);
    default: return set_number(c, i, value);
    }
}

static fv_status find_param(const fv_choice *c, word key, int32_t *out) {
    const fv_method_info *m = c->method;
    names l;
    names_init(&l, key);
    for (int32_t i = 0; i < m->n_param; i++) {
        *out = i;
        if (word_is(key, m->param[i].name)) return FV_OK;
        names_add(&l, m->param[i].name);
    }
    return FV_FAIL(FV_EINVAL, "policy: %s=%s has no parameter '%.*s'; it has %s%s",
                   fv_stage_name(m->stage), m->name, (int)key.n, key.s, l.all[0] ? l.all : "none",
                   names_hint(&l));
}

fv_status fv_choice_set(fv_choice *c, const char *text, size_t n) {
    const fv_method_info *m = c->method;
    word item = {text, n}, key, value;
    int32_t i = 0;
    if (!split(item, '=', &key, &value))
        return FV_FAIL(FV_EINVAL, "policy: '%.*s' in %s=%s: write PARAMETER=VALUE", (int)item.n,
                       item.s, fv_stage_name(m->stage), m->name);
    FV_TRY(find_param(c, key, &i));
    return set_param(c, i, value);
}

fv_status fv_choice_set_text(fv_choice *c, const char *param, const char *value) {
    int32_t i = 0;
    FV_TRY(find_param(c, word_of(param), &i));
    return set_param(c, i, word_of(value));
}

fv_status fv_choice_set_number(fv_choice *c, const char *param, double value) {
    int32_t i = 0;
    FV_TRY(find_param(c, word_of(param), &i));
    fv_param_type type = c->method->param[i].type;
    if (type != FV_PARAM_CHOICE && type != FV_PARAM_TEXT) return set_value(c, i, value);
    char text[32]; /* a word or a text that is a number */
    snprintf(text, sizeof text, "%.17g", value);
    return set_param(c, i, word_of(text));
}

bool fv_choice_is_written(const fv_choice *c, int32_t i) {
    const fv_param_info *p = &c->method->param[i];
    return !p->quiet || c->value[i] != p->fallback;
}

/* Prints at least 10 digits (with fewer, %g writes 10 as 1e+01), and as many as read back as the
 * same number: another worker parses this text, and both must count the same rows. The program sets
 * no locale, so the decimal separator is a point. */
static void print_number(double v, const char *unit, char out[FV_PARAM_TEXT_MAX]) {
    for (int digits = 10; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(out, FV_PARAM_TEXT_MAX, "%.*g", digits, v);
        if (strtod(out, NULL) == v) break;
    }
    size_t n = strlen(out);
    snprintf(out + n, FV_PARAM_TEXT_MAX - n, "%s", unit);
}

void fv_choice_print(const fv_choice *c, int32_t i, char out[FV_PARAM_TEXT_MAX]) {
    const fv_param_info *p = &c->method->param[i];
    const char *of_32 = !fv_param_is_layer(p->type) || c->given[i] ? ""
                        : c->early[i]                              ? "/32+"
                                                                   : "/32";
    switch (p->type) {
    case FV_PARAM_CHOICE:
        snprintf(out, FV_PARAM_TEXT_MAX, "%s", p->word[(int32_t)c->value[i]]);
        break;
    case FV_PARAM_TEXT:
        snprintf(out, FV_PARAM_TEXT_MAX, "%s", c->text[(int32_t)c->value[i]]);
        break;
    default: print_number(c->value[i], of_32, out);
    }
}

int32_t fv_layer_of_32(double layer, int32_t n_layer) {
    return (int32_t)floor(layer * n_layer / 32 + 0.5);
}

static int32_t more(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t less(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t layer_of(const fv_choice *c, int32_t i, int32_t n_layer, bool early) {
    const fv_param_info *p = &c->method->param[i];
    int32_t own = (int32_t)c->value[i], mapped = fv_layer_of_32(c->value[i], n_layer);
    if (c->given[i]) return own;
    if (p->type == FV_PARAM_LAYER && own < 32) mapped = less(mapped, n_layer - 1);
    mapped = more(mapped, (int32_t)p->min);
    return early ? more(mapped, less(own, n_layer / 4)) : mapped;
}

int32_t fv_choice_layer(const fv_choice *c, int32_t i, int32_t n_layer) {
    return layer_of(c, i, n_layer, c->early[i]);
}

void fv_choice_params(const fv_choice *c, int32_t n_layer, fv_params *out) {
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < c->method->n_param; i++) {
        const fv_param_info *p = &c->method->param[i];
        char *field = (char *)out + p->offset;
        switch (p->type) {
        case FV_PARAM_INT: *(int32_t *)(void *)field = (int32_t)c->value[i]; break;
        case FV_PARAM_SEED: *(uint32_t *)(void *)field = (uint32_t)c->value[i]; break;
        case FV_PARAM_FLOAT: *(double *)(void *)field = c->value[i]; break;
        case FV_PARAM_LAYER:
        case FV_PARAM_LAYERS: *(int32_t *)(void *)field = fv_choice_layer(c, i, n_layer); break;
        case FV_PARAM_CHOICE: ((bool *)(void *)field)[(int32_t)c->value[i]] = true; break;
        case FV_PARAM_TEXT: strcpy(field, c->text[(int32_t)c->value[i]]); break;
        }
    }
}

fv_layer_mapping fv_choice_layer_mapping(const fv_choice *c, int32_t i, int32_t n_layer) {
    int32_t layer = layer_of(c, i, n_layer, c->early[i]);
    if (c->given[i]) return FV_LAYER_GIVEN;
    if (layer == (int32_t)c->value[i]) return FV_LAYER_PUBLISHED;
    return layer == layer_of(c, i, n_layer, false) ? FV_LAYER_PROPORTION : FV_LAYER_QUARTER;
}

const char *fv_layer_mapping_name(fv_layer_mapping m) {
    static const char *const words[] = {"given", "published", "proportion", "quarter"};
    return words[m];
}
