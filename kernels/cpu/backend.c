/* The CPU backend's table: checks the arguments, cuts an operation into items, and spreads
 * them over the threads. The mathematics is in the path (path.h) and the
 * implementations of matrix products (gemm.h), of the instruction sets that were chosen (isa.h).
 *
 * Weights are borrowed in place and never copied. Scratch memory is one piece per
 * thread, kept between calls and grown to the largest size needed so far: a steady state
 * allocates nothing. */
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/log.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/group_sums.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "packed/forms.h"

/* Row-wise operations on fewer elements than this stay on the calling thread, and a thread
 * takes that many at a time: below it, waking another costs more than it saves. */
enum { GRAIN_ELEMENTS = 16384 };

typedef struct cpu cpu;
struct cpu {
    fv_threads *threads; /* NULL: the calling one alone */
    fv_isa_choice *isa;  /* owned by the backend, also where `part` points to it */
    char *scratch;       /* owned; scratch_bytes for each thread */
    size_t scratch_bytes;
    char *shared; /* owned; shared_bytes for all of them */
    size_t shared_bytes;
    char *ordered; /* owned; x with its columns in a weight's order */
    size_t ordered_bytes;
    char *sums; /* owned; sums of groups of x's columns */
    size_t sums_bytes;
    cpu *part; /* owned, one per thread, for items of cpu_each; NULL until its first call */
};

static int n_thread(const cpu *c) { return c->threads ? fv_threads_count(c->threads) : 1; }

/* Frees everything; what is NULL was not opened yet. */
static void discard(cpu *c) {
    for (int i = 0; c->part && i < n_thread(c); i++) {
        free(c->part[i].scratch);
        free(c->part[i].shared);
        free(c->part[i].ordered);
        free(c->part[i].sums);
    }
    free(c->part);
    if (c->threads) fv_threads_close(c->threads);
    free(c->scratch);
    free(c->shared);
    free(c->ordered);
    free(c->sums);
    free(c->isa);
    free(c);
}

static fv_status open_threads(cpu *c, const fv_backend_options *opt) {
    FV_TRY(fv_isa_choose(opt ? opt->isa : NULL, c->isa));
    return fv_threads_open(opt ? opt->n_threads : 0, &c->threads);
}

static fv_status cpu_open(fv_backend *be, const fv_backend_options *opt) {
    cpu *c = calloc(1, sizeof *c);
    if (!c || !(c->isa = malloc(sizeof *c->isa))) {
        free(c);
        return FV_FAIL(FV_ENOMEM, "out of memory for the CPU backend");
    }
    fv_status s = open_threads(c, opt);
    if (s != FV_OK) {
        discard(c);
        return s;
    }
    *be = (fv_backend){
        .ops = &fv_backend_cpu, .device = fv_device_host(), .isa = c->isa->name, .impl = c};
    FV_LOG(INFO, KERNELS, "backend=cpu isa=%s threads=%d cores=%d", c->isa->name,
           fv_threads_count(c->threads), fv_core_limit());
    return FV_OK;
}

static void cpu_close(fv_backend *be) { discard(be->impl); }

static fv_status cpu_weight(fv_backend *be, const fv_tensor *host, fv_tensor *out, fv_buf *owned) {
    (void)be;
    *out = *host;
    *owned = (fv_buf){0};
    return FV_OK;
}

static fv_status cpu_sync(fv_backend *be) {
    (void)be;
    return FV_OK;
}

/* Grows *at to at least `bytes` for each of n, a multiple of 4096; growing loses the contents. */
static fv_status reserve(char **at, size_t *bytes_each, size_t bytes, int n) {
    if (bytes <= *bytes_each) return FV_OK;
    size_t each = (bytes + 4095) / 4096 * 4096;
    char *p = aligned_alloc(4096, each * (size_t)n);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory: scratch of %d times %zu bytes", n, each);
    free(*at);
    *at = p;
    *bytes_each = each;
    return FV_OK;
}

/* The arguments of a loop for the threads. */
typedef struct job {
    const cpu *cpu;
    fv_cpu_items *items;
    const void *args;
} job;

static void run_chunk(void *arg, int thread, int64_t begin, int64_t end) {
    const job *j = arg;
    char *scratch = j->cpu->scratch;
    if (scratch) scratch += (size_t)thread * j->cpu->scratch_bytes;
    j->items(j->args, scratch, begin, end);
}

