/* Parses one safetensors file in memory (usually mapped).
 *
 * The bytes are untrusted. Each tensor becomes one entry: name and shape come from the JSON header, which
 * is read member by member in linear time; data are borrowed from the bytes. Any thread may call this.
 *
 * The checks are those of the reference reader: the header must be valid,
 * each tensor's range must be exactly prod(shape) x dtype, and the ranges, sorted, must cover
 * the data from the first byte to the last. Every byte then belongs to exactly one tensor,
 * and a truncated file is found here and not by a fault while it is read. */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/grow.h"
#include "text/json_members.h"

enum { HEADER_LENGTH_BYTES = 8, HEADER_MAX = 100000000 }; /* bound of the reference reader */

struct fv_safetensors {
    fv_arena names;
    int32_t n;
    size_t cap;
    fv_safetensors_entry *entry;   /* [n], in the order of the file */
    fv_safetensors_entry **sorted; /* [n], by name */
};

typedef struct dtype_size {
    const char *name;
    int32_t bits;
} dtype_size;

static const dtype_size dtypes[] = {
    {"F32", 32},    {"BF16", 16},       {"F16", 16},        {"F64", 64},    {"I64", 64},
    {"I32", 32},    {"I16", 16},        {"I8", 8},          {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},          {"BOOL", 8},        {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F4", 4},      {"C64", 64},
};

static int32_t dtype_bits(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtypes[i].name, name)) return dtypes[i].bits;
    return 0;
}

/* Reads "data_offsets": [begin, end], counted from the end of the header. */
static fv_status read_offsets(const json_t *spec, size_t data_bytes, const char *where,
                              const char *name, size_t *begin, size_t *end) {
    const json_t *pair = json_object_get(spec, "data_offsets");
    if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)) ||
        !json_is_integer(json_array_get(pair, 1)))
        return FV_FAIL(FV_EDATA, "%s: tensor '%s': data_offsets must be two integers", where, name);
    json_int_t b = json_integer_value(json_array_get(pair, 0));
    json_int_t e = json_integer_value(json_array_get(pair, 1));
    if (b < 0 || e < b || (uint64_t)e > data_bytes)
        return FV_FAIL(FV_EDATA,
                       "%s: tensor '%s': data_offsets [%lld, %lld] exceed the file's %zu bytes of "
                       "data; is the file truncated?",
                       where, name, (long long)b, (long long)e, data_bytes);
    *begin = (size_t)b;
    *end = (size_t)e;
    return FV_OK;
}

static fv_status read_shape(const json_t *spec, const char *where, fv_safetensors_entry *e,
                            uint64_t *n_element) {
    const json_t *shape = json_object_get(spec, "shape");
    size_t n_dim = json_array_size(shape); /* 0 if it is no array */
    if (!json_is_array(shape) || n_dim > FV_SAFETENSORS_MAX_DIMS)
        return FV_FAIL(FV_EDATA, "%s: tensor '%s': shape must be a list of at most %d numbers",
                       where, e->name, FV_SAFETENSORS_MAX_DIMS);
    uint64_t product = 1;
    for (size_t i = 0; i < n_dim; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            __builtin_mul_overflow(product, (uint64_t)json_integer_value(v), &product))
            return FV_FAIL(FV_EDATA, "%s: tensor '%s': shape holds a size that cannot be", where,
                           e->name);
        e->shape[i] = json_integer_value(v);
    }
    e->n_dim = (int32_t)n_dim;
    *n_element = product;
    return FV_OK;
}

static fv_status read_entry(const char *name, const json_t *spec, const unsigned char *data,
                            size_t data_bytes, const char *where, fv_safetensors_entry *e) {
    *e = (fv_safetensors_entry){.name = name};
    const char *dtype = json_string_value(json_object_get(spec, "dtype"));
    if (!dtype || strlen(dtype) >= sizeof e->dtype)
        return FV_FAIL(FV_EDATA, "%s: tensor '%s' has no valid dtype", where, name);
    memcpy(e->dtype, dtype, strlen(dtype) + 1);
    uint64_t n_element = 0;
    FV_TRY(read_shape(spec, where, e, &n_element));
    size_t begin = 0, end = 0;
    FV_TRY(read_offsets(spec, data_bytes, where, name, &begin, &end));
    e->data = data + begin;
    e->bytes = end - begin;
    /* A dtype that is newer than this table cannot be checked; code that needs the tensor
     * refuses it by name. */
    uint64_t bits = (uint64_t)dtype_bits(dtype), bits_all = 0;
    if (bits && (__builtin_mul_overflow(n_element, bits, &bits_all) || bits_all % 8 ||
                 bits_all / 8 != e->bytes))
        return FV_FAIL(FV_EDATA, "%s: tensor '%s': shape and dtype %s do not give its %zu bytes",
                       where, name, dtype, e->bytes);
    return FV_OK;
}

static int by_offset(const void *a, const void *b) {
    const fv_safetensors_entry *x = *(fv_safetensors_entry *const *)a;
    const fv_safetensors_entry *y = *(fv_safetensors_entry *const *)b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(fv_safetensors_entry *const *)a)->name,
                  (*(fv_safetensors_entry *const *)b)->name);
}

/* Checks that the ranges tile the data; leaves `sorted` in the order of offsets. */
static fv_status check_tiling(fv_safetensors *st, const unsigned char *data, size_t data_bytes,
                              const char *where) {
    qsort(st->sorted, (size_t)st->n, sizeof(*st->sorted), by_offset);
    size_t at = 0;
    for (int32_t i = 0; i < st->n; i++) {
        const fv_safetensors_entry *e = st->sorted[i];
        size_t begin = (size_t)((const unsigned char *)e->data - data);
        if (begin != at)
            return FV_FAIL(FV_EDATA, "%s: tensor '%s' %s", where, e->name,
                           begin < at ? "overlaps another tensor"
                                      : "leaves a hole of unused bytes before it");
        at = begin + e->bytes;
    }
    if (at != data_bytes)
        return FV_FAIL(FV_EDATA, "%s: %zu bytes after the last tensor", where, data_bytes - at);
    return FV_OK;
}

