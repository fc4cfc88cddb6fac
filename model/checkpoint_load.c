/* Repacks, quantizes and writes the weights of a checkpoint, on all threads of a backend. */
#include <stdatomic.h>
#include <stdlib.h>

#include "model/checkpoint_internal.h"
#include "model/compressed.h"
#include "model/requantize.h"

/* A tensor to fill or, with `to`, to quantize into `memory` as *as. */
typedef struct filled {
    fv_used_tensor *u;
    const fv_weights *to;
    void *memory;
    fv_tensor *as;
    size_t at; /* offset in the allocation of all integers */
} filled;

typedef struct filling {
    filled *tensor; /* [n] */
    int32_t n;
    atomic_int done, bad; /* bad: a tensor with values that are not finite; -1: none */
    atomic_bool no_memory;
    fv_checkpoint_progress *progress;
    void *user;
} filling;

/* Transposes experts, into their view or, with `to`, quantized. */
static bool fill_experts(filling *f, const filled *t) {
    const fv_transposed *from = &t->u->experts;
    if (!t->to) {
        fv_transpose_rows(from, 0, t->u->view.rows, t->u->view.data);
        return true;
    }
    fv_status st = fv_transpose_quantize(from, t->to, t->memory, t->as);
    if (st == FV_ENOMEM) atomic_store(&f->no_memory, true);
    return st != FV_EDATA;
}

/* Quantizes codes of a table anew. */
static bool requantize(filling *f, const filled *t) {
    fv_status st = fv_requantize(&t->u->view, t->to, t->memory, t->as);
    if (st == FV_ENOMEM) atomic_store(&f->no_memory, true);
    return st != FV_EDATA;
}

static bool fill_tensor(filling *f, const filled *t) {
    if (t->to && t->u->view.quant) return requantize(f, t);
    if (!t->to && t->u->stored.form) return fv_stored_fill(&t->u->stored);
    if (t->u->experts.data && !(t->to && t->u->view.data)) return fill_experts(f, t);
    return t->to ? fv_quantize(&t->u->view, t->to, t->memory, t->as) : fv_gguf_fill(&t->u->gguf);
}

static void fill_one(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    filling *f = arg;
    const filled *t = &f->tensor[i];
    (void)be;
    if (!fill_tensor(f, t)) atomic_store(&f->bad, i);
    int done = atomic_fetch_add(&f->done, 1) + 1;
    if (slot == 0 && f->progress) f->progress(f->user, done, f->n); /* slot 0: the caller */
}

static fv_status fill_all(filling *f, fv_backend *be) {
    FV_TRY(fv_backend_each(be, f->n, fill_one, f));
    int bad = atomic_load(&f->bad);
    if (atomic_load(&f->no_memory)) return FV_FAIL(FV_ENOMEM, "no memory to quantize weights");
    if (bad < 0) return FV_OK;
    const filled *t = &f->tensor[bad];
    return FV_FAIL(FV_EDATA, "tensor '%s' in %s holds NaN or infinity%s", t->u->found->entry->name,
                   t->u->found->file,
                   t->to ? " and cannot be quantized" : "; is the download damaged?");
}

/* Allocates transposed experts. */
static fv_status place_experts(fv_checkpoint *ck, fv_used_tensor *u) {
    FV_TRY(fv_arena_alloc(&ck->arena, u->found->entry->bytes, &u->view.data));
    *fv_checkpoint_slot(ck, u->expected) = u->view;
    return FV_OK;
}

fv_status fv_checkpoint_load(fv_checkpoint *ck, fv_backend *be, const fv_weights *next,
                             fv_checkpoint_progress *progress, void *user) {
    filling f = {.bad = -1, .progress = progress, .user = user};
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used, f.tensor));
    for (int32_t i = 0; i < ck->n_used; i++) {
        fv_used_tensor *u = &ck->used[i];
        bool experts = u->experts.data && !next;
        if (experts) FV_TRY(place_experts(ck, u));
        if (u->gguf.data || u->stored.form || experts) f.tensor[f.n++] = (filled){.u = u};
    }
    return fill_all(&f, be);
}

static void add_integers(fv_checkpoint *ck, filling *q, fv_used_tensor *u, const fv_weights *to,
                         fv_tensor *as) {
    q->tensor[q->n++] = (filled){.u = u, .to = to, .as = as};
    ck->bytes += fv_quantize_bytes(&u->view, to);
}

/* Allocates the integers of all tensors at once, large enough for huge pages (common/pages.h). */
static fv_status lay_integers(fv_checkpoint *ck, filling *q) {
    enum { ALIGN = 64 };
    size_t all = 0;
    void *memory;
    for (int32_t i = 0; i < q->n; i++) {
        filled *t = &q->tensor[i];
        t->at = all;
        all += (fv_quantize_bytes(&t->u->view, t->to) + ALIGN - 1) / ALIGN * ALIGN;
    }
    FV_TRY(fv_arena_alloc(&ck->arena, all, &memory));
    for (int32_t i = 0; i < q->n; i++) q->tensor[i].memory = (char *)memory + q->tensor[i].at;
    return FV_OK;
}