static fv_status run_plan(cpu *c, fv_cpu_plan plan, fv_cpu_items *items, const void *args) {
    FV_TRY(reserve(&c->scratch, &c->scratch_bytes, plan.scratch_bytes, n_thread(c)));
    if (!c->threads) {
        items(args, c->scratch, 0, plan.n_item);
        return FV_OK;
    }
    fv_threads_for(c->threads, plan.n_item, plan.grain, run_chunk, &(job){c, items, args});
    return FV_OK;
}

static fv_status run_rows(cpu *c, fv_cpu_rows r, fv_cpu_items *items, const void *args) {
    int64_t grain = GRAIN_ELEMENTS / (r.cols > 0 ? r.cols : 1);
    fv_cpu_plan plan = {.n_item = r.rows, .grain = grain > 0 ? grain : 1};
    return run_plan(c, plan, items, args);
}

/* ---- linear ---------------------------------------------------------------------------- */

static fv_product product_of(const fv_backend *be, const fv_linear_args *a, const fv_tensor *w) {
    if (w->dtype == FV_INT8 && !w->quant->group) return FV_PRODUCT_INT8;
    if (w->dtype == FV_INT8 && w->quant->group <= 32 && !w->quant->min && !w->quant->table)
        return FV_PRODUCT_INT8_GROUPS;
    if (w->quant && w->quant->integers)
        return w->dtype == FV_INT4 ? FV_PRODUCT_INT4_GROUPS : FV_PRODUCT_INT8_GROUPS;
    return w->quant || (be->compute == FV_COMPUTE_BF16 && !a->in_f32) ? FV_PRODUCT_BF16
                                                                      : FV_PRODUCT_F32;
}

/* Packs x, if the implementation wants that, and multiplies. */
static fv_status multiply(cpu *c, fv_gemm_call *g) {
    if (g->impl->x->pack) {
        fv_cpu_plan pack = g->impl->x->plan(g);
        FV_TRY(reserve(&c->shared, &c->shared_bytes, pack.shared_bytes, 1));
        g->x = c->shared;
        FV_TRY(run_plan(c, pack, g->impl->x->pack, g));
    }
    return run_plan(c, fv_gemm_plan(g), fv_gemm_items, g);
}

static const int32_t *order_of(const fv_tensor *w) { return w->quant ? w->quant->order : NULL; }

/* Rows of x to copy with their columns in another order. */
typedef struct ordered {
    const fv_tensor *from, *to;
    const int32_t *order;
} ordered;

static void order_rows(const void *args, void *scratch, int64_t begin, int64_t end) {
    const ordered *a = args;
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *from = row_f32(a->from, m);
        float *to = row_f32(a->to, m);
        for (int32_t k = 0; k < a->to->cols; k++) to[k] = from[a->order[k]];
    }
}

/* Makes *x a copy of it with its columns in this order. */
static fv_status order_x(cpu *c, const int32_t *order, fv_tensor *x) {
    const size_t bytes = (size_t)x->rows * (size_t)x->cols * sizeof(float);
    FV_TRY(reserve(&c->ordered, &c->ordered_bytes, bytes, 1));
    const fv_tensor to = fv_tensor_of(c->ordered, FV_F32, x->rows, x->cols);
    const ordered a = {x, &to, order};
    FV_TRY(run_rows(c, (fv_cpu_rows){x->rows, x->cols}, order_rows, &a));
    *x = to;
    return FV_OK;
}

/* Adds what products in integers lack to y of the parts whose offsets are in groups of this size (kernels/ops.h). */
static fv_status add_offsets_in(cpu *c, const fv_linear_args *a, int32_t group) {
    const int32_t groups = (int32_t)div_up(a->x.cols, group);
    const size_t bytes = (size_t)a->x.rows * (size_t)groups * sizeof(float);
    FV_TRY(reserve(&c->sums, &c->sums_bytes, bytes, 1));
    const fv_tensor sums = fv_tensor_of(c->sums, FV_F32, a->x.rows, groups);
    const fv_group_sums_args of = {&a->x, &sums, group};
    FV_TRY(run_rows(c, (fv_cpu_rows){a->x.rows, a->x.cols}, fv_group_sums, &of));
    fv_linear_args add = {.x = sums};
    for (int i = 0; i < a->n_part; i++) {
        const fv_quant *q = a->part[i].w.quant;
        if (!q->offset || q->group != group) continue;
        add.part[add.n_part++] = (fv_linear_part){
            .w = fv_tensor_of((void *)(uintptr_t)q->offset, FV_F32, a->part[i].w.rows, groups),
            .y = a->part[i].y,
            .accumulate = true};
    }
    fv_gemm_call g = {.product = FV_PRODUCT_F32, .a = &add};
    g.impl = fv_gemm_choose(c->isa, g.product, &add, &add.part[0].w);
    return multiply(c, &g);
}

