/* Options from a table: the command line, the environment, defaults. Used at start, by one thread; the only
 * place that reads the environment. */
#include "common/options.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/suggest.h"

typedef struct option_value {
    const char **items; /* [n]; for single-valued options the last one is used */
    int n;
    bool given, typed;
    char derived[24]; /* a default that follows from another option */
    char *set;        /* owned; the value of fv_options_set */
} option_value;

struct fv_options {
    fv_option *table; /* [n], a copy */
    int n;
    option_value *values; /* [n] */
    const char **positional;
    int n_positional;
    bool help, help_all;
};

static int find_row(const fv_option *table, int n, const char *name, size_t len) {
    for (int i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0) return i;
    return -1;
}

static fv_status unknown_option(const fv_option *table, int n, const char *name, size_t len) {
    fv_suggestion near = fv_suggest_for(name, len);
    for (int i = 0; i < n; i++) fv_suggest_try(&near, table[i].name);
    if (near.best)
        return FV_FAIL(FV_EINVAL, "unknown option --%.*s; did you mean --%s?", (int)len, name,
                       near.best);
    return FV_FAIL(FV_EINVAL, "unknown option --%.*s; --help-all lists them", (int)len, name);
}

static bool parse_flag(const char *text, bool *out) {
    static const char *const yes[] = {"1", "true", "yes"}, *const no[] = {"0", "false", "no"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, yes[i]) == 0) return *out = true, true;
        if (strcmp(text, no[i]) == 0) return *out = false, true;
    }
    return false;
}

static fv_status check_value(const fv_option *row, const char *text, const char *origin) {
    char *end = NULL;
    errno = 0;
    if (row->type == FV_OPTION_INT) {
        long long v = strtoll(text, &end, 10);
        if (end == text || *end || errno)
            return FV_FAIL(FV_EINVAL, "%s%s: '%s' is not a whole number", origin, row->name, text);
        if ((row->min != 0 || row->max != 0) && ((double)v < row->min || (double)v > row->max))
            return FV_FAIL(FV_EINVAL, "%s%s: %lld is out of range; it must be %.0f..%.0f", origin,
                           row->name, v, row->min, row->max);
    } else if (row->type == FV_OPTION_FLOAT) {
        double v = strtod(text, &end);
        if (end == text || *end || errno || v != v)
            return FV_FAIL(FV_EINVAL, "%s%s: '%s' is not a number", origin, row->name, text);
        if ((row->min != 0 || row->max != 0) && (v < row->min || v > row->max))
            return FV_FAIL(FV_EINVAL, "%s%s: %g is out of range; it must be %g..%g", origin,
                           row->name, v, row->min, row->max);
    } else if (row->type == FV_OPTION_FLAG) {
        bool b;
        if (!parse_flag(text, &b))
            return FV_FAIL(FV_EINVAL, "%s%s: '%s' is neither yes nor no", origin, row->name, text);
    }
    return FV_OK;
}

static fv_status append(const char ***items, int *n, const char *text) {
    const char **grown = realloc(*items, (size_t)(*n + 1) * sizeof *grown);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for options");
    grown[(*n)++] = text;
    *items = grown;
    return FV_OK;
}

static fv_status set_value(fv_options *o, int row, const char *text, const char *origin) {
    option_value *v = &o->values[row];
    for (int i = row; i < o->n; i++)
        if (strcmp(o->table[i].name, o->table[row].name) == 0)
            FV_TRY(check_value(&o->table[i], text, origin));
    v->given = true;
    return append(&v->items, &v->n, text);
}

static fv_status parse_line(fv_options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--") == 0) {
            while (++i < argc) FV_TRY(append(&o->positional, &o->n_positional, argv[i]));
            break;
        }
        if (strncmp(arg, "--", 2) != 0) {
            if (strcmp(arg, "-h") == 0)
                o->help = true;
            else if (arg[0] == '-' && arg[1])
                return FV_FAIL(FV_EINVAL, "unknown option %s; options are written --name", arg);
            else
                FV_TRY(append(&o->positional, &o->n_positional, arg));
            continue;
        }
        const char *name = arg + 2;
        size_t len = strcspn(name, "=");
        if (strcmp(name, "help") == 0 || strcmp(name, "help-all") == 0) {
            o->help = true;
            o->help_all |= name[len - 1] == 'l';
            continue;
        }
        int row = find_row(o->table, o->n, name, len);
        if (row < 0) return unknown_option(o->table, o->n, name, len);
        const char *value = name[len] == '=' ? name + len + 1 : NULL;
        if (!value && o->table[row].type == FV_OPTION_FLAG) value = "1";
        if (!value && ++i >= argc)
            return FV_FAIL(FV_EINVAL, "--%s needs a value (%s)", o->table[row].name,
                           o->table[row].value);
        FV_TRY(set_value(o, row, value ? value : argv[i], "--"));
        o->values[row].typed = true;
    }
    return FV_OK;
}

/* An option's value from the environment, if there is one. */
static fv_status read_variable(fv_options *o, int i) {
    const char *env = o->table[i].env ? getenv(o->table[i].env) : NULL;
    if (!env || !*env) return FV_OK;
    fv_status st = set_value(o, i, env, "");
    return st == FV_OK ? st : fv_fail_prefix(st, "environment variable %s", o->table[i].env);
}

