/* fovea trace: runs a request and writes every intermediate result to a directory:
 *
 *   prompt.txt  input_ids.npy [L]  pixel_values.npy [n, 3, h, w]  vision_features.npy [tokens, w]
 *   image_embeds.npy [tokens, d or with deepstack a multiple] kept_<layer>.npy [Hkv, most tokens]
 *   (positions, padded with -1) visual_mass.npy [N] (share of the last prompt token's attention
 *   that visual tokens receive) logits.npy [tokens, vocab] tokens.npy [tokens] report.json
 *   answer.txt
 *
 * From a fleet (--to) it writes what clients get: tokens, answer and report, with a digest of
 * each step's logits. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "cli/client/remote.h"
#include "cli/client/report.h"
#include "cli/client/request.h"
#include "cli/client/session.h"
#include "cli/npy.h"
#include "common/file.h"

typedef struct evidence {
    const char *dir;
    const fv_local *local;
    float *logits; /* [n, vocab] */
    int32_t *tokens;
    int32_t n_logits, n_tokens;
    FILE *answer;
} evidence;

static fv_status put(const evidence *e, const char *name, fv_npy_type type, const int64_t *shape,
                     int32_t n_dim, const void *data) {
    char path[4096];
    FV_TRY(fv_path_join(e->dir, name, path, sizeof path));
    return fv_npy_write(path, type, shape, n_dim, data);
}

static fv_status on_prompt(void *user, const char *text, const fv_prompt *prompt) {
    evidence *e = user;
    char path[4096];
    FV_TRY(fv_path_join(e->dir, "prompt.txt", path, sizeof path));
    FV_TRY(fv_file_write(path, text, strlen(text)));
    return put(e, "input_ids.npy", FV_NPY_I32, (int64_t[]){prompt->n}, 1, prompt->ids);
}

/* Copies a device matrix to the host and writes it to `name`. */
static fv_status put_device(const evidence *e, const char *name, const fv_buf *buf, int64_t rows,
                            int64_t cols) {
    float *host = malloc(buf->bytes + 1);
    if (!host) return FV_FAIL(FV_ENOMEM, "out of memory for %s", name);
    fv_status st = fv_device_copy(buf->device, host, buf->data, buf->bytes);
    if (st == FV_OK) st = put(e, name, FV_NPY_F32, (int64_t[]){rows, cols}, 2, host);
    free(host);
    return st;
}

/* Writes all tiles, [n, 3, h, w], or flat if images have tiles of different sizes. */
static fv_status put_pixels(const evidence *e, const fv_encoded *encoded) {
    const fv_layout *l = encoded->layout;
    int64_t shape[] = {0, 3, l->tile.h, l->tile.w}, count = 0;
    bool same = true;
    for (int32_t i = 0; i < encoded->n_image; i++) {
        shape[0] += l[i].n_tile * l[i].frames;
        count += (int64_t)fv_image_pixels_count(&l[i]);
        same = same && l[i].tile.w == l->tile.w && l[i].tile.h == l->tile.h;
    }
    return put(e, "pixel_values.npy", FV_NPY_F32, same ? shape : &count, same ? 4 : 1,
               encoded->pixels);
}

static fv_status on_encoded(void *user, const fv_encoded *encoded) {
    evidence *e = user;
    if (encoded->n_image == 0) return FV_OK;
    const fv_model_config *cfg = fv_local_config(e->local);
    FV_TRY(put_pixels(e, encoded));
    int64_t rows = encoded->n_row;
    if (rows == 0) return FV_OK;
    if (encoded->features.data)
        FV_TRY(put_device(e, "vision_features.npy", &encoded->features,
                          fv_encoded_features(encoded, encoded->n_image),
                          fv_vision_feature_width(&cfg->vision)));
    return put_device(e, "image_embeds.npy", &encoded->embeds, rows,
                      fv_vision_embed_width(&cfg->vision));
}

/* Writes the positions that each head of a layer holds, both segments merged in ascending order. */
static fv_status put_kept(const evidence *e, const fv_kv *kv, int32_t layer) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv, most = 0;
    for (int32_t g = 0; g < n_kv; g++) {
        int32_t n = fv_kv_len(kv, layer, g, FV_SEG_VISUAL) + fv_kv_len(kv, layer, g, FV_SEG_TEXT);
        if (n > most) most = n;
    }
    int32_t *pos = malloc((size_t)n_kv * (size_t)most * sizeof *pos + 1);
    if (!pos) return FV_FAIL(FV_ENOMEM, "out of memory for kept positions");
    for (int32_t g = 0; g < n_kv; g++) {
        int32_t *row = pos + (size_t)g * (size_t)most, at[FV_N_SEG] = {0};
        for (int32_t i = 0; i < most; i++) {
            int from = -1;
            for (int s = 0; s < FV_N_SEG; s++) {
                if (at[s] == fv_kv_len(kv, layer, g, (fv_kv_segment)s)) continue;
                int32_t p = fv_kv_positions(kv, layer, g, (fv_kv_segment)s)[at[s]];
                if (from < 0 || p < row[i]) {
                    row[i] = p;
                    from = s;
                }
            }
            if (from < 0)
                row[i] = -1;
            else
                at[from]++;
        }
    }
    char name[32];
    snprintf(name, sizeof name, "kept_%03d.npy", layer);
    fv_status st = put(e, name, FV_NPY_I32, (int64_t[]){n_kv, most}, 2, pos);
    free(pos);
    return st;
}

static fv_status on_prefilled(void *user, const fv_kv *kv) {
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++) FV_TRY(put_kept(user, kv, l));
    return FV_OK;
}