static fv_status add_offsets(cpu *c, const fv_linear_args *a) {
    for (int i = 0; i < a->n_part; i++) {
        const fv_quant *q = a->part[i].w.quant;
        bool done = !q->offset;
        for (int j = 0; j < i && !done; j++) {
            const fv_quant *before = a->part[j].w.quant;
            done = before->offset && before->group == q->group;
        }
        if (!done) FV_TRY(add_offsets_in(c, a, q->group));
    }
    return FV_OK;
}

/* Computes part i and those after it that the same implementation multiplies by x in the same order; sets their bits
 * in *done. */
static fv_status linear_from(fv_backend *be, const fv_linear_args *a, int i, unsigned *done) {
    cpu *c = be->impl;
    const int32_t *order = order_of(&a->part[i].w);
    fv_linear_args some = {.x = a->x, .in_f32 = a->in_f32};
    fv_gemm_call g = {.a = &some};
    for (; i < a->n_part; i++) {
        const fv_tensor *w = &a->part[i].w;
        fv_product product = product_of(be, a, w);
        if (*done >> i & 1 || (g.impl && product != g.product) || order_of(w) != order) continue;
        const fv_gemm_impl *impl = fv_gemm_choose(c->isa, product, a, w);
        if (g.impl && impl != g.impl) continue;
        g.impl = impl;
        g.product = product;
        some.part[some.n_part++] = a->part[i];
        *done |= 1u << i;
    }
    if (order) FV_TRY(order_x(c, order, &some.x));
    FV_TRY(multiply(c, &g));
    bool integers = g.product == FV_PRODUCT_INT8_GROUPS || g.product == FV_PRODUCT_INT4_GROUPS;
    return integers ? add_offsets(c, &some) : FV_OK;
}

static fv_status check_part(const fv_linear_args *a, const fv_linear_part *p) {
    FV_TRY(need_f32(&p->y, "linear's y"));
    assert(p->w.cols == a->x.cols && p->w.ld == p->w.cols);
    assert(p->y.rows == a->x.rows && p->y.cols == p->w.rows);
    assert(is_vector_of(&p->bias, p->w.rows));
    assert(!a->in_f32 || p->w.dtype == FV_F32);
    assert(!p->w.quant == (p->w.dtype < FV_N_DTYPE));
    assert(!p->w.quant || p->w.quant->group % (p->w.dtype == FV_INT4 ? 32 : 16) == 0);
    assert(!p->w.quant || !p->w.quant->offset || p->w.quant->integers);
    assert(!p->w.quant || !p->w.quant->table || (!p->w.quant->zero && !p->w.quant->integers));
    assert(!p->w.quant || !p->w.quant->order || p->w.quant->group);
    assert(!p->w.quant || !p->w.quant->integers || p->w.quant->group == 16 ||
           (p->w.quant->group && p->w.quant->group % 32 == 0));
    if (p->w.dtype == FV_INT8 && !p->w.quant->group && p->w.cols > FV_INT8_MAX_K)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "int8 weights of %d columns: at most %d can be summed exactly", p->w.cols,
                       FV_INT8_MAX_K);
    return FV_OK;
}

static fv_status cpu_linear(fv_backend *be, const fv_linear_args *a) {
    FV_TRY(need_f32(&a->x, "linear's x"));
    assert(a->n_part >= 1 && a->n_part <= FV_LINEAR_MAX_PARTS);
    for (int i = 0; i < a->n_part; i++) FV_TRY(check_part(a, &a->part[i]));
    if (a->x.rows == 0) return FV_OK;
    unsigned done = 0;
    for (int i = 0; i < a->n_part; i++)
        if (!(done >> i & 1)) FV_TRY(linear_from(be, a, i, &done));
    return FV_OK;
}

static fv_status cpu_matmul_nn(fv_backend *be, const fv_matmul_nn_args *a) {
    cpu *c = be->impl;
    FV_TRY(need_f32(&a->x, "matmul_nn's x"));
    FV_TRY(need_f32(&a->y, "matmul_nn's y"));
    assert(a->w.rows == a->x.cols && a->w.cols == a->y.cols && a->x.rows == a->y.rows);
    if (a->y.rows == 0 || a->y.cols == 0) return FV_OK;
    return run_plan(c, c->isa->path->matmul_nn_plan(a), c->isa->path->matmul_nn, a);
}