/* The default as text; one that follows from another option is computed from its value. */
static const char *default_of(fv_options *o, int i) {
    char base[64];
    int divisor, row;
    long long min, max;
    const char *text = o->table[i].fallback;
    if (!text || o->table[i].type != FV_OPTION_INT ||
        sscanf(text, "--%63[a-z-] / %d, within %lld..%lld", base, &divisor, &min, &max) != 4)
        return text;
    row = find_row(o->table, o->n, base, strlen(base));
    assert(row >= 0);
    long long v = fv_options_int(o, base) / divisor;
    v = v < min ? min : v > max ? max : v;
    snprintf(o->values[i].derived, sizeof o->values[i].derived, "%lld", v);
    return o->values[i].derived;
}

/* Options that others follow from have plain defaults, so these come first. */
static fv_status set_defaults(fv_options *o, bool derived) {
    for (int i = 0; i < o->n; i++) {
        const char *text = o->table[i].fallback;
        if (o->values[i].n || !text || (strncmp(text, "--", 2) == 0) != derived) continue;
        FV_TRY(append(&o->values[i].items, &o->values[i].n, default_of(o, i)));
    }
    return FV_OK;
}

fv_status fv_options_parse(const fv_option *table, int n, int argc, char **argv, fv_options **out) {
    fv_status st = FV_OK;
    fv_options *o = calloc(1, sizeof *o);
    if (!o || !(o->values = calloc((size_t)n + 1, sizeof *o->values)) ||
        !(o->table = malloc(((size_t)n + 1) * sizeof *table))) {
        fv_options_free(o);
        return FV_FAIL(FV_ENOMEM, "out of memory for options");
    }
    if (n) memcpy(o->table, table, (size_t)n * sizeof *table);
    o->n = n;
    FV_TRY_GOTO(parse_line(o, argc, argv), st, fail);
    for (int i = 0; i < n; i++)
        if (!o->values[i].given) FV_TRY_GOTO(read_variable(o, i), st, fail);
    FV_TRY_GOTO(set_defaults(o, false), st, fail);
    FV_TRY_GOTO(set_defaults(o, true), st, fail);
    *out = o;
    return FV_OK;
fail:
    fv_options_free(o);
    return st;
}

void fv_options_free(fv_options *o) {
    if (!o) return;
    for (int i = 0; i < o->n; i++) {
        free(o->values[i].items);
        free(o->values[i].set);
    }
    free(o->values);
    free(o->table);
    free(o->positional);
    free(o);
}

bool fv_options_help_wanted(const fv_options *o) { return o->help; }

bool fv_options_help_all_wanted(const fv_options *o) { return o->help_all; }

static const option_value *value_of(const fv_options *o, const char *name) {
    int row = find_row(o->table, o->n, name, strlen(name));
    assert(row >= 0);
    return &o->values[row];
}

const char *fv_options_string(const fv_options *o, const char *name) {
    const option_value *v = value_of(o, name);
    return v->n ? v->items[v->n - 1] : NULL;
}

bool fv_options_given(const fv_options *o, const char *name) { return value_of(o, name)->given; }

bool fv_options_typed(const fv_options *o, const char *name) { return value_of(o, name)->typed; }

bool fv_options_flag(const fv_options *o, const char *name) {
    const char *text = fv_options_string(o, name);
    bool b = false;
    return text && parse_flag(text, &b) && b;
}

int64_t fv_options_int(const fv_options *o, const char *name) {
    const char *text = fv_options_string(o, name);
    return text ? strtoll(text, NULL, 10) : 0;
}

double fv_options_float(const fv_options *o, const char *name) {
    const char *text = fv_options_string(o, name);
    return text ? strtod(text, NULL) : 0;
}

int fv_options_list(const fv_options *o, const char *name, const char *const **items) {
    const option_value *v = value_of(o, name);
    *items = v->items;
    return v->n;
}

static void wipe(const char *text) { memset((char *)(uintptr_t)text, '*', strlen(text)); }

void fv_options_wipe(const fv_options *o, const char *name) {
    const option_value *v = value_of(o, name);
    const fv_option *row = &o->table[v - o->values];
    const char *env = row->env ? getenv(row->env) : NULL;
    for (int i = 0; i < v->n; i++) wipe(v->items[i]);
    if (!env) return;
    wipe(env);
    unsetenv(row->env);
}

fv_status fv_options_set(fv_options *o, const char *name, const char *value) {
    int row = find_row(o->table, o->n, name, strlen(name));
    assert(row >= 0 && o->table[row].type == FV_OPTION_STRING);
    option_value *v = &o->values[row];
    char *copy = strdup(value);
    if (!copy) return FV_FAIL(FV_ENOMEM, "out of memory for options");
    fv_status st = append(&v->items, &v->n, copy);
    if (st != FV_OK) {
        free(copy);
        return st;
    }
    free(v->set);
    v->set = copy;
    v->given = v->typed = true;
    return FV_OK;
}

int fv_options_positional(const fv_options *o, const char *const **items) {
    *items = o->positional;
    return o->n_positional;
}
