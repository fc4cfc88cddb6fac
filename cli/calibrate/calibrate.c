/* fovea calibrate: runs items -> attention of each layer -> differences between layers -> blocks
 * that may share queries and keys -> calibration.json beside the checkpoint; also thresholds of
 * prune=visipruner, the layer of prune=vtw and schedules of prune=fitprune. With --latent the
 * directions of pack=latent instead (latent.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/calibrate/calibrate.h"
#include "cli/client/command.h"
#include "cli/client/output.h"
#include "cli/client/progress.h"
#include "cli/client/request.h"
#include "cli/eval/session.h"
#include "common/file.h"
#include "common/log.h"
#include "eval/scenes/divergence.h"
#include "model/calibration.h"

typedef struct calibration {
    int32_t n_layer, n_item;
    bool visual; /* attention to visual tokens only */
    double *s;   /* [n_layer, n_layer] divergence, summed over items */
} calibration;

static double *at(const calibration *c, int32_t a, int32_t b) {
    return &c->s[(size_t)a * (size_t)c->n_layer + (size_t)b];
}

/* attention: of the prompt's last row, [n_layer, n], mean over heads. */
static fv_status on_attention(void *user, const float *attention, int32_t n_layer, int32_t n,
                              int32_t n_visual) {
    calibration *c = user;
    const int32_t of = c->visual ? n_visual : n;
    for (int32_t a = 0; a < n_layer; a++)
        for (int32_t b = a + 1; b < n_layer; b++) {
            double js = fv_js_divergence(attention + (size_t)a * (size_t)n,
                                         attention + (size_t)b * (size_t)n, of);
            *at(c, a, b) += js;
            *at(c, b, a) += js;
        }
    c->n_item++;
    return FV_OK;
}

/* ---- running items ---------------------------------------------------------------------- */

static fv_status ask_item(const fv_calibrate *c, const fv_policy *policy, const fv_item *item,
                          fv_image *image, const fv_ask_hooks *hooks) {
    int32_t side = fv_eval_session_side(fv_local_config(c->local));
    for (int32_t i = 0; i < item->n_image; i++)
        FV_TRY(fv_eval_session_render(&item->scene[i], side, &image[i]));
    fv_report report = {0};
    fv_ask ask = {.n_image = item->n_image,
                  .images = image,
                  .question = item->turn[0].question,
                  .policy = *policy,
                  .sampling = fv_sampling_default(),
                  .max_tokens = c->answer_tokens > 0 ? c->answer_tokens : 1};
    fv_status st = fv_local_ask(c->local, &ask, hooks, &report);
    fv_report_free(&report);
    return st;
}

static fv_status look_at_item(const fv_calibrate *c, const fv_policy *policy, int32_t i,
                              const fv_ask_hooks *hooks) {
    fv_item item;
    fv_image image[FV_ITEM_IMAGES] = {{0}};
    const fv_scene_knobs rich = fv_scene_knobs_rich();
    FV_TRY(fv_item_make(FV_SPLIT_TRAIN, (fv_scene_task)(i % FV_N_TASK), (uint64_t)(i / FV_N_TASK),
                        c->rich ? &rich : NULL, &item));
    fv_status st = ask_item(c, policy, &item, image, hooks);
    for (int32_t k = 0; k < item.n_image; k++) fv_image_free(&image[k]);
    return st;
}

fv_status fv_calibrate_run_items(const fv_calibrate *c, const char *policy,
                                 const fv_ask_hooks *hooks, const char *what) {
    fv_policy parsed;
    fv_progress progress;
    fv_status st = FV_OK;
    FV_TRY(fv_policy_parse(policy, &parsed));
    fv_progress_begin(&progress);
    for (int32_t i = 0; i < c->n_item && st == FV_OK; i++) {
        st = look_at_item(c, &parsed, i, hooks);
        fv_progress_show(&progress, i + 1, c->n_item, what);
    }
    fv_progress_end(&progress);
    return st;
}

fv_status fv_calibrate_write(const fv_calibrate *c, const char *name, json_t *found) {
    if (!found) return FV_FAIL(FV_ENOMEM, "out of memory for the calibration");
    fv_status st = fv_calibration_write(fv_options_string(c->options, "checkpoint"),
                                        fv_local_fingerprint(c->local), name, found);
    json_decref(found);
    return st;
}

static fv_status look_at_attention(const fv_calibrate *look, calibration *c) {
    fv_ask_hooks hooks = {.user = c, .attention = on_attention};
    c->n_layer = look->n_layer;
    c->visual = fv_options_flag(look->options, "visual");
    c->s = calloc((size_t)c->n_layer * (size_t)c->n_layer, sizeof *c->s);
    if (!c->s) return FV_FAIL(FV_ENOMEM, "out of memory for %d layers", c->n_layer);
    FV_TRY(fv_calibrate_run_items(look, "", &hooks, "attention"));
    for (size_t i = 0; i < (size_t)c->n_layer * (size_t)c->n_layer; i++) c->s[i] /= c->n_item;
    return FV_OK;
}

/* ---- results ----------------------------------------------------------------------------- */

