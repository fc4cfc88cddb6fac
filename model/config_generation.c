/* generation_config.json: sampling unless a request says otherwise, and eos ids.
 *
 * The file and every key in it are optional. Unsupported settings (beams, n-gram bans, ...) change
 * answers but not the network, so they are logged and not refused. */
#include "common/log.h"
#include "model/config.h"
#include "model/families/keys.h"

/* Value at which each of these keys has no effect. */
static const struct {
    const char *key;
    double neutral;
} ignored[] = {
    {"num_beams", 1},  {"num_beam_groups", 1}, {"no_repeat_ngram_size", 0},
    {"typical_p", 1},  {"min_p", 0},           {"epsilon_cutoff", 0},
    {"eta_cutoff", 0}, {"penalty_alpha", 0},   {"min_new_tokens", 0},
};

static void log_ignored(const json_t *root, const char *where) {
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        const json_t *v = fv_config_member(root, ignored[i].key);
        if (json_is_number(v) && json_number_value(v) != ignored[i].neutral)
            FV_LOG(WARN, MODEL, "event=ignored file=%s key=%s value=%g", where, ignored[i].key,
                   json_number_value(v));
    }
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg,
                       fv_generation_config *gen) {
    FV_TRY(fv_json_bool(root, "do_sample", where, &gen->do_sample));
    FV_TRY(fv_json_f32(root, "temperature", where, &gen->temperature));
    FV_TRY(fv_json_f32(root, "top_p", where, &gen->top_p));
    FV_TRY(fv_json_i32(root, "top_k", where, 0, INT32_MAX, &gen->top_k));
    FV_TRY(fv_json_f32(root, "repetition_penalty", where, &gen->repetition_penalty));
    /* 0 means greedy in practice; it has no effect while sampling is off. */
    if (!(gen->temperature > 0 || (!gen->do_sample && gen->temperature == 0)))
        return FV_FAIL(FV_EDATA, "%s: key 'temperature' is %g; it must be greater than 0", where,
                       (double)gen->temperature);
    if (!(gen->top_p > 0 && gen->top_p <= 1))
        return FV_FAIL(FV_EDATA, "%s: key 'top_p' is %g; it must be in (0, 1]", where,
                       (double)gen->top_p);
    if (!(gen->repetition_penalty > 0))
        return FV_FAIL(FV_EDATA, "%s: key 'repetition_penalty' is %g; it must be greater than 0",
                       where, (double)gen->repetition_penalty);
    log_ignored(root, where);

    fv_model_config eos = {0};
    bool named = false;
    if (!cfg->eos_is_default) eos = *cfg;
    FV_TRY(fv_config_add_eos(root, where, &eos, &named));
    if (!named) return FV_OK;
    cfg->n_eos = eos.n_eos;
    for (int32_t i = 0; i < eos.n_eos; i++) cfg->eos[i] = eos.eos[i];
    cfg->eos_is_default = false;
    return FV_OK;
}

fv_status fv_generation_parse(const char *json, size_t n, const char *where, fv_model_config *cfg,
                              fv_generation_config *gen) {
    fv_generation_config g = {
        .do_sample = false, .temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 50};
    if (n > 0) {
        json_t *root = NULL;
        FV_TRY(fv_json_object(json, n, where, &root));
        fv_status st = parse(root, where, cfg, &g);
        json_decref(root);
        FV_TRY(st);
    }
    *gen = g;
    return FV_OK;
}
