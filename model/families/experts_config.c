/* Parses the keys of mixtures of experts. */
#include "model/families/text_config_internal.h"

enum {
    EXPERT_ROWS_MAX = 1 << 24,
    EXPERTS_APART_MAX = 1 << 15, /* of all layers, as each is three tensors */
};

/* Parses the sparse layers: every decoder_sparse_step-th, without those of mlp_only_layers. */
static fv_status parse_sparse(const json_t *obj, const char *where, fv_text_config *t) {
    const json_t *dense = fv_config_member(obj, "mlp_only_layers"), *item;
    int32_t step = 1;
    size_t i;
    FV_TRY(fv_json_i32(obj, "decoder_sparse_step", where, 1, INT32_MAX, &step));
    for (int32_t l = 0; l < t->n_layer; l++) t->sparse[l] = (l + 1) % step == 0;
    if (dense && !json_is_array(dense))
        return FV_FAIL(FV_EDATA, "%s: key 'mlp_only_layers' must be a list of layers", where);
    json_array_foreach(dense, i, item) {
        const json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item))
            return FV_FAIL(FV_EDATA, "%s: key 'mlp_only_layers' must hold integers", where);
        if (layer >= 0 && layer < t->n_layer) t->sparse[layer] = false;
    }
    return FV_OK;
}

/* Parses the shared expert of Qwen3.5, all of whose layers are sparse. */
static fv_status parse_shared(const json_t *obj, const char *where, fv_text_config *t) {
    t->shared_gated = true;
    t->d_shared = 512;
    for (int32_t l = 0; l < FV_MAX_LAYERS; l++) t->sparse[l] = true;
    FV_TRY(fv_json_i32(obj, "shared_expert_intermediate_size", where, 1, FV_CONFIG_FFN_MAX,
                       &t->d_shared));
    t->d_ffn = t->d_shared; /* no layer has another */
    return FV_OK;
}

/* Checks that every group has two experts whose scores are summed, and that the open groups have enough. */
static fv_status check_groups(const char *where, const fv_text_config *t) {
    const int32_t n = t->router.n_group, open = t->router.n_open;
    if (t->n_expert % n == 0 && t->n_expert / n >= 2 && open <= n &&
        t->n_expert / n * open >= t->n_active)
        return FV_OK;
    return FV_FAIL(
        FV_EDATA,
        "%s: keys 'n_group' (%d) and 'topk_group' (%d): %d experts must be groups of equal "
        "size, at least two each, and %d of them must be in 'topk_group' groups",
        where, n, open, t->n_expert, t->n_active);
}

/* Parses GLM-4.5's router, its shared expert, and the dense layers ahead of the sparse ones. */
static fv_status parse_glm_moe(const json_t *obj, const char *where, fv_text_config *t) {
    int32_t dense = 1, n_shared = 1;
    t->experts_apart = true;
    t->router =
        (fv_router_config){.sigmoid = true, .normed = true, .n_group = 1, .n_open = 1, .scale = 1};
    FV_TRY(fv_json_i32(obj, "first_k_dense_replace", where, 0, INT32_MAX, &dense));
    FV_TRY(fv_json_i32(obj, "n_shared_experts", where, 1, FV_EXPERTS_MAX, &n_shared));
    FV_TRY(fv_json_i32(obj, "n_group", where, 1, FV_EXPERTS_MAX, &t->router.n_group));
    FV_TRY(fv_json_i32(obj, "topk_group", where, 1, FV_EXPERTS_MAX, &t->router.n_open));
    FV_TRY(fv_json_bool(obj, "norm_topk_prob", where, &t->router.normed));
    FV_TRY(fv_json_f32(obj, "routed_scaling_factor", where, &t->router.scale));
    FV_TRY(fv_config_positive("routed_scaling_factor", (double)t->router.scale, where));
    for (int32_t l = dense; l < t->n_layer; l++) t->sparse[l] = true;
    const int64_t shared = (int64_t)n_shared * t->d_expert;
    if (shared > FV_CONFIG_FFN_MAX)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: keys 'n_shared_experts' and 'moe_intermediate_size': a shared expert of "
            "width %lld; the most is %d",
            where, (long long)shared, FV_CONFIG_FFN_MAX);
    t->d_shared = (int32_t)shared;
    if (t->n_expert * t->n_layer > EXPERTS_APART_MAX)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: %d layers of 'n_routed_experts' %d have more than %d experts", where,
                       t->n_layer, t->n_expert, EXPERTS_APART_MAX);
    return check_groups(where, t);
}

fv_status fv_config_experts(const json_t *obj, const char *where, const fv_text_family *f,
                            fv_text_config *t) {
    t->n_expert = f->n_expert, t->n_active = f->n_active, t->d_expert = f->d_expert;
    t->experts_transposed = f->transposed;
    FV_TRY(fv_json_i32(obj, "num_local_experts", where, 1, FV_EXPERTS_MAX, &t->n_expert));
    FV_TRY(fv_json_i32(obj, f->glm_moe ? "n_routed_experts" : "num_experts", where, 1,
                       FV_EXPERTS_MAX, &t->n_expert));
    FV_TRY(fv_json_i32(obj, "num_experts_per_tok", where, 1, FV_EXPERTS_MAX, &t->n_active));
    FV_TRY(fv_json_i32(obj, "moe_intermediate_size", where, 1, FV_CONFIG_WIDTH_MAX, &t->d_expert));
    const int64_t rows =
        (int64_t)t->n_expert * (t->d_model > 2 * t->d_expert ? t->d_model : 2 * t->d_expert);
    if (t->n_active > t->n_expert)
        return FV_FAIL(FV_EDATA, "%s: key 'num_experts_per_tok' is %d, and '%s' %d", where,
                       t->n_active, f->glm_moe ? "n_routed_experts" : "num_experts", t->n_expert);
    if (rows > EXPERT_ROWS_MAX)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: %d experts of 'hidden_size' %d and 'moe_intermediate_size' %d have more "
            "than %d rows in one tensor",
            where, t->n_expert, t->d_model, t->d_expert, EXPERT_ROWS_MAX);
    if (f->recurrent) return parse_shared(obj, where, t);
    if (f->glm_moe) return parse_glm_moe(obj, where, t);
    return parse_sparse(obj, where, t);
}
