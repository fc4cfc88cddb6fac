/* Reads adapter_config.json. What changes the network's result and is not computed here is refused by name, and so is a
 * key that PEFT may add later: an adapter is never run as another one than was trained. */
#include "model/adapter_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/adapter.h"
#include "model/families/keys.h"

/* Keys that do not change what a trained adapter computes, and those that are read below. */
static const char *const known[] = {
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
    "lora_ga_config",
    "ensure_weight_tying",
};

/* Keys that change what is computed, and what to do about each. */
static const struct {
    const char *key, *advice;
} refused[] = {
    {"use_dora", "DoRA scales the base weights' rows: merge the adapter into the model "
                 "(merge_and_unload() in PEFT) and serve that"},
    {"modules_to_save", "whole modules were trained: merge the adapter into the model "
                        "(merge_and_unload() in PEFT) and serve that"},
    {"trainable_token_indices", "embeddings were trained: merge the adapter into the model "
                                "(merge_and_unload() in PEFT) and serve that"},
    {"target_parameters", "parameters of experts were trained, which adapters cannot change here: "
                          "merge the adapter into the model and serve that"},
    {"layer_replication", "layers are repeated: save the model with these layers and serve that"},
    {"lora_bias", "the low-rank layers have a bias: merge the adapter into the model and serve "
                  "that"},
    {"use_qalora", "its inputs are pooled: merge the adapter into the model and serve that"},
    {"use_bdlora", "its matrices are block-diagonal: merge the adapter into the model and serve "
                   "that"},
    {"alora_invocation_tokens", "the adapter begins within a prompt: only adapters of a whole "
                                "prompt are served"},
    {"arrow_config", "the adapter chooses among others: name one of them in the request instead"},
};

/* Ways to initialize that leave the base weights as they are. Others subtract from them, so the saved matrices belong to
 * other base weights. */
static const char *const plain_init[] = {"gaussian", "eva", "orthogonal"};

static bool is_known(const char *key) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], key) == 0) return true;
    return false;
}

/* Whether a value, or NULL, switches something on. */
static bool is_set(const json_t *v) {
    if (!v) return false;
    if (json_is_object(v)) return json_object_size(v) > 0;
    if (json_is_array(v)) return json_array_size(v) > 0;
    return !json_is_null(v) && !json_is_false(v);
}

static fv_status check_keys(json_t *root, const char *where) {
    const char *key;
    json_t *v;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (is_set(json_object_get(root, refused[i].key)))
            return FV_FAIL(FV_EUNSUPPORTED, "%s: '%s' is not supported: %s", where, refused[i].key,
                           refused[i].advice);
    json_object_foreach(root, key, v) {
        bool listed = is_known(key);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            listed |= strcmp(refused[i].key, key) == 0;
        if (!listed && is_set(v))
            return FV_FAIL(FV_EUNSUPPORTED,
                           "%s: the key '%.64s' is not known, and may change what the adapter "
                           "computes: merge the adapter into the model (merge_and_unload() in "
                           "PEFT) and serve that",
                           where, key);
    }
    return FV_OK;
}

static fv_status check_type(const json_t *root, const char *where) {
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    if (type && strcmp(type, "LORA") == 0) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: 'peft_type' is %.32s; only LORA is supported", where,
                   type ? type : "missing");
}

static fv_status check_bias(const json_t *root, const char *where) {
    const char *bias = json_string_value(json_object_get(root, "bias"));
    if (!bias || strcmp(bias, "none") == 0) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: 'bias' is %.32s: biases of the base model were trained; merge the adapter "
                   "into the model (merge_and_unload() in PEFT) and serve that",
                   where, bias);
}

static fv_status check_init(const json_t *root, const char *where) {
    const char *init = json_string_value(json_object_get(root, "init_lora_weights"));
    for (size_t i = 0; init && i < sizeof plain_init / sizeof *plain_init; i++)
        if (strcmp(init, plain_init[i]) == 0) return FV_OK;
    if (!init) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: 'init_lora_weights' is %.32s, which changes the base weights too: save the "
                   "adapter with path_initial_model_for_weight_conversion in PEFT",
                   where, init);
}

