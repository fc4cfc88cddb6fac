/* Lists tensors of GGUF files under Hugging Face's names and in its shapes. Small tensors are made anew in
 * the arena; of large ones only the order of rows is noted. */
#include "model/gguf_tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "gguf/recurrent.h"
#include "gguf/texts.h"
#include "gguf/vision.h"

typedef struct lister {
    const fv_gguf_set *s;
    const fv_gguf *g;
    fv_arena *arena;
    bool tower;
    bool gemma, recurrent; /* of the text model, whose norms have 1 added */
    fv_gguf_recurrent layers;
    fv_gguf_projector projector;
} lister;

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* The tensor with the name of t, in which `from` is replaced by `to`; NULL: there is none. */
static const fv_gguf_tensor *sibling(const lister *l, const fv_gguf_tensor *t, const char *from,
                                     const char *to) {
    char name[FV_GGUF_NAME_MAX];
    const char *at = strstr(t->name, from);
    if (!at) return NULL;
    int n = snprintf(name, sizeof name, "%.*s%s%s", (int)(at - t->name), t->name, to,
                     at + strlen(from));
    if (n >= FV_GGUF_NAME_MAX) return NULL;
    return l->tower ? fv_gguf_find(l->g, name) : fv_gguf_set_find(l->s, name);
}

static fv_status fail_pair(const lister *l, const fv_gguf_tensor *a, const fv_gguf_tensor *b,
                           const char *what) {
    return FV_FAIL(strcmp(what, "type") == 0 ? FV_EUNSUPPORTED : FV_EDATA,
                   "%s: tensors '%s' and '%s' are used as one, and differ in %s",
                   fv_gguf_where(l->g), a->name, b->name, what);
}

static fv_status check_pair(const lister *l, const fv_gguf_tensor *a, const fv_gguf_tensor *b) {
    if (strcmp(a->type, b->type) != 0) return fail_pair(l, a, b, "type");
    bool same = a->n_dim == b->n_dim;
    for (int32_t i = 0; same && i < a->n_dim; i++) same = a->shape[i] == b->shape[i];
    return same ? FV_OK : fail_pair(l, a, b, "shape");
}

/* ---- names ------------------------------------------------------------------------------- */

/* Deepstack's connectors are numbered by the tower's layer in the file, and one after the other by Hugging
 * Face. */
static void rank_deepstack(const lister *l, const char *own, char hub[FV_GGUF_NAME_MAX]) {
    static const char before[] = "v.deepstack.";
    if (strncmp(own, before, sizeof before - 1) != 0) return;
    int layer = atoi(own + sizeof before - 1), rank = 0;
    for (int32_t i = 0; i < fv_gguf_tensors(l->g); i++) {
        const char *name = fv_gguf_at(l->g, i)->name;
        if (strncmp(name, before, sizeof before - 1) == 0 && ends_with(name, ".norm.weight"))
            rank += atoi(name + sizeof before - 1) < layer;
    }
    char renumbered[FV_GGUF_NAME_MAX];
    const char *rest = strchr(own + sizeof before - 1, '.');
    snprintf(renumbered, sizeof renumbered, "%s%d%s", before, rank, rest ? rest : "");
    (void)fv_gguf_hub_name(renumbered, hub);
}

