/* Parses one GGUF file in memory (usually mapped). No shared state. */
#include "gguf/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"

typedef struct value {
    fv_gguf_string key;
    uint32_t kind, of; /* of: the kind of an array's elements */
    uint64_t n;        /* elements of an array; otherwise 1 */
    const uint8_t *at; /* the value, or an array's first element */
} value;

struct fv_gguf {
    fv_arena arena;
    const char *where;
    value *value; /* [n_value] */
    fv_gguf_tensor *tensor;
    size_t n_value, n_tensor;
};

/* The bytes left to parse. */
typedef struct cursor {
    const uint8_t *at, *end;
    const char *where;
} cursor;

static fv_status fail_short(const cursor *c, const char *what) {
    return FV_FAIL(FV_EDATA, "%s ends inside %s; is the download complete?", c->where, what);
}

static uint64_t left(const cursor *c) { return (uint64_t)(c->end - c->at); }

static uint64_t little(const uint8_t *p, int n) {
    uint64_t x = 0;
    while (n-- > 0) x = x << 8 | p[n];
    return x;
}

static fv_status take(cursor *c, int n, const char *what, uint64_t *out) {
    if (left(c) < (uint64_t)n) return fail_short(c, what);
    *out = little(c->at, n);
    c->at += n;
    return FV_OK;
}

static fv_status take_string(cursor *c, const char *what, fv_gguf_string *out) {
    uint64_t n = 0;
    FV_TRY(take(c, 8, what, &n));
    if (n > left(c)) return fail_short(c, what);
    *out = (fv_gguf_string){(const char *)c->at, (size_t)n};
    c->at += n;
    return FV_OK;
}

/* ---- metadata -------------------------------------------------------------------------- */

/* Bytes of a kind of fixed size; 0 for other kinds. */
static int size_of(uint32_t kind) {
    static const int bytes[FV_GGUF_N_KIND] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < FV_GGUF_N_KIND ? bytes[kind] : 0;
}

static fv_status skip_strings(cursor *c, uint64_t n) {
    fv_gguf_string s;
    for (; n > 0; n--) FV_TRY(take_string(c, "a list of its metadata", &s));
    return FV_OK;
}

static fv_status take_value(cursor *c, value *v) {
    uint64_t x = 0;
    FV_TRY(take_string(c, "its metadata", &v->key));
    FV_TRY(take(c, 4, "its metadata", &x));
    v->kind = v->of = (uint32_t)x;
    v->n = 1;
    if (v->kind == FV_GGUF_ARRAY) {
        FV_TRY(take(c, 4, "its metadata", &x));
        FV_TRY(take(c, 8, "its metadata", &v->n));
        v->of = (uint32_t)x;
    }
    v->at = c->at;
    if (v->of == FV_GGUF_STRING) return skip_strings(c, v->n);
    int bytes = size_of(v->of);
    if (bytes == 0)
        return FV_FAIL(FV_EDATA, "%s: key '%.*s' has a value of kind %u, which is not known",
                       c->where, (int)(v->key.n < 80 ? v->key.n : 80), v->key.s, v->of);
    if (v->n > left(c) / (uint64_t)bytes) return fail_short(c, "its metadata");
    c->at += v->n * (uint64_t)bytes;
    return FV_OK;
}

static const value *find(const fv_gguf *g, const char *key) {
    size_t n = strlen(key);
    for (size_t i = 0; i < g->n_value; i++)
        if (g->value[i].key.n == n && memcmp(g->value[i].key.s, key, n) == 0) return &g->value[i];
    return NULL;
}

static fv_status fail_kind(const fv_gguf *g, const char *key, const char *wanted) {
    return FV_FAIL(FV_EDATA, "%s: key '%s' must be %s", g->where, key, wanted);
}

static double number_at(uint32_t kind, const uint8_t *p) {
    uint64_t u = little(p, size_of(kind));
    uint32_t narrow = (uint32_t)u;
    float f;
    double d;
    switch (kind) {
    case FV_GGUF_I8: return (int8_t)u;
    case FV_GGUF_I16: return (int16_t)u;
    case FV_GGUF_I32: return (int32_t)u;
    case FV_GGUF_I64: return (double)(int64_t)u;
    case FV_GGUF_F32: memcpy(&f, &narrow, sizeof f); return (double)f;
    case FV_GGUF_F64: memcpy(&d, &u, sizeof d); return d;
    default: return (double)u;
    }
}

