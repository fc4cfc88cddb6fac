/* Compresses text rows of a store to blocks of codes. Parts are made in parallel in host memory;
 * then each layer frees its raw rows and takes its block. */
#include "model/net/text_codes.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "model/net/rope.h"
#include "model/net/row_matrix.h"
#include "packed/text_codes.h"

/* A layer of a call. */
typedef struct coded_layer {
    int32_t layer, n;   /* rows that become a block, from FV_TEXT_SINK on */
    int32_t *row, *pos; /* [n] 0, 1, 2 ...; and their positions */
    fv_packed_shape shape[2];
    void *data[2]; /* NULL: borrowed from another layer */
    double error[2];
} coded_layer;

typedef struct part {
    coded_layer *of;
    fv_packed_kind kind;
    fv_status status;
    char text[256]; /* error message */
} part;

typedef struct run {
    fv_kv *kv;
    const fv_rope *rope;
    coded_layer *layer; /* [n_layer] */
    part *part;         /* [n_part] */
    int32_t n_layer, n_part;
    fv_arena arena;
    fv_arena scratch[FV_EACH_SLOTS];
} run;

static fv_text_width width_of(const fv_kv *kv) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    return (fv_text_width){s->n_kv, s->d_head, s->dtype};
}

/* Number of a layer's rows at positions below `end`, without the first (FV_TEXT_SINK). */
static int32_t rows_due(const fv_kv *kv, int32_t layer, int32_t end) {
    const int32_t *pos = fv_kv_positions(kv, layer, 0, FV_SEG_TEXT);
    int32_t len = fv_kv_len(kv, layer, 0, FV_SEG_TEXT), n = FV_TEXT_SINK;
    while (n < len && pos[n] < end) n++;
    return n - FV_TEXT_SINK;
}

/* ---- parts --------------------------------------------------------------------------------- */

static fv_status write_part(const run *r, fv_matrices *in, const part *p) {
    coded_layer *l = p->of;
    const fv_packed_shape *s = &l->shape[p->kind];
    fv_row_set rows = {.layer = l->layer,
                       .seg = FV_SEG_TEXT,
                       .value = p->kind == FV_PACKED_V,
                       .n = l->n,
                       .row = l->row,
                       .row0 = FV_TEXT_SINK};
    fv_tensor m;
    float *numbers;
    FV_TRY(fv_matrix_new(in, l->n, s->n_kv * s->d_head, &m));
    FV_TRY(fv_rows_gather(r->kv, in->be, &rows, m));
    if (p->kind == FV_PACKED_K)
        FV_TRY(fv_rows_rotate(in, r->rope, fv_kv_rope_map(r->kv), l->pos, true, s->n_kv, m));
    FV_TRY(fv_matrix_fetch(in, &m, &numbers));
    fv_status st = fv_codes_write(s, numbers, l->data[p->kind], &l->error[p->kind]);
    if (st == FV_OK) return FV_OK;
    return fv_fail_prefix(st, "text %s of layer %d", p->kind == FV_PACKED_K ? "keys" : "values",
                          l->layer);
}

static void run_part(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    run *r = arg;
    part *p = &r->part[i];
    fv_matrices in = {.be = be, .scratch = &r->scratch[slot]};
    fv_arena_reset(in.scratch);
    p->status = write_part(r, &in, p);
    fv_matrices_fini(&in);
    if (p->status != FV_OK) snprintf(p->text, sizeof p->text, "%s", fv_last_error());
}

static fv_status add_part(run *r, const fv_text_rule *rule, coded_layer *l, fv_packed_kind kind) {
    fv_text_width w = width_of(r->kv);
    l->shape[kind] = fv_text_shape(rule, kind, l->n, &w);
    r->part[r->n_part++] = (part){.of = l, .kind = kind};
    return fv_arena_alloc(&r->arena, fv_packed_bytes(&l->shape[kind]), &l->data[kind]);
}

static fv_status add_layer(run *r, const fv_text_rule *rule, int32_t layer, int32_t n) {
    coded_layer *l = &r->layer[r->n_layer++];
    *l = (coded_layer){.layer = layer, .n = n};
    FV_TRY(FV_ARENA_NEW(&r->arena, n, l->row));
    FV_TRY(FV_ARENA_NEW(&r->arena, n, l->pos));
    for (int32_t j = 0; j < n; j++) l->row[j] = j;
    memcpy(l->pos, fv_kv_positions(r->kv, layer, 0, FV_SEG_TEXT) + FV_TEXT_SINK,
           (size_t)n * sizeof *l->pos);
    fv_text_width w = width_of(r->kv);
    l->shape[FV_PACKED_K] = fv_text_shape(rule, FV_PACKED_K, n, &w);
    if (!fv_kv_borrows(r->kv, layer, FV_SEG_TEXT)) FV_TRY(add_part(r, rule, l, FV_PACKED_K));
    return add_part(r, rule, l, FV_PACKED_V);
}