static void replace(char name[FV_GGUF_NAME_MAX], const char *from, const char *to) {
    char out[FV_GGUF_NAME_MAX];
    char *at = strstr(name, from);
    if (!at) return;
    int n = snprintf(out, sizeof out, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
    if (n < FV_GGUF_NAME_MAX) memcpy(name, out, sizeof out);
}

/* Names of the tower whose meaning depends on its projector or on other tensors. */
static void rename_in_tower(const lister *l, const fv_gguf_tensor *t, char hub[FV_GGUF_NAME_MAX]) {
    const fv_gguf_tensor *up = fv_gguf_find(l->g, "v.blk.0.ffn_up.weight");
    const fv_gguf_tensor *q = fv_gguf_find(l->g, "v.blk.0.attn_out.weight");
    rank_deepstack(l, t->name, hub);
    if (l->projector == FV_GGUF_QWEN_VL)
        replace(hub, "vision_tower.vision_model.post_layernorm.", "multi_modal_projector.norm.");
    if (fv_gguf_find(l->g, "v.blk.0.ffn_gate.weight")) {
        replace(hub, ".mlp.fc1.", ".mlp.up_proj.");
        replace(hub, ".mlp.fc2.", ".mlp.down_proj.");
    } else if (up && q && fv_gguf_is_swapped(up, q->shape[0])) {
        bool first = strstr(hub, ".mlp.fc1.") != NULL;
        replace(hub, first ? ".mlp.fc1." : ".mlp.fc2.", first ? ".mlp.fc2." : ".mlp.fc1.");
    }
}

/* Factors of frequencies go into config.json (gguf/config.c); img_break is a copy of a row of the embedding;
 * layers that predict tokens further ahead are not used. */
static bool is_weight(const lister *l, const char *name) {
    if (l->recurrent && strncmp(name, "blk.", 4) == 0 && atoi(name + 4) >= l->layers.n_layer)
        return false;
    return strcmp(name, "rope_freqs.weight") != 0 && strcmp(name, "v.token_embd.img_break") != 0;
}

static void name_tensor(const lister *l, const fv_gguf_tensor *t, char hub[FV_GGUF_NAME_MAX]) {
    if (!is_weight(l, t->name)) {
        hub[0] = '\0';
        return;
    }
    if (!fv_gguf_hub_name(t->name, hub)) snprintf(hub, FV_GGUF_NAME_MAX, "%s", t->name);
    if (l->tower) rename_in_tower(l, t, hub);
    if (l->gemma && strstr(t->name, ".ffn_norm."))
        replace(hub, "post_attention_layernorm", "pre_feedforward_layernorm");
}

/* ---- forms ------------------------------------------------------------------------------- */

/* Follows the rows of t by those of others: `span` rows of each in turn. */
static void follow(const fv_gguf_tensor *const *others, int32_t n, int32_t dim, int64_t span,
                   fv_safetensors_entry *e, fv_gguf_form *f) {
    for (int32_t i = 0; i < n; i++) f->more[f->n_more++] = others[i]->data;
    f->span = (int32_t)span;
    e->shape[dim] *= n + 1;
}

/* A bias or another vector of several: small, and copied. */
static fv_status copy_together(const lister *l, const fv_gguf_tensor *const *all, int32_t n,
                               fv_safetensors_entry *e) {
    void *to;
    FV_TRY(fv_arena_array(l->arena, (size_t)n, all[0]->bytes, &to));
    for (int32_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * all[0]->bytes, all[i]->data, all[0]->bytes);
    e->data = to;
    e->bytes = (size_t)n * all[0]->bytes;
    e->shape[0] *= n;
    return FV_OK;
}

/* Queries, keys and values as one matrix. */
static fv_status join_qkv(const lister *l, const fv_gguf_tensor *q, fv_safetensors_entry *e,
                          fv_gguf_form *f) {
    const fv_gguf_tensor *all[3] = {q, sibling(l, q, ".attn_q.", ".attn_k."),
                                    sibling(l, q, ".attn_q.", ".attn_v.")};
    if (!all[1] || !all[2]) return FV_OK;
    FV_TRY(check_pair(l, q, all[1]));
    FV_TRY(check_pair(l, q, all[2]));
    replace(f->hub, ".q_proj.", ".qkv.");
    if (q->n_dim == 1) return copy_together(l, all, 3, e);
    follow(all + 1, 2, 0, q->shape[0], e, f);
    return FV_OK;
}

/* Gate and up of each expert, one after the other. */
static fv_status join_experts(const lister *l, const fv_gguf_tensor *gate, fv_safetensors_entry *e,
                              fv_gguf_form *f) {
    const fv_gguf_tensor *up = sibling(l, gate, ".ffn_gate_exps.", ".ffn_up_exps.");
    if (!up || gate->n_dim != 3) return FV_OK;
    FV_TRY(check_pair(l, gate, up));
    follow(&up, 1, 1, gate->shape[1], e, f);
    return FV_OK;
}

/* A kernel over two frames, [out, channels, 2, y, x], of two kernels. */
static fv_status join_frames(const lister *l, const fv_gguf_tensor *first,
                             fv_safetensors_entry *e) {
    const fv_gguf_tensor *second = sibling(l, first, ".weight", ".weight.1");
    fv_dtype dtype;
    if (!second || first->n_dim != 4) return FV_OK;
    FV_TRY(check_pair(l, first, second));
    if (!fv_safetensors_dtype(first->type, &dtype))
        return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is of type %s; F32, F16 and BF16 are read",
                       fv_gguf_where(l->g), first->name, first->type);
    size_t n = (size_t)(first->shape[0] * first->shape[1]), each = first->bytes / n;
    void *to;
    FV_TRY(fv_arena_array(l->arena, 2 * n, each, &to));
    for (size_t i = 0; i < n; i++) {
        memcpy((char *)to + 2 * i * each, (const char *)first->data + i * each, each);
        memcpy((char *)to + (2 * i + 1) * each, (const char *)second->data + i * each, each);
    }
    e->data = to;
    e->bytes = 2 * first->bytes;
    e->n_dim = 5;
    e->shape[4] = e->shape[3];
    e->shape[3] = e->shape[2];
    e->shape[2] = 2;
    return FV_OK;
}