/* Quantizes the head; if it is the embedding too, a copy, as the embedding stays. */
static void add_head(fv_checkpoint *ck, filling *q) {
    const fv_text_weights *w = &ck->text;
    for (int32_t i = 0; i < ck->n_used && !w->head.quant; i++) {
        fv_used_tensor *u = &ck->used[i];
        if (u->view.data != w->head.data) continue;
        if (w->head.data != w->embed.data) ck->bytes -= fv_checkpoint_tensor_bytes(u);
        add_integers(ck, q, u, &fv_weights_head, &ck->text.head);
        return;
    }
}

static fv_status prepare(fv_checkpoint *ck, const fv_weights *to, filling *q) {
    FV_TRY(FV_ARENA_NEW(&ck->arena, ck->n_used + 1, q->tensor));
    add_head(ck, q); /* first: it takes longest */
    for (int32_t i = 0; i < ck->n_used; i++) {
        fv_used_tensor *u = &ck->used[i];
        if (!fv_checkpoint_is_layer_weight(u->expected)) continue;
        if (u->view.quant && !u->view.quant->table)
            return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is %s already; leave out --weights %s",
                           ck->dir, u->found->entry->name, fv_dtype_name(u->view.dtype), to->name);
        if (to->dtype == FV_INT8 && u->view.cols > FV_INT8_MAX_K)
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: tensor '%s' has %d columns, and products in int8 are exact up to "
                           "%d; use --weights int4",
                           ck->dir, u->found->entry->name, u->view.cols, FV_INT8_MAX_K);
        ck->bytes -= fv_checkpoint_tensor_bytes(u);
        add_integers(ck, q, u, to, fv_checkpoint_slot(ck, u->expected));
    }
    return lay_integers(ck, q);
}

fv_status fv_checkpoint_quantize(fv_checkpoint *ck, fv_backend *be, const fv_weights *to,
                                 fv_checkpoint_progress *progress, void *user) {
    filling q = {.bad = -1, .progress = progress, .user = user};
    FV_TRY(prepare(ck, to, &q));
    FV_TRY(fill_all(&q, be));
    return fv_checkpoint_split_fused(ck);
}

static const fv_tensor *in_use(const fv_checkpoint *ck, const fv_used_tensor *u) {
    const fv_tensor *t = fv_checkpoint_slot((fv_checkpoint *)(uintptr_t)ck, u->expected);
    return t ? t : &u->view;
}

bool fv_checkpoint_is_quantized(const fv_checkpoint *ck) {
    for (int32_t i = 0; i < ck->n_used; i++)
        if (in_use(ck, &ck->used[i])->quant) return true;
    return false;
}

/* Half of a former tied pair that has no tensor in the files yet. */
static fv_compressed_weight absent_half(const fv_checkpoint *ck, char name[FV_TENSOR_NAME_MAX]) {
    const fv_tensor_names *own = ck->cfg.family->names;
    bool has_head = false;
    for (int32_t i = 0; i < ck->n_used; i++)
        has_head = has_head || ck->used[i].expected->role == FV_ROLE_HEAD;
    fv_name_mapping_key(fv_shards_name_mapping(ck->shards, own), own,
                        has_head ? "text.embed_tokens.weight" : "lm_head.weight", name);
    return (fv_compressed_weight){NULL, has_head ? ck->text.embed : ck->text.head, name};
}

fv_status fv_checkpoint_write(const fv_checkpoint *ck, const fv_weights *as, const char *dir,
                              fv_checkpoint_progress *progress, void *user, uint64_t *bytes) {
    for (int32_t i = 0; i < ck->n_used; i++)
        if (ck->used[i].view.quant)
            return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is %s already and is not written anew",
                           ck->dir, ck->used[i].found->entry->name,
                           fv_dtype_name(ck->used[i].view.dtype));
    if (fv_shards_mistral(ck->shards))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: consolidated.safetensors is not written in integers; serve it with "
                       "--weights %s, or quantize the model's form with config.json",
                       ck->dir, as->name);
    if (ck->cfg.text.n_expert)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: a mixture of experts is not written in integers; serve it with "
                       "--weights %s, which quantizes the experts as they are read",
                       ck->dir, as->name);
    fv_compressed_weight *w = calloc((size_t)ck->n_used + 1, sizeof *w);
    if (!w) return FV_FAIL(FV_ENOMEM, "no memory for a list of weights");
    fv_compressed_job job = {.from = ck->dir,
                             .dir = dir,
                             .config = ck->config_text,
                             .config_bytes = ck->config_bytes,
                             .shards = ck->shards,
                             .to = as,
                             .quantized = w,
                             .on_tensor = progress,
                             .user = user};
    for (int32_t i = 0; i < ck->n_used; i++) {
        const fv_tensor *t = in_use(ck, &ck->used[i]);
        if (t->quant) w[job.n++] = (fv_compressed_weight){ck->used[i].found, *t, NULL};
    }
    char name[FV_TENSOR_NAME_MAX];
    if (ck->cfg.text.tied_head && ck->text.head.quant) w[job.n++] = absent_half(ck, name);
    fv_status st = fv_compressed_write(&job, bytes);
    free(w);
    return st;
}
