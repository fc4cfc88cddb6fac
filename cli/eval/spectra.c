/* Item -> prefill -> stores -> Gram matrices -> singular values. */
#include "cli/eval/spectra.h"

#include <math.h>

#include "cli/client/progress.h"
#include "cli/eval/session.h"
#include "eval/suite/spectrum.h"

static const double SHARE = 0.99;

typedef struct spectra {
    fv_kv_shape shape;
    int32_t n_store;        /* stores summed so far */
    double rows;            /* of all stores, per head, in layer 0 */
    double *sum;            /* [n_layer, 2, d_head] sums of relative values: keys, then values */
    double *rank;           /* [n_layer, 2] */
    double *mass, *squares; /* [n_layer] attention on visual tokens, summed */
    double share;           /* share of visual rows, summed */
    double *gram, *value;   /* [d_head, d_head], [d_head] */
    double *scratch;        /* [FV_EIGEN_SCRATCH d_head] */
    fv_arena arena;         /* memory of these arrays */
} spectra;

/* Adds rows of one head's keys or values. */
static void add_rows(const spectra *s, const fv_kv *kv, int32_t layer, int32_t head, bool value) {
    int32_t d = s->shape.d_head, n = fv_kv_len(kv, layer, head, FV_SEG_VISUAL), step;
    for (int32_t row = 0; row < n; row += step) {
        void *at;
        step = fv_kv_contiguous(kv, layer, head, FV_SEG_VISUAL, value, row, n, &at);
        for (int32_t i = 0; i < step; i++)
            fv_gram_add(s->gram, d, (const float *)at + (size_t)i * (size_t)d);
    }
}

static fv_status add_head(spectra *s, const fv_kv *kv, int32_t layer, int32_t head, bool value) {
    int32_t d = s->shape.d_head, place = 2 * layer + value;
    for (int32_t i = 0; i < d * d; i++) s->gram[i] = 0;
    add_rows(s, kv, layer, head, value);
    FV_TRY(fv_singular_values(s->gram, d, s->value, s->scratch));
    if (s->value[0] <= 0) return FV_OK;
    for (int32_t i = 0; i < d; i++)
        s->sum[(size_t)place * (size_t)d + (size_t)i] += s->value[i] / s->value[0];
    s->rank[place] += fv_spectrum_rank(s->value, d, SHARE);
    return FV_OK;
}

static fv_status on_prefilled(void *user, const fv_kv *kv) {
    spectra *s = user;
    for (int32_t l = 0; l < s->shape.n_layer; l++)
        for (int32_t g = 0; g < s->shape.n_kv; g++)
            for (int value = 0; value < 2; value++) FV_TRY(add_head(s, kv, l, g, value != 0));
    s->rows += fv_kv_len(kv, 0, 0, FV_SEG_VISUAL);
    s->n_store++;
    return FV_OK;
}

static fv_status on_prompt(void *user, const char *text, const fv_prompt *prompt) {
    (void)text;
    ((spectra *)user)->share += (double)prompt->n_visual / prompt->n;
    return FV_OK;
}

static fv_status on_mass(void *user, const float *mass, int32_t n_layer) {
    spectra *s = user;
    for (int32_t l = 0; l < n_layer; l++) {
        s->mass[l] += (double)mass[l];
        s->squares[l] += (double)mass[l] * (double)mass[l];
    }
    return FV_OK;
}

static fv_status add_item(spectra *s, fv_local *local, const fv_suite *suite, int32_t side,
                          int32_t item) {
    fv_eval_session session;
    fv_report report = {0};
    FV_TRY(fv_eval_session_take(suite, side, 0, item, &session));
    fv_ask ask = {.n_image = session.item.n_image,
                  .images = session.image,
                  .n_turn = session.n_chat,
                  .turns = session.chat,
                  .sampling = fv_sampling_default(),
                  .max_tokens = 1};
    fv_ask_hooks hooks = {
        .user = s, .prompt = on_prompt, .prefilled = on_prefilled, .visual_mass = on_mass};
    fv_status st = fv_local_ask(local, &ask, &hooks, &report);
    fv_report_free(&report);
    fv_eval_session_leave(&session);
    return st;
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *values_json(const spectra *s, int32_t place) {
    int32_t d = s->shape.d_head;
    json_t *list = json_array();
    for (int32_t i = 0; i < d; i++)
        json_array_append_new(list,
                              json_real(s->sum[place * d + i] / (s->n_store * s->shape.n_kv)));
    return list;
}

static json_t *layer_json(const spectra *s, int32_t l) {
    const double *rank = s->rank + 2 * (size_t)l;
    double n = s->n_store, heads = n * s->shape.n_kv, mean = s->mass[l] / n;
    double spread = sqrt(fmax(s->squares[l] / n - mean * mean, 0));
    return json_pack("{s:o, s:o, s:f, s:f, s:f, s:f}", "k", values_json(s, 2 * l), "v",
                     values_json(s, 2 * l + 1), "k_rank99", rank[0] / heads, "v_rank99",
                     rank[1] / heads, "visual_mass", mean, "visual_mass_sd", spread);
}

static json_t *to_json(const spectra *s) {
    json_t *layers = json_array();
    for (int32_t l = 0; l < s->shape.n_layer; l++) json_array_append_new(layers, layer_json(s, l));
    return json_pack("{s:i, s:f, s:f, s:i, s:i, s:o}", "items", s->n_store, "tokens",
                     s->rows / s->n_store, "visual_share", s->share / s->n_store, "n_kv",
                     s->shape.n_kv, "d_head", s->shape.d_head, "layers", layers);
}

/* ---- the whole run ---------------------------------------------------------------------- */

static fv_status run(spectra *s, fv_local *local, const fv_suite *suite, int32_t side,
                     int32_t n_item, json_t **out) {
    size_t d = (size_t)s->shape.d_head, n = 2 * (size_t)s->shape.n_layer;
    fv_progress progress;
    FV_TRY(FV_ARENA_NEW(&s->arena, n * d, s->sum));
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->rank));
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->mass));
    FV_TRY(FV_ARENA_NEW(&s->arena, n, s->squares));
    FV_TRY(FV_ARENA_NEW(&s->arena, d * d, s->gram));
    FV_TRY(FV_ARENA_NEW(&s->arena, d, s->value));
    FV_TRY(FV_ARENA_NEW(&s->arena, FV_EIGEN_SCRATCH * d, s->scratch));
    fv_progress_begin(&progress);
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n_item && st == FV_OK; i++) {
        st = add_item(s, local, suite, side, i);
        fv_progress_show(&progress, i + 1, n_item, "spectra");
    }
    fv_progress_end(&progress);
    FV_TRY(st);
    *out = to_json(s);
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for spectra");
}

fv_status fv_eval_spectra(fv_local *local, const fv_suite *suite, int32_t side, int32_t n_item,
                          json_t **out) {
    const fv_text_config *text = &fv_local_config(local)->text;
    spectra s = {.shape = {.n_layer = text->n_layer, .n_kv = text->n_kv, .d_head = text->d_head}};
    fv_status st = run(&s, local, suite, side, n_item, out);
    fv_arena_fini(&s.arena);
    return st;
}