static fv_status read_alpha(const json_t *v, const char *where, const char *key, double *out) {
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || fabs(x) > 1e9)
        return FV_FAIL(FV_EDATA, "%s: '%.200s' must be a number", where, key);
    *out = x;
    return FV_OK;
}

static fv_status read_rank(const json_t *v, const char *where, const char *key, int32_t *out) {
    json_int_t r = json_integer_value(v);
    if (!json_is_integer(v) || r < 1 || r > FV_ADAPTER_RANK_MAX)
        return FV_FAIL(FV_EDATA, "%s: '%.200s' must be a whole number from 1 to %d", where, key,
                       FV_ADAPTER_RANK_MAX);
    *out = (int32_t)r;
    return FV_OK;
}

static fv_status check_targets(const json_t *root, const char *where) {
    const json_t *t = json_object_get(root, "target_modules");
    bool fine = json_is_string(t) || (json_is_array(t) && json_array_size(t) > 0);
    for (size_t i = 0; json_is_array(t) && i < json_array_size(t); i++)
        fine &= json_is_string(json_array_get(t, i));
    return fine ? FV_OK
                : FV_FAIL(FV_EDATA, "%s: 'target_modules' must be a list of names or an expression",
                          where);
}

/* ---- patterns ------------------------------------------------------------------------------ */

/* Whether a key is letters, digits, underscores and dots alone. Its dots match any character, as in an expression. */
static bool is_name(const char *key) {
    return key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] ==
           '\0';
}

static fv_status compile(const char *key, const char *where, fv_grammar **out) {
    enum { EXPRESSION_MAX = 512 };
    static const fv_grammar_limits limits = {.compile_steps = 1000000, .bytes = 1 << 20};
    char text[EXPRESSION_MAX + 32];
    if (strlen(key) > EXPRESSION_MAX)
        return FV_FAIL(FV_EDATA, "%s: an expression in a pattern has more than %d bytes", where,
                       EXPRESSION_MAX);
    bool whole = key[0] == '^' && !strchr(key, '|'); /* a beginning cannot follow a dot */
    snprintf(text, sizeof text, whole ? "(%s)" : "(.*\\.)?(%s)", key + whole);
    fv_grammar_spec spec = {.kind = FV_GRAMMAR_REGEX, .text = text, .n_text = strlen(text)};
    fv_status st = fv_grammar_compile(&spec, &limits, out);
    return st != FV_EINVAL
               ? st
               : FV_FAIL(FV_EUNSUPPORTED,
                         "%s: the expression '%.100s' in a pattern cannot be evaluated: write the "
                         "modules' names instead",
                         where, key);
}