/* Subtracts the 1 that Gemma's network adds itself. */
static fv_status subtract_one(const lister *l, const fv_gguf_tensor *t, fv_safetensors_entry *e) {
    size_t n = t->bytes / sizeof(float);
    float *to, x;
    if (strcmp(t->type, "F32") != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is of type %s; a norm must be F32",
                       fv_gguf_where(l->g), t->name, t->type);
    FV_TRY(FV_ARENA_NEW(l->arena, n, to));
    for (size_t i = 0; i < n; i++) {
        memcpy(&x, (const char *)t->data + i * sizeof x, sizeof x);
        to[i] = x - 1;
    }
    e->data = to;
    return FV_OK;
}

/* ---- recurrent layers -------------------------------------------------------------------- */

/* Returns whether the tiles are all rows, or columns, of t. Where they are not, the shape of t is refused later. */
static bool is_tiled(const fv_gguf_tiles *tiles, const fv_gguf_tensor *t) {
    int64_t heads = (int64_t)tiles->n * tiles->each;
    return t->shape[tiles->columns ? t->n_dim - 1 : 0] == tiles->first + heads * tiles->width;
}

/* Orders `n` runs of `bytes` bytes, one a row of a small tensor in f32. */
static fv_status untile_small(const lister *l, const fv_gguf_tiles *tiles, const fv_gguf_tensor *t,
                              fv_safetensors_entry *e) {
    size_t n = (size_t)t->shape[0], bytes = t->bytes / n;
    void *to;
    if (strcmp(t->type, "F32") != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: tensor '%s' is of type %s; it must be F32",
                       fv_gguf_where(l->g), t->name, t->type);
    if (!is_tiled(tiles, t)) return FV_OK;
    FV_TRY(fv_arena_array(l->arena, n, bytes, &to));
    for (size_t i = 0; i < n; i++)
        memcpy((char *)to + i * bytes,
               (const char *)t->data + fv_gguf_untile(tiles, false, i) * bytes, bytes);
    e->data = to;
    return FV_OK;
}

/* A_log = log(-ssm_a), of a copy. */
static fv_status take_logarithm(const lister *l, const fv_gguf_tensor *t, float *x) {
    for (size_t i = 0; i < t->bytes / sizeof *x; i++) {
        if (!(x[i] < 0))
            return FV_FAIL(FV_EDATA, "%s: tensor '%s' must hold numbers below 0",
                           fv_gguf_where(l->g), t->name);
        x[i] = logf(-x[i]);
    }
    return FV_OK;
}

static fv_status form_recurrent(const lister *l, const fv_gguf_tensor *t, fv_safetensors_entry *e,
                                fv_gguf_form *f) {
    const fv_gguf_recurrent *r = &l->layers;
    const fv_gguf_tiles all = {.n = r->n_key, .each = r->n_value / r->n_key, .width = r->d_value};
    fv_gguf_tiles one = all, behind = all, columns = all;
    one.width = 1;
    behind.first = 2 * r->n_key * r->d_key;
    columns.columns = true;
    if (strstr(t->name, ".attn_qkv.")) f->tiles = behind;
    if (strstr(t->name, ".attn_gate.")) f->tiles = all;
    if (strstr(t->name, ".ssm_alpha.") || strstr(t->name, ".ssm_beta.")) f->tiles = one;
    if (strstr(t->name, ".ssm_out.")) f->tiles = columns;
    if (!is_tiled(&f->tiles, t)) f->tiles = (fv_gguf_tiles){0};
    if (strstr(t->name, ".ssm_conv1d.")) return untile_small(l, &behind, t, e);
    if (strstr(t->name, ".ssm_dt.")) return untile_small(l, &one, t, e);
    if (!ends_with(t->name, ".ssm_a")) return FV_OK;
    FV_TRY(untile_small(l, &one, t, e));
    return e->data == t->data ? FV_OK : take_logarithm(l, t, (float *)(uintptr_t)e->data);
}