static fv_status on_visual_mass(void *user, const float *mass, int32_t n_layer) {
    return put(user, "visual_mass.npy", FV_NPY_F32, (int64_t[]){n_layer}, 1, mass);
}

static fv_status on_logits(void *user, const float *logits, int32_t n_vocab) {
    evidence *e = user;
    size_t row = (size_t)n_vocab;
    float *grown = realloc(e->logits, ((size_t)e->n_logits + 1) * row * sizeof *grown);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for logits");
    e->logits = grown;
    memcpy(e->logits + (size_t)e->n_logits++ * row, logits, row * sizeof *logits);
    return FV_OK;
}

static fv_status on_token(void *user, const fv_sampled *token) {
    evidence *e = user;
    int32_t *grown = realloc(e->tokens, ((size_t)e->n_tokens + 1) * sizeof *grown);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for tokens");
    e->tokens = grown;
    e->tokens[e->n_tokens++] = token->id;
    return FV_OK;
}

static fv_status on_text(void *user, const char *text, size_t n) {
    evidence *e = user;
    if (fwrite(text, 1, n, e->answer) != n)
        return FV_FAIL(FV_EIO, "cannot write %s/answer.txt: %s", e->dir, strerror(errno));
    return FV_OK;
}

static fv_status put_logits(const evidence *e) {
    int64_t vocab = fv_local_config(e->local)->text.vocab;
    return put(e, "logits.npy", FV_NPY_F32, (int64_t[]){e->n_logits, vocab}, 2, e->logits);
}

static fv_status put_results(const evidence *e, const fv_report_source *source,
                             const fv_report *report) {
    FV_TRY(put(e, "tokens.npy", FV_NPY_I32, (int64_t[]){e->n_tokens}, 1, e->tokens));
    char path[4096];
    FV_TRY(fv_path_join(e->dir, "report.json", path, sizeof path));
    json_t *json = fv_report_json(source, report);
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for %s", path);
    fv_status st = fv_output_json_file(json, path);
    json_decref(json);
    return st;
}

static fv_status make_dir(evidence *e) {
    char path[4096];
    FV_TRY(fv_dir_make(e->dir));
    FV_TRY(fv_path_join(e->dir, "answer.txt", path, sizeof path));
    e->answer = fopen(path, "wb");
    if (e->answer) return FV_OK;
    return FV_FAIL(FV_EIO, "cannot create %s: %s", path, strerror(errno));
}

static fv_status trace_here(const fv_options *o, evidence *e) {
    fv_local *local = NULL;
    fv_ask_request request = {0};
    fv_report report = {0};
    fv_report_source source;
    fv_status st;
    fv_ask_hooks hooks = {.user = e,
                          .text = on_text,
                          .token = on_token,
                          .prompt = on_prompt,
                          .encoded = on_encoded,
                          .prefilled = on_prefilled,
                          .visual_mass = on_visual_mass,
                          .logits = on_logits};
    FV_TRY_GOTO(fv_request_engine(o, 1, true, &local), st, out);
    FV_TRY_GOTO(fv_request_open(o, local, fv_options_string(o, "prompt"), &request), st, out);
    e->local = local;
    FV_TRY_GOTO(fv_local_ask(local, &request.ask, &hooks, &report), st, close);
    source = fv_report_source_local(local);
    FV_TRY_GOTO(put_logits(e), st, close);
    st = put_results(e, &source, &report);
close:
    fv_request_close(&request);
out:
    fv_report_free(&report);
    fv_local_close(local);
    return st;
}

static fv_status trace_there(const fv_options *o, evidence *e) {
    fv_session *session = NULL;
    fv_report_source source;
    fv_report report = {0};
    fv_ask_hooks hooks = {.user = e, .text = on_text, .token = on_token};
    const char *prompt = fv_options_string(o, "prompt");
    fv_status st = fv_session_open(o, &session);
    if (st == FV_OK) st = fv_session_ask(session, prompt, false, &hooks, &source, &report);
    if (st == FV_OK) st = put_results(e, &source, &report);
    fv_report_free(&report);
    fv_session_close(session);
    return st;
}

/* Intermediate results exist only if the request ran in this process. */
static void say_files(const fv_options *o, const evidence *e) {
    if (fv_options_string(o, "to"))
        printf("wrote answer.txt, tokens.npy and report.json to %s; without --to also prompt, ids, "
               "pixels, features, kept positions and logits\n",
               e->dir);
    else
        fprintf(stderr,
                "wrote answer.txt, tokens.npy, report.json, prompt, ids, kept positions, logits "
                "and image data to %s\n",
                e->dir);
}

static fv_status trace(const fv_options *o) {
    const char *const *extra;
    evidence e = {.dir = fv_options_string(o, "out")};
    if (fv_options_positional(o, &extra))
        return FV_FAIL(FV_EINVAL, "unexpected argument '%s'; the question goes after --prompt",
                       extra[0]);
    if (!fv_options_string(o, "prompt") || !e.dir)
        return FV_FAIL(FV_EINVAL, "--prompt TEXT and --out DIR are required");
    FV_TRY(fv_request_check_question(fv_options_string(o, "prompt")));
    FV_TRY(make_dir(&e));
    fv_status st = fv_options_string(o, "to") ? trace_there(o, &e) : trace_here(o, &e);
    if (fclose(e.answer) != 0 && st == FV_OK)
        st = FV_FAIL(FV_EIO, "cannot write %s/answer.txt: %s", e.dir, strerror(errno));
    if (st == FV_OK) say_files(o, &e);
    free(e.logits);
    free(e.tokens);
    return st;
}

static int run(const fv_options *o) { return fv_cli_end(&fv_cli_trace, trace(o)); }

const fv_command fv_cli_trace = {.program = FV_PROGRAM_TRACE, .run = run};