static fv_status cpu_syrk(fv_backend *be, const fv_syrk_args *a) {
    cpu *c = be->impl;
    FV_TRY(need_f32(&a->x, "syrk's x"));
    return run_plan(c, c->isa->path->syrk_plan(a), c->isa->path->syrk, a);
}

/* ---- row-wise -------------------------------------------------------------------------- */

#define FV_OP(name, args)
#define FV_ROW_OP(name, args)                                                                      \
    static fv_status cpu_##name(fv_backend *be, const args *a) {                                   \
        cpu *c = be->impl;                                                                         \
        fv_cpu_rows rows;                                                                          \
        FV_TRY(fv_check_##name(a, &rows));                                                         \
        return run_rows(c, rows, c->isa->path->name, a);                                           \
    }
#include "kernels/ops.def"

/* ---- KV and attention ------------------------------------------------------------------ */

static fv_status run_attention(fv_backend *be, fv_cpu_plan_fn *plan, fv_cpu_items *items,
                               const void *a) {
    cpu *c = be->impl;
    fv_cpu_attention of = {.a = a, .compute = be->compute, .isa = c->isa};
    return run_plan(c, plan(&of), items, &of);
}

static fv_status cpu_attention(fv_backend *be, const fv_attn_args *a) {
    cpu *c = be->impl;
    FV_TRY(need_f32(&a->q, "attention's q"));
    FV_TRY(need_f32(&a->o, "attention's o"));
    FV_TRY(need_f32(&a->lse, "attention's lse"));
    assert(a->n_kv > 0 && a->n_head % a->n_kv == 0 && a->d_head > 0);
    assert(same_shape(&a->q, &a->o) && a->q.cols == a->n_head * a->d_head);
    assert(!a->lse.data || (a->lse.rows == a->q.rows && a->lse.cols == a->n_head));
    for (int i = 0; i < a->n_seq; i++) {
        assert(a->seqs[i].n_seg >= 1 && a->seqs[i].n_seg <= FV_ATTN_MAX_SEG);
        assert(a->seqs[i].n >= 0.0f && (a->seqs[i].n == 0.0f || !a->seqs[i].share));
    }
    return run_attention(be, c->isa->path->attention_plan, c->isa->path->attention, a);
}

static fv_status cpu_score_sums(fv_backend *be, const fv_score_sums_args *a) {
    cpu *c = be->impl;
    FV_TRY(need_f32(&a->attn->q, "score_sums' q"));
    FV_TRY(need_f32(&a->attn->lse, "score_sums' lse"));
    assert(a->attn->lse.data && a->attn->lse.rows == a->attn->q.rows);
    for (int32_t i = 0; i < a->n_sum; i++) {
        const fv_score_sum *q = &a->sums[i];
        assert(q->seq >= 0 && q->seq < a->attn->n_seq && q->n_kind >= 1 && q->n >= 0.0f);
        assert(q->n_row >= 0 && q->n_row <= a->attn->seqs[q->seq].n_rows);
        assert(!q->head_max + !q->weight + !q->low >= 2); /* at most one of them */
        size_t lines = (size_t)(q->head_max ? 1 : a->attn->n_head) * (size_t)q->n_kind;
        if (q->fresh) memset(q->sum, 0, lines * (size_t)q->ld * sizeof *q->sum);
    }
    return run_attention(be, c->isa->path->score_sums_plan, c->isa->path->score_sums, a);
}

/* ---- packed blocks --------------------------------------------------------------------- */

static void check_packed(const fv_attn_packed_args *a, const fv_packed_seq *seq,
                         fv_packed_form form) {
    const fv_packed_shape *k = &seq->k->shape, *v = &seq->v->shape;
    assert(k->form == form && v->form == form);
    assert(!seq->score || fv_packed_format_of(form)->scored);
    assert(k->borrows == (seq->k->base != NULL) && v->borrows == (seq->v->base != NULL));
    assert(fv_packed_check(k) == FV_OK && fv_packed_check(v) == FV_OK);
    assert(k->kind == FV_PACKED_K && v->kind == FV_PACKED_V);
    assert(k->n == seq->rows->n && v->n == seq->rows->n);
    assert(k->n_kv == a->n_kv && v->n_kv == a->n_kv);
    assert(k->d_head == a->d_head && v->d_head == a->d_head);
    assert(!seq->rows->cos == !seq->rows->sin && (!seq->rows->cos || a->d_head % 2 == 0));
    assert(!seq->score || (seq->score_rows <= seq->n_rows && seq->score_ld >= seq->rows->n));
    (void)a, (void)k, (void)v, (void)form;
}

