/* The table of stored forms: which one a weight is in, and what forms share. */
#include "model/stored.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/stored_internal.h"

static const fv_stored_form *const forms[] = {
    &fv_stored_awq, &fv_stored_gptq, &fv_stored_fp8,  &fv_stored_w8a16,
    &fv_stored_fp4, &fv_stored_bnb4, &fv_stored_bnb8,
};
enum { N_FORM = sizeof forms / sizeof *forms };

static bool has(const fv_stored_form *f, const fv_stored_config *config) {
    return f->methods >> config->method & 1;
}

/* Writes X.part for the weight X.weight. */
static void name_part(const char *weight, const char *part, char out[FV_TENSOR_NAME_MAX]) {
    size_t n = strlen(weight) - strlen("weight");
    if (snprintf(out, FV_TENSOR_NAME_MAX, "%.*s%s", (int)n, weight, part) >= FV_TENSOR_NAME_MAX)
        out[0] = '\0';
}

static bool is_weight(const char *name) {
    size_t n = strlen(name), m = strlen(".weight");
    return n > m && strcmp(name + n - m, ".weight") == 0;
}

static const fv_shard_tensor *first_part(const fv_stored_form *f, const fv_shards *sh,
                                         const fv_tensor_spec *e) {
    char name[FV_TENSOR_NAME_MAX];
    name_part(e->name, f->part[0], name);
    const fv_shard_tensor *t = fv_shards_find(sh, name);
    if (!t || strcmp(t->entry->dtype, f->dtype) != 0) return NULL;
    return !f->takes || f->takes(t->entry, e) ? t : NULL;
}

static fv_status check_role(const fv_stored_form *f, const fv_shard_tensor *t,
                            const fv_tensor_spec *e) {
    if (e->n_dim == 2 && e->role != FV_ROLE_EMBEDDING && e->role != FV_ROLE_EXACT &&
        e->role != FV_ROLE_ROUTER)
        return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "tensor '%s' in %s is quantized (%s), and the engine reads this one as numbers: "
                   "quantize the original checkpoint instead (--weights int4 or int8)",
                   t->entry->name, t->file, f->name);
}

fv_status fv_stored_find(fv_stored_config *config, const fv_shards *sh, const fv_tensor_spec *e,
                         fv_stored_weight *out, const fv_shard_tensor **found) {
    *out = (fv_stored_weight){.config = config};
    *found = NULL;
    for (int i = 0; i < N_FORM && config->method && is_weight(e->name); i++) {
        const fv_stored_form *f = forms[i];
        const fv_shard_tensor *t = has(f, config) ? first_part(f, sh, e) : NULL;
        if (!t) continue;
        FV_TRY(check_role(f, t, e));
        out->form = f;
        out->file = t->file;
        for (int p = 0; p < FV_STORED_PARTS && f->part[p]; p++) {
            char name[FV_TENSOR_NAME_MAX];
            name_part(e->name, f->part[p], name);
            const fv_shard_tensor *part = fv_shards_find(sh, name);
            out->part[p] = part ? part->entry : NULL;
        }
        *found = t;
        return FV_OK;
    }
    return FV_OK;
}

fv_status fv_stored_place(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena) {
    return w->form->place(w, e, arena);
}

bool fv_stored_fill(const fv_stored_weight *w) { return w->form->fill(w); }
const char *fv_stored_name(const fv_stored_weight *w) { return w->form->name; }