/* Compiles the expressions among a pattern's keys. */
static fv_status read_pattern(fv_adapter_config *c, const char *pattern, const char *where) {
    json_t *all = json_object_get(c->root, pattern), *v;
    const char *key;
    if (is_set(all) && !json_is_object(all))
        return FV_FAIL(FV_EDATA, "%s: '%s' must be an object", where, pattern);
    json_object_foreach(all, key, v) {
        fv_adapter_expression *e = &c->expression[c->n_expression];
        if (is_name(key)) continue;
        if (c->n_expression == FV_ADAPTER_EXPRESSIONS_MAX)
            return FV_FAIL(FV_EUNSUPPORTED, "%s: the patterns have more than %d expressions", where,
                           FV_ADAPTER_EXPRESSIONS_MAX);
        FV_TRY(compile(key, where, &e->grammar));
        e->key = key;
        c->n_expression++;
    }
    return FV_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

static fv_status read_all(fv_adapter_config *c, const char *where) {
    FV_TRY(check_type(c->root, where));
    FV_TRY(check_keys(c->root, where));
    FV_TRY(check_bias(c->root, where));
    FV_TRY(check_init(c->root, where));
    FV_TRY(check_targets(c->root, where));
    FV_TRY(read_pattern(c, "rank_pattern", where));
    FV_TRY(read_pattern(c, "alpha_pattern", where));
    FV_TRY(read_rank(json_object_get(c->root, "r"), where, "r", &c->rank));
    FV_TRY(read_alpha(json_object_get(c->root, "lora_alpha"), where, "lora_alpha", &c->alpha));
    return fv_json_bool(c->root, "use_rslora", where, &c->rank_scale);
}

fv_status fv_adapter_config_parse(const char *text, size_t n, const char *where,
                                  fv_adapter_config *out) {
    fv_adapter_config c = {0};
    FV_TRY(fv_json_object(text, n, where, &c.root));
    fv_status st = read_all(&c, where);
    if (st == FV_OK)
        *out = c;
    else
        fv_adapter_config_free(&c);
    return st;
}

void fv_adapter_config_free(fv_adapter_config *c) {
    for (int32_t i = 0; i < c->n_expression; i++) fv_grammar_unref(c->expression[i].grammar);
    json_decref(c->root);
    *c = (fv_adapter_config){0};
}

/* ---- modules ------------------------------------------------------------------------------- */

/* Whether `path` is `name`, or ends with a dot and `name`. */
static bool ends_with(const char *path, const char *name) {
    size_t n = strlen(path), m = strlen(name);
    if (m > n || strcmp(path + n - m, name) != 0) return false;
    return m == n || path[n - m - 1] == '.';
}

bool fv_adapter_config_targets(const fv_adapter_config *c, const char *module) {
    const json_t *t = json_object_get(c->root, "target_modules");
    if (json_is_string(t)) return true;
    for (size_t i = 0; i < json_array_size(t); i++)
        if (ends_with(module, json_string_value(json_array_get(t, i)))) return true;
    return false;
}

static bool matches_name(const char *module, const char *key) {
    size_t n = strlen(module), m = strlen(key);
    if (m > n || (m < n && module[n - m - 1] != '.')) return false;
    for (size_t i = 0; i < m; i++)
        if (key[i] != '.' && key[i] != module[n - m + i]) return false;
    return true;
}

/* Runs the module through a grammar of the expression. */
static fv_status run_expression(fv_grammar *g, const char *module, bool *out) {
    fv_token_trie *none;
    fv_matcher *m;
    const char *text = "";
    const size_t bytes = 0;
    bool legal;
    FV_TRY(fv_token_trie_make(&text, &bytes, 1, &none));
    fv_status st = fv_matcher_open(g, none, false, &m);
    if (st == FV_OK) {
        st = fv_matcher_push_text(m, module, strlen(module), &legal);
        *out = st == FV_OK && legal && fv_matcher_may_end(m);
        fv_matcher_close(m);
    }
    fv_token_trie_free(none);
    return st;
}

static fv_status matches(const fv_adapter_config *c, const char *module, const char *key,
                         bool *out) {
    for (int32_t i = 0; i < c->n_expression; i++)
        if (c->expression[i].key == key)
            return run_expression(c->expression[i].grammar, module, out);
    *out = matches_name(module, key);
    return FV_OK;
}

/* Finds the first key of a pattern that matches the module; NULL: none. */
static fv_status find(const fv_adapter_config *c, const char *pattern, const char *module,
                      const char **key, const json_t **value) {
    json_t *all = json_object_get(c->root, pattern), *v;
    const char *k;
    bool found = false;
    *key = NULL;
    json_object_foreach(all, k, v) {
        FV_TRY(matches(c, module, k, &found));
        if (!found) continue;
        *key = k;
        *value = v;
        return FV_OK;
    }
    return FV_OK;
}

fv_status fv_adapter_config_module(const fv_adapter_config *c, const char *where,
                                   const char *module, int32_t *rank, double *scale) {
    const char *key;
    const json_t *v;
    int32_t r = c->rank;
    double alpha = c->alpha;
    FV_TRY(find(c, "rank_pattern", module, &key, &v));
    if (key) FV_TRY(read_rank(v, where, key, &r));
    FV_TRY(find(c, "alpha_pattern", module, &key, &v));
    if (key) FV_TRY(read_alpha(v, where, key, &alpha));
    *rank = r;
    *scale = alpha / (c->rank_scale ? sqrt(r) : r);
    return FV_OK;
}
