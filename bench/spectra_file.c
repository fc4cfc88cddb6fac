/* Reads a case of bench_spectra from a safetensors file written by bench/antiberty: layer.L.query
 * [queries, H, D]; layer.L.key and layer.L.value with suffixes .row, .ahead and .seen [tokens, Hkv,
 * D]; F32, for every layer present. Nothing is rotated. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/program.h"
#include "bench/spectra_case.h"
#include "common/file.h"
#include "model/safetensors.h"

typedef struct rows_file {
    fv_safetensors *tensors;
    const char *path;
} rows_file;

/* Copies a tensor [n, heads, D]. A dimension that is 0 is set from the file; others must match. */
static float *take(const rows_file *f, const char *name, int32_t *n, int32_t *heads, int32_t *d) {
    const fv_safetensors_entry *e = fv_safetensors_find(f->tensors, name);
    int32_t *const want[] = {n, heads, d};
    if (!e || e->n_dim != 3 || strcmp(e->dtype, "F32") != 0)
        bench_must(
            FV_FAIL(FV_EDATA, "%s: '%s' is no F32 tensor of rows, heads and D", f->path, name));
    for (int i = 0; i < 3; i++) {
        if (e->shape[i] < 1 || e->shape[i] > 1 << 20 || (*want[i] && *want[i] != e->shape[i]))
            bench_must(FV_FAIL(FV_EDATA, "%s: dimension %d of '%s' is %" PRId64, f->path, i, name,
                               e->shape[i]));
        *want[i] = (int32_t)e->shape[i];
    }
    float *to = spectra_alloc(e->bytes / sizeof *to, sizeof *to);
    memcpy(to, e->data, e->bytes);
    return to;
}

static void take_layer(const rows_file *f, spectra_case *c, int32_t l) {
    static const char *const kind[] = {"key", "value"};
    char name[64];
    snprintf(name, sizeof name, "layer.%d.query", l);
    c->query[l] = take(f, name, &c->n_query, &c->n_head, &c->d_head);
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "layer.%d.%s.row", l, kind[k]);
        c->row[l][k] = take(f, name, &c->n, &c->n_kv, &c->d_head);
        snprintf(name, sizeof name, "layer.%d.%s.ahead", l, kind[k]);
        c->ahead[l][k] = take(f, name, &c->n_ahead, &c->n_kv, &c->d_head);
        snprintf(name, sizeof name, "layer.%d.%s.seen", l, kind[k]);
        c->seen[l][k] = take(f, name, &c->n_seen, &c->n_kv, &c->d_head);
    }
}

void spectra_of_file(spectra_case *c, const char *path) {
    rows_file f = {.path = path};
    fv_file_map map;
    char name[64] = "layer.0.query";
    bench_must(fv_file_map_open(path, &map));
    bench_must(fv_safetensors_parse(map.data, map.bytes, path, &f.tensors));
    *c = (spectra_case){0};
    do {
        take_layer(&f, c, c->n_layer++);
        snprintf(name, sizeof name, "layer.%d.query", c->n_layer);
    } while (c->n_layer < SPECTRA_LAYERS && fv_safetensors_find(f.tensors, name));
    if (c->n_head % c->n_kv)
        bench_must(
            FV_FAIL(FV_EDATA, "%s: %d heads of queries, and %d of keys", path, c->n_head, c->n_kv));
    c->at = c->n_ahead;
    c->width = c->n_kv * c->d_head;
    c->scale = 1 / sqrt(c->d_head);
    fv_safetensors_free(f.tensors);
    fv_file_map_close(&map);
}