static fv_status make_parts(run *r, fv_backend *be) {
    FV_TRY(be->ops->sync(be)); /* wait until the rows are written */
    FV_TRY(fv_backend_each(be, r->n_part, run_part, r));
    for (int32_t i = 0; i < r->n_part; i++)
        if (r->part[i].status != FV_OK) return FV_FAIL(r->part[i].status, "%s", r->part[i].text);
    return FV_OK;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Packs one layer. Layers that borrow keys come after their source layer. */
static fv_status put_block(const run *r, const coded_layer *l, bool keep_pages) {
    fv_kv *kv = r->kv;
    fv_device *dev = fv_kv_get_device(kv);
    bool own = !fv_kv_borrows(kv, l->layer, FV_SEG_TEXT);
    int32_t first[2] = {0, l->n};
    fv_kv_packed *p;
    fv_kv_packed_form form = {.part = {l->shape[0], l->shape[1]},
                              .n = l->n,
                              .n_anchor = 1,
                              .pos = l->pos,
                              .first = first,
                              .source_layer = own ? l->layer : fv_kv_source_layer(kv, l->layer),
                              .seg = FV_SEG_TEXT,
                              .row0 = FV_TEXT_SINK,
                              .room = keep_pages ? fv_kv_len(kv, l->layer, 0, FV_SEG_TEXT) : 0};
    FV_TRY(fv_kv_pack(kv, l->layer, &form, &p));
    for (int k = 0; k < 2; k++)
        if (l->data[k])
            FV_TRY(dev->ops->copy_async(dev, p->part[k].data, l->data[k],
                                        fv_packed_bytes(&l->shape[k])));
    return FV_OK;
}

static fv_status take(run *r, fv_backend *be, const fv_text_rule *rule, int32_t end, int32_t l0,
                      int32_t l1, bool keep_pages) {
    fv_text_width w = width_of(r->kv);
    int32_t least = fv_text_min_rows(rule, &w);
    FV_TRY(FV_ARENA_NEW(&r->arena, l1 - l0, r->layer));
    FV_TRY(FV_ARENA_NEW(&r->arena, 2 * (l1 - l0), r->part));
    for (int32_t l = l0; l < l1; l++) {
        int32_t n = rows_due(r->kv, l, end);
        if (n >= least) FV_TRY(add_layer(r, rule, l, n));
    }
    if (r->n_layer == 0) return FV_OK;
    FV_TRY(make_parts(r, be));
    for (int32_t i = 0; i < r->n_layer; i++) FV_TRY(put_block(r, &r->layer[i], keep_pages));
    return be->ops->sync(be);
}

static void note(const run *r, fv_recompress_report *report) {
    fv_text_width w = width_of(r->kv);
    if (r->n_layer > 0) report->n_layer = r->n_layer;
    for (int32_t i = 0; i < r->n_layer; i++) {
        const coded_layer *l = &r->layer[i];
        report->rows += (uint64_t)l->n;
        report->bytes += fv_text_row_bytes(l->n, &w, l->data[FV_PACKED_K] != NULL);
        for (int k = 0; k < 2; k++) {
            if (l->data[k]) report->bytes -= fv_packed_bytes(&l->shape[k]);
            if ((float)l->error[k] > report->error) report->error = (float)l->error[k];
        }
    }
}

static void run_fini(run *r) {
    fv_arena_fini(&r->arena);
    for (int i = 0; i < FV_EACH_SLOTS; i++) fv_arena_fini(&r->scratch[i]);
}

fv_status fv_text_codes_take(fv_backend *be, const fv_rope *rope, fv_kv *kv,
                             const fv_text_rule *rule, int32_t end, int32_t l0, int32_t l1,
                             fv_text_coded_layer *layer) {
    run r = {.kv = kv, .rope = rope};
    fv_status st = take(&r, be, rule, end, l0, l1, false);
    for (int32_t i = 0; i < r.n_layer && st == FV_OK; i++) {
        const coded_layer *l = &r.layer[i];
        layer[l->layer - l0] =
            (fv_text_coded_layer){l->n, {(float)l->error[0], (float)l->error[1]}};
    }
    run_fini(&r);
    return st;
}

fv_status fv_text_codes_step(fv_text_codes *t, fv_decoder *dec, fv_kv *kv, int32_t n_run) {
    const fv_text_config *cfg = fv_decoder_config(dec);
    int32_t end = fv_text_coded(&t->rule, t->n_prompt, n_run);
    int32_t T = t->rule.bits > 0 ? t->rule.again : 0;
    if (T == 0 || end < t->n_prompt || (n_run - t->n_prompt) % T != 0) return FV_OK;
    double began = fv_clock_s();
    fv_rope rope;
    fv_rope_init(&rope, &cfg->rope, cfg->d_head);
    run r = {.kv = kv, .rope = &rope};
    fv_status st =
        take(&r, fv_decoder_backend(dec), &t->rule, end, 0, fv_kv_get_shape(kv)->n_layer, true);
    if (st == FV_OK && r.n_layer > 0) {
        note(&r, &t->report);
        t->report.seconds += fv_clock_s() - began;
    }
    run_fini(&r);
    return st;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* How often blocks become due while `tokens` more tokens run after the first n_run. */
static int32_t times_due(const fv_text_codes *t, int32_t n_run, int32_t tokens) {
    if (t->rule.again == 0 || n_run < t->n_prompt || tokens <= 0) return 0;
    int32_t now = fv_text_coded(&t->rule, t->n_prompt, n_run),
            then = fv_text_coded(&t->rule, t->n_prompt, n_run + tokens - 1);
    return (then - now) / t->rule.again;
}

/* Bytes of a future block with its tables; `alone`: including the table of positions, which other
 * layers may share. */
static size_t block_ahead(const fv_text_codes *t, const fv_kv *kv, int32_t layer, int32_t n,
                          bool alone) {
    fv_text_width w = width_of(kv);
    int32_t first[2] = {0, n};
    fv_kv_packed_form form = {.n = n, .n_anchor = 1, .first = first, .seg = FV_SEG_TEXT};
    if (n == 0) return 0;
    for (int k = 0; k < 2; k++) form.part[k] = fv_text_shape(&t->rule, (fv_packed_kind)k, n, &w);
    return fv_kv_packed_cost(kv, &form, alone) +
           (size_t)fv_text_block_bytes(&t->rule, n, &w, !fv_kv_borrows(kv, layer, FV_SEG_TEXT));
}

/* Number of a layer's rows that are due but in no block yet. */
static int32_t waiting(const fv_text_codes *t, const fv_kv *kv, int32_t layer, int32_t n_run) {
    return rows_due(kv, layer, fv_text_coded(&t->rule, t->n_prompt, n_run));
}

/* Returns whether a layer's next block needs its own set because its rows differ from the first
 * layer's. Layers may have kept different rows of the prompt; later blocks are the same in all. */
static bool waits_alone(const fv_kv *kv, int32_t layer) {
    int32_t n = fv_kv_len(kv, layer, 0, FV_SEG_TEXT);
    if (layer == 0 || n != fv_kv_len(kv, 0, 0, FV_SEG_TEXT)) return true;
    return n > FV_TEXT_SINK && memcmp(fv_kv_positions(kv, layer, 0, FV_SEG_TEXT) + FV_TEXT_SINK,
                                      fv_kv_positions(kv, 0, 0, FV_SEG_TEXT) + FV_TEXT_SINK,
                                      (size_t)(n - FV_TEXT_SINK) * sizeof(int32_t)) != 0;
}

/* Bytes of all future blocks of a layer. */
static size_t layer_ahead(const fv_text_codes *t, const fv_kv *kv, int32_t layer, int32_t n_run,
                          int32_t tokens) {
    fv_text_width w = width_of(kv);
    int32_t wait = waiting(t, kv, layer, n_run), now = 0;
    if (wait >= fv_text_min_rows(&t->rule, &w)) {
        now = wait; /* before the next token */
        wait = 0;
    }
    fv_text_cut c = fv_text_cut_blocks(&t->rule, wait, times_due(t, n_run, tokens), &w);
    return block_ahead(t, kv, layer, now, waits_alone(kv, layer)) +
           block_ahead(t, kv, layer, c.first, waits_alone(kv, layer)) +
           (size_t)c.n_each * block_ahead(t, kv, layer, c.each, layer == 0);
}

/* Number of rows by which the layer's raw text may grow at most. */
static int32_t rows_ahead(const fv_text_codes *t, const fv_kv *kv, int32_t layer, int32_t tokens) {
    fv_text_width w = width_of(kv);
    int32_t len = fv_kv_len(kv, layer, 0, FV_SEG_TEXT);
    int32_t most = fv_text_raw_most(&t->rule, len + tokens, &w);
    return most > len ? most - len : 0;
}

static fv_status reserve(const fv_text_codes *t, fv_kv *kv, int32_t n_run, int32_t tokens) {
    size_t bytes = 0;
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++) {
        FV_TRY(fv_kv_reserve(kv, l, rows_ahead(t, kv, l, tokens)));
        bytes += layer_ahead(t, kv, l, n_run, tokens);
    }
    return bytes ? fv_kv_reserve_bytes(kv, bytes) : FV_OK;
}

fv_status fv_text_codes_reserve(const fv_text_codes *t, fv_kv *kv, int32_t n_run, int32_t tokens) {
    int32_t most = 0;
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++) {
        int32_t rows = rows_ahead(t, kv, l, tokens);
        most = rows > most ? rows : most;
    }
    fv_kv_release_unused(kv, most);
    fv_status st = reserve(t, kv, n_run, tokens);
    if (st != FV_OK) fv_kv_release_unused(kv, 0);
    return st;
}