/* Without --lazy, takes as many lazy layers as map=training_free has: the same bytes, but this
 * checkpoint's own layers. */
static fv_status choose_epsilon(const calibration *c, const fv_options *o, double *epsilon) {
    int32_t wanted = (int32_t)fv_options_int(o, "lazy"), n = 0;
    fv_policy policy;
    fv_plan plan;
    fv_plan_shape shape = {.n_layer = c->n_layer, .n_kv = 1, .n_text = 1};
    *epsilon = fv_options_float(o, "epsilon");
    if (*epsilon > 0) return FV_OK;
    FV_TRY(fv_policy_parse("lazy=gla,map=training_free", &policy));
    FV_TRY(fv_plan_make(&policy, &shape, &plan));
    for (int32_t l = 0; l < c->n_layer; l++) n += plan.share.source_layer[l] != l;
    *epsilon = fv_similar_epsilon(c->s, c->n_layer, wanted < 0 ? n : wanted,
                                  (int32_t)fv_options_int(o, "cap"));
    return FV_OK;
}

static json_t *to_json(const calibration *c, const fv_options *o, double epsilon,
                       const int32_t *source_layer) {
    json_t *source_layers = json_array(), *rows = json_array();
    for (int32_t l = 0; l < c->n_layer; l++) {
        json_t *row = json_array();
        json_array_append_new(source_layers, json_integer(source_layer[l]));
        for (int32_t k = 0; k < c->n_layer; k++)
            json_array_append_new(row, json_real(*at(c, l, k)));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o, s:s, s:f, s:i, s:i, s:o}", "source_layers", source_layers, "attention",
                     c->visual ? "visual" : "all", "epsilon", epsilon, "cap",
                     (int)fv_options_int(o, "cap"), "items", c->n_item, "divergence", rows);
}

static void print_found(const calibration *c, double epsilon, const int32_t *source_layer) {
    int32_t n_lazy = 0;
    printf("layer  source  divergence from the layer before (nats)%s\n",
           c->visual ? ", of attention to visual tokens" : "");
    for (int32_t l = 0; l < c->n_layer; l++) {
        n_lazy += source_layer[l] != l;
        printf("%5d  %6d", l, source_layer[l]);
        if (l > 0) printf("  %.4f", *at(c, l - 1, l));
        printf("\n");
    }
    printf("%d of %d layers can be lazy, differing by less than %.4f: lazy=vla,map=calibrated\n",
           n_lazy, c->n_layer, epsilon);
}

static fv_status write_found(const fv_calibrate *look, const calibration *c) {
    const fv_options *o = look->options;
    int32_t source_layer[FV_PLAN_MAX_LAYERS];
    double epsilon;
    FV_TRY(choose_epsilon(c, o, &epsilon));
    fv_similar_blocks(c->s, c->n_layer, epsilon, (int32_t)fv_options_int(o, "cap"), source_layer);
    FV_TRY(fv_calibrate_write(look, "lazy", to_json(c, o, epsilon, source_layer)));
    print_found(c, epsilon, source_layer);
    return FV_OK;
}

static fv_status measure(const fv_calibrate *look) {
    calibration c = {0};
    fv_status st;
    FV_TRY_GOTO(look_at_attention(look, &c), st, out);
    st = write_found(look, &c);
out:
    free(c.s);
    if (st == FV_OK) st = fv_calibrate_visipruner(look);
    if (st == FV_OK) st = fv_calibrate_vtw(look);
    return st == FV_OK ? fv_calibrate_fitprune(look) : st;
}

static fv_status check_output(const fv_options *o) {
    char path[4096];
    FV_TRY(fv_path_join(fv_options_string(o, "checkpoint"),
                        fv_options_flag(o, "latent") ? "latent.bin" : "calibration.json", path,
                        sizeof path));
    return fv_output_check(path);
}

static fv_status calibrate(const fv_options *o) {
    const char *const *rest;
    fv_local *local = NULL;
    if (fv_options_positional(o, &rest) > 0)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option", rest[0]);
    if (fv_options_string(o, "weights"))
        return FV_FAIL(FV_EINVAL,
                       "fovea calibrate measures the checkpoint as it is stored: leave out "
                       "--weights");
    bool rich;
    FV_TRY(fv_eval_session_scenes(fv_options_string(o, "scenes"), &rich));
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(fv_request_engine(o, 1, false, &local));
    const fv_model_config *cfg = fv_local_config(local);
    fv_calibrate look = {.options = o,
                         .local = local,
                         .n_item = (int32_t)fv_options_int(o, "items"),
                         .n_layer = cfg->text.n_layer,
                         .rich = rich};
    fv_status st = check_output(o);
    if (st == FV_OK)
        st = cfg->has_vision ? (fv_options_flag(o, "latent") ? fv_calibrate_latent : measure)(&look)
                             : FV_FAIL(FV_EINVAL, "the checkpoint has no vision tower: nothing to "
                                                  "calibrate for");
    fv_local_close(local);
    return st;
}

static int run(const fv_options *o) { return fv_cli_end(&fv_cli_calibrate, calibrate(o)); }

const fv_command fv_cli_calibrate = {.program = FV_PROGRAM_CALIBRATE, .run = run};