static bool is_number(uint32_t kind) { return size_of(kind) > 0 && kind != FV_GGUF_BOOL; }

bool fv_gguf_has(const fv_gguf *g, const char *key) { return find(g, key) != NULL; }

fv_status fv_gguf_number(const fv_gguf *g, const char *key, double *out) {
    const value *v = find(g, key);
    if (!v) return FV_OK;
    if (!is_number(v->kind)) return fail_kind(g, key, "a number");
    double x = number_at(v->kind, v->at);
    if (!isfinite(x)) return fail_kind(g, key, "a finite number");
    *out = x;
    return FV_OK;
}

fv_status fv_gguf_integer(const fv_gguf *g, const char *key, int64_t *out) {
    double x = (double)*out;
    FV_TRY(fv_gguf_number(g, key, &x));
    if (!(x >= -0x1p53 && x <= 0x1p53) || x != (double)(int64_t)x)
        return fail_kind(g, key, "an integer");
    *out = (int64_t)x;
    return FV_OK;
}

fv_status fv_gguf_bool(const fv_gguf *g, const char *key, bool *out) {
    const value *v = find(g, key);
    if (!v) return FV_OK;
    if (v->kind != FV_GGUF_BOOL) return fail_kind(g, key, "true or false");
    *out = *v->at != 0;
    return FV_OK;
}

fv_status fv_gguf_text(const fv_gguf *g, const char *key, fv_gguf_string *out) {
    const value *v = find(g, key);
    if (!v) return FV_OK;
    if (v->kind != FV_GGUF_STRING) return fail_kind(g, key, "a text");
    *out = (fv_gguf_string){(const char *)v->at + 8, (size_t)little(v->at, 8)};
    return FV_OK;
}

static fv_status find_list(const fv_gguf *g, const char *key, bool fits, size_t size, void **out,
                           size_t *n) {
    const value *v = find(g, key);
    if (!fits)
        return fail_kind(g, key, size == sizeof(double) ? "a list of numbers" : "a list of texts");
    void *list = calloc(v->n ? (size_t)v->n : 1, size);
    if (!list) return FV_FAIL(FV_ENOMEM, "%s: out of memory for the list '%s'", g->where, key);
    *out = list;
    *n = (size_t)v->n;
    return FV_OK;
}

fv_status fv_gguf_strings(const fv_gguf *g, const char *key, fv_gguf_string **out, size_t *n) {
    const value *v = find(g, key);
    if (!v) return FV_OK;
    fv_gguf_string *list = NULL;
    FV_TRY(find_list(g, key, v->kind == FV_GGUF_ARRAY && v->of == FV_GGUF_STRING, sizeof *list,
                     (void **)&list, n));
    const uint8_t *p = v->at;
    for (size_t i = 0; i < *n; i++, p += 8 + list[i - 1].n)
        list[i] = (fv_gguf_string){(const char *)p + 8, (size_t)little(p, 8)};
    *out = list;
    return FV_OK;
}

fv_status fv_gguf_numbers(const fv_gguf *g, const char *key, double **out, size_t *n) {
    const value *v = find(g, key);
    if (!v) return FV_OK;
    double *list = NULL;
    FV_TRY(find_list(g, key, v->kind == FV_GGUF_ARRAY && size_of(v->of) > 0, sizeof *list,
                     (void **)&list, n));
    for (size_t i = 0; i < *n; i++) list[i] = number_at(v->of, v->at + i * (size_t)size_of(v->of));
    *out = list;
    return FV_OK;
}

/* ---- tensors --------------------------------------------------------------------------- */