/* Returns whether the network adds 1 to this norm itself. */
static bool has_one_added(const lister *l, const char *name) {
    if (l->tower) return strcmp(name, "mm.soft_emb_norm.weight") == 0;
    return (l->gemma || l->recurrent) && ends_with(name, "norm.weight") &&
           !ends_with(name, ".ssm_norm.weight");
}

static fv_status form_tensor(const lister *l, const fv_gguf_tensor *t, fv_safetensors_entry *e,
                             fv_gguf_form *f) {
    if (l->tower && l->projector == FV_GGUF_QWEN_VL && strstr(t->name, ".attn_q."))
        return join_qkv(l, t, e, f);
    if (strstr(t->name, ".ffn_gate_exps.")) return join_experts(l, t, e, f);
    if (strcmp(t->name, "v.patch_embd.weight") == 0) return join_frames(l, t, e);
    if (has_one_added(l, t->name)) return subtract_one(l, t, e);
    return l->recurrent ? form_recurrent(l, t, e, f) : FV_OK;
}

/* Returns whether t is part of another entry. */
static bool is_joined(const lister *l, const fv_gguf_tensor *t) {
    bool qwen = l->tower && l->projector == FV_GGUF_QWEN_VL;
    return (qwen &&
            (sibling(l, t, ".attn_k.", ".attn_q.") || sibling(l, t, ".attn_v.", ".attn_q."))) ||
           sibling(l, t, ".ffn_up_exps.", ".ffn_gate_exps.") ||
           strcmp(t->name, "v.patch_embd.weight.1") == 0;
}

/* Only the first file of a model has metadata. */
static fv_status look(const fv_gguf_set *s, lister *l) {
    fv_gguf_string arch = {"", 0};
    l->tower = l->g == s->mmproj;
    if (l->tower) return fv_gguf_projector_of(l->g, &l->projector);
    FV_TRY(fv_gguf_text(s->model[0], "general.architecture", &arch));
    l->gemma = arch.n == 6 && memcmp(arch.s, "gemma3", 6) == 0;
    l->recurrent = arch.n >= 6 && memcmp(arch.s, "qwen35", 6) == 0;
    if (!l->recurrent) return FV_OK;
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)(arch.n < sizeof name ? arch.n : 0), arch.s);
    return fv_gguf_recurrent_of(s->model[0], name, &l->layers);
}

fv_status fv_gguf_tensors_list(const fv_gguf_set *s, const fv_gguf *g, fv_arena *arena,
                               fv_safetensors_entry **entry, fv_gguf_form **form, int32_t *n) {
    lister l = {.s = s, .g = g, .arena = arena};
    fv_safetensors_entry *entries;
    fv_gguf_form *forms;
    int32_t at = 0;
    FV_TRY(look(s, &l));
    FV_TRY(FV_ARENA_NEW(arena, fv_gguf_tensors(g), entries));
    FV_TRY(FV_ARENA_NEW(arena, fv_gguf_tensors(g), forms));
    for (int32_t i = 0; i < fv_gguf_tensors(g); i++) {
        const fv_gguf_tensor *t = fv_gguf_at(g, i);
        fv_safetensors_entry *e = &entries[at];
        if (is_joined(&l, t)) continue;
        *e = (fv_safetensors_entry){
            .name = t->name, .n_dim = t->n_dim, .data = t->data, .bytes = t->bytes};
        memcpy(e->dtype, t->type, strlen(t->type) + 1);
        memcpy(e->shape, t->shape, sizeof t->shape);
        name_tensor(&l, t, forms[at].hub);
        FV_TRY(form_tensor(&l, t, e, &forms[at]));
        at++;
    }
    *entry = entries;
    *form = forms;
    *n = at;
    return FV_OK;
}