static bool belongs_to(const fv_stored_form *f, const char *canonical,
                       char weight[FV_TENSOR_NAME_MAX]) {
    size_t n = strlen(canonical);
    for (int p = 0; p < FV_STORED_PARTS && f->part[p]; p++) {
        size_t m = strlen(f->part[p]);
        if (n < m + 2 || strcmp(canonical + n - m, f->part[p]) != 0 || canonical[n - m - 1] != '.')
            continue;
        return snprintf(weight, FV_TENSOR_NAME_MAX, "%.*sweight", (int)(n - m), canonical) <
               FV_TENSOR_NAME_MAX;
    }
    return false;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static bool is_zero(const fv_safetensors_entry *t) {
    bool zero = true;
    for (size_t i = 0; i < t->bytes && zero; i++) zero = fv_stored_u8(t, i) == 0;
    return zero;
}

bool fv_stored_is_unused(const fv_stored_config *config, const fv_shard_tensor *t) {
    static const char *const end[] = {".k_scale", ".v_scale", ".q_scale", ".k_zero_point",
                                      ".v_zero_point"};
    for (size_t i = 0; i < sizeof end / sizeof *end && config->kv_cache; i++)
        if (ends_with(t->canonical, end[i])) return true;
    return config->method == FV_STORED_GPTQ && ends_with(t->canonical, ".bias") &&
           is_zero(t->entry);
}

bool fv_stored_belongs(const fv_stored_config *config, const char *canonical,
                       char weight[FV_TENSOR_NAME_MAX]) {
    for (int i = 0; i < N_FORM && config->method; i++)
        if (has(forms[i], config) && belongs_to(forms[i], canonical, weight)) return true;
    return false;
}

/* ---- helpers of the forms ------------------------------------------------------------------- */

fv_status fv_stored_need(const fv_stored_weight *w, int i) {
    if (w->part[i]) return FV_OK;
    const char *first = w->part[0]->name;
    size_t n = strlen(first), m = strlen(w->form->part[0]);
    return FV_FAIL(
        FV_ENOTFOUND, "tensor '%.*s%s' of a quantized weight (%s) is missing beside '%s' in %s",
        (int)(n > m ? n - m : n), first, w->form->part[i], w->form->name, first, w->file);
}

fv_status fv_stored_expect(const fv_stored_weight *w, int i, const char *dtype, int64_t rows,
                           int64_t cols) {
    const fv_safetensors_entry *t = w->part[i];
    fv_dtype type;
    FV_TRY(fv_stored_need(w, i));
    bool same = dtype ? strcmp(t->dtype, dtype) == 0 : fv_safetensors_dtype(t->dtype, &type);
    if (same && t->n_dim == 2 && t->shape[0] == rows && t->shape[1] == cols) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "tensor '%s' in %s must be %s of shape [%lld, %lld] (%s); the file may be "
                   "incomplete, or its config of another model",
                   t->name, w->file, dtype ? dtype : "F32, BF16 or F16", (long long)rows,
                   (long long)cols, w->form->name);
}

fv_dtype fv_stored_scale_type(const fv_stored_weight *w, int i) {
    fv_dtype type = FV_F32;
    (void)fv_safetensors_dtype(w->part[i]->dtype, &type);
    return type;
}

/* Allocates a part of the view and counts its bytes. */
static fv_status allot(fv_stored_weight *w, fv_arena *arena, size_t n, size_t size, void *out) {
    w->bytes += n * size;
    return fv_arena_array(arena, n, size, out);
}

fv_status fv_stored_lay(fv_stored_weight *w, const fv_tensor_spec *e, fv_arena *arena,
                        const fv_stored_layout *l) {
    const int64_t cols = e->shape[1];
    const size_t rows = (size_t)e->shape[0];
    fv_quant *q;
    void *part;
    FV_TRY(FV_ARENA_NEW(arena, 1, q));
    q->scale_type = l->scale_type;
    q->group = l->group ? l->group : (int32_t)(cols + 31) / 32 * 32;
    q->groups = (int32_t)((cols + q->group - 1) / q->group);
    q->row_bytes = l->dtype == FV_INT4 ? (size_t)(cols + 1) / 2 : (size_t)cols;
    q->table = l->table;
    w->view = fv_tensor_of((void *)(uintptr_t)l->borrowed, l->dtype, (int32_t)rows, (int32_t)cols);
    w->view.quant = w->quant = q;
    const size_t n = rows * (size_t)q->groups;
    FV_TRY(allot(w, arena, n, fv_dtype_bytes(l->scale_type), &part));
    q->scale = part;
    if (l->zero) {
        FV_TRY(allot(w, arena, n, 1, &part));
        q->zero = part;
    }
    if (l->min) {
        FV_TRY(allot(w, arena, n, sizeof(float), &part));
        q->min = part;
    }
    if (!l->borrowed) return allot(w, arena, rows, q->row_bytes, &w->view.data);
    w->bytes += rows * q->row_bytes;
    return FV_OK;
}

bool fv_stored_turn_scales(const fv_stored_weight *w, int i) {
    const size_t rows = (size_t)w->view.rows, groups = (size_t)w->quant->groups;
    float poison = 0.0f;
    for (size_t g = 0; g < groups; g++)
        for (size_t n = 0; n < rows; n++)
            poison += fv_stored_copy_scale(w, w->part[i], g * rows + n, n * groups + g) * 0.0f;
    return !isnan(poison);
}