static fv_status read_member(fv_safetensors *st, const fv_json_members *m,
                             const unsigned char *data, size_t data_bytes) {
    const char *name = json_string_value(m->name);
    char *kept;
    if (!json_is_object(m->value))
        return FV_FAIL(FV_EDATA, "%s: header entry '%s' must be an object", m->where, name);
    FV_TRY(fv_arena_strndup(&st->names, name, json_string_length(m->name), &kept));
    FV_TRY(fv_grow(&st->entry, &st->cap, (size_t)st->n + 1, sizeof *st->entry));
    FV_TRY(read_entry(kept, m->value, data, data_bytes, m->where, &st->entry[st->n]));
    st->n++;
    return FV_OK;
}

static fv_status read_header(fv_safetensors *st, fv_json_members *m, const unsigned char *data,
                             size_t data_bytes) {
    bool more, described = false;
    FV_TRY(fv_json_members_next(m, &more));
    for (; more;) {
        bool describes = strcmp(json_string_value(m->name), "__metadata__") == 0;
        if (describes && described)
            return FV_FAIL(FV_EDATA, "%s: the header has two __metadata__", m->where);
        described |= describes;
        if (!describes) FV_TRY(read_member(st, m, data, data_bytes));
        FV_TRY(fv_json_members_next(m, &more));
    }
    return FV_OK;
}

/* Sorts `sorted` by name and checks that each name occurs once. */
static fv_status sort_names(fv_safetensors *st, const char *where) {
    qsort(st->sorted, (size_t)st->n, sizeof *st->sorted, by_name);
    for (int32_t i = 1; i < st->n; i++)
        if (by_name(&st->sorted[i - 1], &st->sorted[i]) == 0)
            return FV_FAIL(FV_EDATA, "%s: tensor '%s' is in the header twice", where,
                           st->sorted[i]->name);
    return FV_OK;
}

static fv_status read_entries(fv_safetensors *st, fv_json_members *m, const unsigned char *data,
                              size_t data_bytes) {
    fv_status s = read_header(st, m, data, data_bytes);
    fv_json_members_end(m);
    FV_TRY(s);
    st->sorted = calloc((size_t)st->n + 1, sizeof *st->sorted); /* calloc(0) may return NULL */
    if (!st->sorted)
        return FV_FAIL(FV_ENOMEM, "%s: no memory for %d tensor entries", m->where, st->n);
    for (int32_t i = 0; i < st->n; i++) st->sorted[i] = &st->entry[i];
    FV_TRY(check_tiling(st, data, data_bytes, m->where));
    return sort_names(st, m->where);
}

fv_status fv_safetensors_parse(const void *bytes, size_t n, const char *where,
                               fv_safetensors **out) {
    const unsigned char *p = bytes;
    if (n < HEADER_LENGTH_BYTES)
        return FV_FAIL(FV_EDATA, "%s: %zu bytes are too few for a safetensors file", where, n);
    uint64_t header_bytes = 0;
    for (int i = HEADER_LENGTH_BYTES; i-- > 0;) header_bytes = header_bytes << 8 | p[i];
    if (header_bytes > HEADER_MAX || header_bytes > n - HEADER_LENGTH_BYTES)
        return FV_FAIL(FV_EDATA,
                       "%s: a header of %llu bytes does not fit a file of %zu; truncated, or no "
                       "safetensors file",
                       where, (unsigned long long)header_bytes, n);
    if (header_bytes == 0)
        return FV_FAIL(FV_EDATA, "%s: the header is empty; is the file truncated or not written?",
                       where);

    fv_safetensors *st = calloc(1, sizeof(*st));
    if (!st) return FV_FAIL(FV_ENOMEM, "%s: no memory", where);
    fv_status s;
    size_t data_at = HEADER_LENGTH_BYTES + (size_t)header_bytes;
    fv_json_members m = {
        .text = (const char *)p + HEADER_LENGTH_BYTES, .n = (size_t)header_bytes, .where = where};
    FV_TRY_GOTO(read_entries(st, &m, p + data_at, n - data_at), s, fail);
    *out = st;
    return FV_OK;
fail:
    fv_safetensors_free(st);
    return s;
}

void fv_safetensors_free(fv_safetensors *st) {
    if (!st) return;
    fv_arena_fini(&st->names);
    free(st->entry);
    free(st->sorted);
    free(st);
}

int32_t fv_safetensors_count(const fv_safetensors *st) { return st->n; }

const fv_safetensors_entry *fv_safetensors_at(const fv_safetensors *st, int32_t i) {
    return &st->entry[i];
}

const fv_safetensors_entry *fv_safetensors_find(const fv_safetensors *st, const char *name) {
    fv_safetensors_entry want = {.name = name}, *key = &want;
    fv_safetensors_entry **hit =
        bsearch(&key, st->sorted, (size_t)st->n, sizeof(*st->sorted), by_name);
    return hit ? *hit : NULL;
}

bool fv_safetensors_dtype(const char *name, fv_dtype *out) {
    if (!strcmp(name, "F32"))
        *out = FV_F32;
    else if (!strcmp(name, "BF16"))
        *out = FV_BF16;
    else if (!strcmp(name, "F16"))
        *out = FV_F16;
    else
        return false;
    return true;
}