/* Types of tensors, indexed by their number in a file. Types with size 0 are not read, only named in errors. */
static const struct {
    const char *name;
    uint64_t n, bytes; /* numbers of a block, its bytes */
} types[] = {
    {"F32", 1, 4},      {"F16", 1, 2},       {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
    {"4", 0, 0},        {"5", 0, 0},         {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},   {"Q8_1", 0, 0},      {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176},  {"Q6_K", 256, 210},   {"Q8_K", 0, 0},
    {"IQ2_XXS", 0, 0},  {"IQ2_XS", 0, 0},    {"IQ3_XXS", 256, 98}, {"IQ1_S", 0, 0},
    {"IQ4_NL", 32, 18}, {"IQ3_S", 256, 110}, {"IQ2_S", 0, 0},      {"IQ4_XS", 256, 136},
    {"I8", 1, 1},       {"I16", 1, 2},       {"I32", 1, 4},        {"I64", 1, 8},
    {"F64", 1, 8},      {"IQ1_M", 0, 0},     {"BF16", 1, 2},       {"31", 0, 0},
    {"32", 0, 0},       {"33", 0, 0},        {"TQ1_0", 0, 0},      {"TQ2_0", 0, 0},
    {"36", 0, 0},       {"37", 0, 0},        {"38", 0, 0},         {"MXFP4", 32, 17},
};
enum { N_TYPE = sizeof types / sizeof *types };

static fv_status take_shape(cursor *c, fv_gguf_tensor *t, uint64_t *n_element) {
    uint64_t n_dim = 0, size = 0;
    FV_TRY(take(c, 4, "its table of tensors", &n_dim));
    if (n_dim < 1 || n_dim > FV_GGUF_DIMS)
        return FV_FAIL(FV_EDATA, "%s: tensor '%s' has %u dimensions; 1 to %d are possible",
                       c->where, t->name, (unsigned)n_dim, FV_GGUF_DIMS);
    t->n_dim = (int32_t)n_dim;
    *n_element = 1;
    for (uint64_t i = n_dim; i-- > 0;) {
        FV_TRY(take(c, 8, "its table of tensors", &size));
        if (size < 1 || size > INT32_MAX || __builtin_mul_overflow(*n_element, size, n_element))
            return FV_FAIL(FV_EDATA, "%s: tensor '%s' has a size of 0, or too large a size",
                           c->where, t->name);
        t->shape[i] = (int64_t)size;
    }
    return FV_OK;
}

static fv_status take_type(cursor *c, uint64_t n_element, fv_gguf_tensor *t) {
    uint64_t type = 0;
    char number[24];
    FV_TRY(take(c, 4, "its table of tensors", &type));
    if (type >= N_TYPE || types[type].n == 0) {
        snprintf(number, sizeof number, "number %u", (unsigned)type);
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: tensor '%s' is of type %s; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
            "Q5_1, Q2_K to Q6_K, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS and MXFP4 are read: take "
            "the model's file of another type, such as Q4_K_M or Q8_0",
            c->where, t->name, type < N_TYPE ? types[type].name : number);
    }
    uint64_t row = (uint64_t)t->shape[t->n_dim - 1];
    t->type = types[type].name;
    if (row % types[type].n ||
        __builtin_mul_overflow(n_element / types[type].n, types[type].bytes, &t->bytes))
        return FV_FAIL(FV_EDATA,
                       "%s: tensor '%s' is of type %s, and its rows of %llu are not whole blocks",
                       c->where, t->name, t->type, (unsigned long long)row);
    return FV_OK;
}

/* Parses an entry of the table of tensors; *offset: of its data. */
static fv_status take_tensor(fv_gguf *g, cursor *c, fv_gguf_tensor *t, uint64_t *offset) {
    fv_gguf_string name = {NULL, 0};
    uint64_t n_element = 0;
    char *copy;
    FV_TRY(take_string(c, "its table of tensors", &name));
    if (name.n == 0 || name.n >= FV_GGUF_NAME_MAX || memchr(name.s, 0, name.n))
        return FV_FAIL(FV_EDATA,
                       "%s: a tensor's name has %zu bytes, or a NUL; it must have 1 to %d",
                       c->where, name.n, FV_GGUF_NAME_MAX - 1);
    FV_TRY(fv_arena_strndup(&g->arena, name.s, name.n, &copy));
    t->name = copy;
    FV_TRY(take_shape(c, t, &n_element));
    FV_TRY(take_type(c, n_element, t));
    return take(c, 8, "its table of tensors", offset);
}

static fv_status place(const fv_gguf *g, const cursor *c, uint64_t offset, uint64_t alignment,
                       fv_gguf_tensor *t) {
    if (offset % alignment)
        return FV_FAIL(FV_EDATA, "%s: tensor '%s' lies at %llu, which is not a multiple of %llu",
                       g->where, t->name, (unsigned long long)offset,
                       (unsigned long long)alignment);
    if (offset > left(c) || t->bytes > left(c) - offset)
        return FV_FAIL(FV_EDATA, "%s: tensor '%s' ends after the file; is the download complete?",
                       g->where, t->name);
    t->data = c->at + offset;
    return FV_OK;
}