static fv_status check_packed_call(const fv_attn_packed_args *a, fv_packed_form form) {
    FV_TRY(need_f32(&a->q, "packed attention's q"));
    FV_TRY(need_f32(&a->o, "packed attention's o"));
    FV_TRY(need_f32(&a->lse, "packed attention's lse"));
    assert(a->n_kv > 0 && a->n_head % a->n_kv == 0 && a->d_head > 0 && a->scale > 0);
    assert(same_shape(&a->q, &a->o) && a->q.cols == a->n_head * a->d_head);
    assert(!a->lse.data || (a->lse.rows == a->q.rows && a->lse.cols == a->n_head));
    for (int i = 0; i < a->n_seq; i++) check_packed(a, &a->seqs[i], form);
    return FV_OK;
}

static fv_status cpu_attn_lowrank(fv_backend *be, const fv_attn_packed_args *a) {
    cpu *c = be->impl;
    FV_TRY(check_packed_call(a, FV_PACKED_LOWRANK));
    return run_attention(be, c->isa->path->attn_lowrank_plan, c->isa->path->attn_lowrank, a);
}

/* Attention on quantized or merged blocks. */
static fv_status attn_decoded(fv_backend *be, const fv_attn_packed_args *a, fv_packed_form form) {
    cpu *c = be->impl;
    FV_TRY(check_packed_call(a, form));
    return run_attention(be, c->isa->path->attn_quantized_plan, c->isa->path->attn_quantized, a);
}

static fv_status cpu_attn_quantized(fv_backend *be, const fv_attn_packed_args *a) {
    return attn_decoded(be, a, FV_PACKED_QUANTIZED);
}

static fv_status cpu_attn_merged(fv_backend *be, const fv_attn_packed_args *a) {
    return attn_decoded(be, a, FV_PACKED_MERGED);
}

static fv_status cpu_attn_latent(fv_backend *be, const fv_attn_packed_args *a) {
    cpu *c = be->impl;
    FV_TRY(check_packed_call(a, FV_PACKED_LATENT));
    return run_attention(be, c->isa->path->attn_latent_plan, c->isa->path->attn_latent, a);
}

static fv_status cpu_latent_codes(fv_backend *be, const fv_latent_codes_args *a) {
    cpu *c = be->impl;
    assert(a->k->shape.form == FV_PACKED_LATENT && a->k->shape.latent.coded);
    assert(fv_packed_check(&a->k->shape) == FV_OK);
    assert(a->k->shape.borrows == (a->k->base != NULL));
    return run_attention(be, c->isa->path->latent_codes_plan, c->isa->path->latent_codes, a);
}

/* ---- items in parallel ----------------------------------------------------------------- */

typedef struct each {
    fv_backend *be;
    fv_each_fn *fn;
    void *arg;
} each;

static void run_each(void *arg, int thread, int64_t begin, int64_t end) {
    const each *e = arg;
    cpu *c = e->be->impl;
    fv_backend part = {.ops = e->be->ops,
                       .device = e->be->device,
                       .isa = e->be->isa,
                       .compute = e->be->compute,
                       .impl = &c->part[thread]};
    for (int64_t i = begin; i < end; i++) e->fn(e->arg, &part, thread, (int32_t)i);
}

/* Gives each thread an item: operations are small, and the code between them runs in parallel too.
 * Without memory for that, runs items one after the other, each on all threads. */
static fv_status cpu_each(fv_backend *be, int32_t n, fv_each_fn *fn, void *arg) {
    cpu *c = be->impl;
    assert(c->threads);
    if (n > 1 && !c->part && (c->part = calloc((size_t)n_thread(c), sizeof *c->part)))
        for (int i = 0; i < n_thread(c); i++) c->part[i].isa = c->isa;
    if (n > 1 && c->part)
        fv_threads_for(c->threads, n, 1, run_each, &(each){be, fn, arg});
    else
        for (int32_t i = 0; i < n; i++) fn(arg, be, 0, i);
    return FV_OK;
}

const fv_backend_ops fv_backend_cpu = {
    .name = "cpu",
    .act = FV_F32,
    .open = cpu_open,
    .close = cpu_close,
    .weight = cpu_weight,
    .sync = cpu_sync,
#define FV_OP(name, args) .name = cpu_##name,
#include "kernels/ops.def"
    .each = cpu_each,
};