/* ---- the file -------------------------------------------------------------------------- */

static fv_status take_head(cursor *c, uint64_t *n_tensor, uint64_t *n_value) {
    uint64_t version = 0;
    if (left(c) < 4 || memcmp(c->at, "GGUF", 4) != 0)
        return FV_FAIL(FV_EDATA, "%s does not begin with \"GGUF\": it is no GGUF file", c->where);
    c->at += 4;
    FV_TRY(take(c, 4, "its head", &version));
    if (version != 2 && version != 3)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s is %s; version 2 and 3 of the format are read, little-endian: make the "
                       "file again with llama.cpp's convert_hf_to_gguf.py",
                       c->where,
                       version == 1       ? "of version 1"
                       : version & 0xffff ? "of a later version"
                                          : "big-endian");
    FV_TRY(take(c, 8, "its head", n_tensor));
    FV_TRY(take(c, 8, "its head", n_value));
    /* Bounds allocations by the file's size: a key takes at least 13 bytes, a tensor 32. */
    if (*n_value > left(c) / 13 || *n_tensor > left(c) / 32 || *n_tensor > INT32_MAX)
        return fail_short(c, "its head");
    return FV_OK;
}

static fv_status parse(fv_gguf *g, cursor *c) {
    const uint8_t *begin = c->at;
    uint64_t n_tensor = 0, n_value = 0, *offset;
    int64_t alignment = 32;
    FV_TRY(take_head(c, &n_tensor, &n_value));
    FV_TRY(FV_ARENA_NEW(&g->arena, n_value, g->value));
    FV_TRY(FV_ARENA_NEW(&g->arena, n_tensor, g->tensor));
    FV_TRY(FV_ARENA_NEW(&g->arena, n_tensor, offset));
    for (; g->n_value < n_value; g->n_value++) FV_TRY(take_value(c, &g->value[g->n_value]));
    for (; g->n_tensor < n_tensor; g->n_tensor++)
        FV_TRY(take_tensor(g, c, &g->tensor[g->n_tensor], &offset[g->n_tensor]));
    FV_TRY(fv_gguf_integer(g, "general.alignment", &alignment));
    if (alignment < 8 || alignment % 8 || alignment > 1 << 20)
        return fail_kind(g, "general.alignment", "a multiple of 8, up to 1 MiB");
    uint64_t pad = (uint64_t)alignment - 1 -
                   ((uint64_t)(c->at - begin) + (uint64_t)alignment - 1) % (uint64_t)alignment;
    c->at += pad < left(c) ? pad : left(c);
    for (size_t i = 0; i < n_tensor; i++)
        FV_TRY(place(g, c, offset[i], (uint64_t)alignment, &g->tensor[i]));
    return FV_OK;
}

fv_status fv_gguf_parse(const void *bytes, size_t n, const char *where, fv_gguf **out) {
    fv_gguf *g = calloc(1, sizeof *g);
    char *copy;
    if (!g) return FV_FAIL(FV_ENOMEM, "%s: out of memory", where);
    fv_status st = fv_arena_strndup(&g->arena, where, strlen(where), &copy);
    if (st == FV_OK) {
        g->where = copy;
        st = parse(g, &(cursor){bytes, (const uint8_t *)bytes + n, copy});
    }
    if (st == FV_OK)
        *out = g;
    else
        fv_gguf_free(g);
    return st;
}

void fv_gguf_free(fv_gguf *g) {
    if (!g) return;
    fv_arena_fini(&g->arena);
    free(g);
}

const char *fv_gguf_where(const fv_gguf *g) { return g->where; }
int32_t fv_gguf_tensors(const fv_gguf *g) { return (int32_t)g->n_tensor; }
const fv_gguf_tensor *fv_gguf_at(const fv_gguf *g, int32_t i) { return &g->tensor[i]; }

const fv_gguf_tensor *fv_gguf_find(const fv_gguf *g, const char *name) {
    for (size_t i = 0; i < g->n_tensor; i++)
        if (strcmp(g->tensor[i].name, name) == 0) return &g->tensor[i];
    return NULL;
}
