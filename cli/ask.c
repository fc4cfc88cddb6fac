/* fovea ask: asks questions about images and prints each answer as it is generated, then its
 * report. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "cli/client/remote.h"
#include "cli/client/report.h"
#include "cli/client/request.h"
#include "cli/client/session.h"
#include "cli/overlay.h"
#include "common/grow.h"

typedef struct answer {
    const fv_options *options;
    const char *overlay; /* path; NULL: not requested */
    char *drawn;         /* description of the overlay */
    bool stream;
    char *text;
    size_t bytes, cap;
    json_t *tokens; /* [{id, logprob, top}] */
} answer;

static fv_status on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    if (a->stream) {
        fwrite(text, 1, n, stdout);
        return fv_output_flush();
    }
    FV_TRY(fv_grow(&a->text, &a->cap, a->bytes + n, 1));
    memcpy(a->text + a->bytes, text, n);
    a->bytes += n;
    return FV_OK;
}

static fv_status on_token(void *user, const fv_sampled *t) {
    answer *a = user;
    json_t *top = json_array();
    for (int32_t i = 0; i < t->n_top; i++)
        json_array_append_new(
            top, json_pack("{s:i, s:f}", "id", t->top[i].id, "logprob", (double)t->top[i].logprob));
    json_array_append_new(a->tokens, json_pack("{s:i, s:f, s:o}", "id", t->id, "logprob",
                                               (double)t->logprob, "top", top));
    return FV_OK;
}

static json_t *answer_json(const fv_report_source *source, const answer *a,
                           const fv_report *report) {
    return json_pack("{s:s%, s:O, s:s, s:o}", "text", a->text ? a->text : "", a->bytes, "tokens",
                     a->tokens, "finish_reason", fv_finish_name(report->finish), "report",
                     fv_report_json(source, report));
}

/* ---- the overlay ------------------------------------------------------------------------ */

/* Describes tiles in words too, because the image has space for numbers only. */
static fv_status describe_kept(const fv_kept_map *kept, const char *path, char **out) {
    size_t bytes;
    FILE *f = open_memstream(out, &bytes);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for the overlay");
    fprintf(f, "overlay  %s: ", path);
    for (int32_t i = 0; i < kept->n_group; i++) {
        const fv_kept_map_group *g = &kept->group[i];
        int32_t rows = 0, last = g->layer + g->n_layer - 1;
        for (int32_t r = 0; r < kept->n_visual; r++) rows += g->heads[r] > 0;
        if (g->layer == last)
            fprintf(f, "%slayer %d holds %d", i ? ", " : "", last, rows);
        else
            fprintf(f, "%slayers %d-%d hold %d", i ? ", " : "", g->layer, last, rows);
    }
    fprintf(f, " of %d image tokens", kept->n_visual);
    return fclose(f) == 0 ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the overlay");
}

static fv_status on_kept(void *user, const fv_kept_map *kept, const fv_layout_config *layout) {
    answer *a = user;
    fv_overlay overlay = {.layout = layout, .kept = kept};
    fv_image *images = NULL;
    fv_request_frames v;
    FV_TRY(fv_request_video(a->options, layout, &v));
    fv_status st = FV_OK;
    if (v.own)
        st = FV_FAIL(FV_EUNSUPPORTED,
                     "--overlay draws on images, and this model reads a video as one: remove "
                     "--overlay");
    if (st == FV_OK) st = fv_request_images(a->options, &v.video, &images, &overlay.n_image);
    fv_request_video_free(&v);
    FV_TRY(st);
    overlay.image = images;
    st = fv_overlay_write(&overlay, a->overlay);
    for (int32_t i = 0; i < overlay.n_image; i++) fv_image_free(&images[i]);
    free(images);
    return st == FV_OK ? describe_kept(kept, a->overlay, &a->drawn) : st;
}

/* The overlay is a PNG: another extension would mislead. */
static fv_status check_overlay(const fv_options *o) {
    const char *const *files, *path = fv_options_string(o, "overlay");
    if (!path) return FV_OK;
    if (fv_options_list(o, "image", &files) == 0 && !fv_options_string(o, "video"))
        return FV_FAIL(FV_EINVAL, "--overlay draws image patches: add an image with --image");
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    if (dot && strcasecmp(dot, ".png") != 0)
        return FV_FAIL(FV_EINVAL, "--overlay %s: a PNG is written; name it FILE.png", path);
    return fv_output_check(path);
}

/* An engine in this process, or a fleet. */
typedef struct place {
    fv_local *local;
    fv_session *session;
} place;

static fv_status open_place(const fv_options *o, bool alone, place *p) {
    if (fv_options_string(o, "to")) return fv_session_open(o, &p->session);
    if (!alone)
        return FV_FAIL(FV_EINVAL, "--then needs --to HOST:PORT: a fleet keeps the conversation "
                                  "(`fovea up` starts one here)");
    return fv_request_engine(o, 1, true, &p->local);
}

static void close_place(place *p) {
    fv_session_close(p->session);
    fv_local_close(p->local);
}

static fv_status ask_here(const fv_options *o, fv_local *local, const char *question,
                          const fv_ask_hooks *hooks, fv_report_source *source, fv_report *report) {
    fv_ask_request request;
    *source = fv_report_source_local(local);
    FV_TRY(fv_request_open(o, local, question, &request));
    fv_status st = fv_local_ask(local, &request.ask, hooks, report);
    fv_request_close(&request);
    return st;
}

/* Prints "logprob id 31 -0.0012 (31 -0.0012, 7 -6.8)" for each token. A fleet sends no text of
 * single tokens, so none is shown. */
static void print_logprobs(const answer *a) {
    size_t i, k;
    const json_t *token, *other;
    json_array_foreach(a->tokens, i, token) {
        const json_t *top = json_object_get(token, "top");
        fprintf(stderr, "logprob  id %d %.4f",
                (int)json_integer_value(json_object_get(token, "id")),
                json_number_value(json_object_get(token, "logprob")));
        json_array_foreach(top, k, other) fprintf(
            stderr, "%s%d %.4f",
            k ? ", " : " (likeliest: ", (int)json_integer_value(json_object_get(other, "id")),
            json_number_value(json_object_get(other, "logprob")));
        fputs(json_array_size(top) ? ")\n" : "\n", stderr);
    }
}

/* Prints the end of an answer, or adds the whole answer to the list that is printed at the end. */
static fv_status show(const fv_options *o, const answer *a, const fv_report_source *source,
                      const fv_report *report, json_t *list) {
    if (!a->stream)
        return json_array_append_new(list, answer_json(source, a, report)) == 0
                   ? FV_OK
                   : FV_FAIL(FV_ENOMEM, "out of memory for the report");
    putchar('\n');
    FV_TRY(fv_output_flush());
    if (fv_options_int(o, "logprobs")) print_logprobs(a);
    if (!fv_options_flag(o, "no-report")) {
        fv_report_print(stderr, source, report);
        if (a->drawn) fprintf(stderr, "%s\n", a->drawn);
    }
    return FV_OK;
}

static fv_status ask(const fv_options *o, place *p, const char *question, bool first, bool more,
                     json_t *list) {
    answer a = {.options = o,
                .overlay = first ? fv_options_string(o, "overlay") : NULL,
                .stream = !fv_options_flag(o, "json"),
                .tokens = json_array()};
    fv_ask_hooks hooks = {.user = &a,
                          .text = on_text,
                          .token = a.stream && !fv_options_int(o, "logprobs") ? NULL : on_token,
                          .kept = a.overlay ? on_kept : NULL};
    fv_report report = {0};
    fv_report_source source;
    fv_status st = p->session ? fv_session_ask(p->session, question, more, &hooks, &source, &report)
                              : ask_here(o, p->local, question, &hooks, &source, &report);
    if (st == FV_OK) st = show(o, &a, &source, &report, list);
    fv_report_free(&report);
    json_decref(a.tokens);
    free(a.text);
    free(a.drawn);
    return st;
}

static fv_status ask_all(const fv_options *o, const char *question, json_t *list) {
    const char *const *then;
    int n = fv_options_list(o, "then", &then);
    place p = {0};
    FV_TRY(fv_request_check_question(question));
    for (int i = 0; i < n; i++) FV_TRY(fv_request_check_question(then[i]));
    FV_TRY(check_overlay(o));
    fv_status st = open_place(o, n == 0, &p);
    if (st == FV_OK) st = ask(o, &p, question, true, n > 0, list);
    for (int i = 0; i < n && st == FV_OK; i++) st = ask(o, &p, then[i], false, i + 1 < n, list);
    close_place(&p);
    return st;
}

static int run(const fv_options *o) {
    const char *const *then, *const *question;
    int n = fv_options_positional(o, &question);
    json_t *list = json_array();
    fv_status st = n == 1 ? ask_all(o, question[0], list)
                          : FV_FAIL(FV_EINVAL, "expected one question, in quotes, got %d", n);
    if (st == FV_OK && fv_options_flag(o, "json")) {
        bool many = fv_options_list(o, "then", &then) > 0;
        fv_output_json(many ? list : json_array_get(list, 0));
        st = fv_output_flush();
    }
    json_decref(list);
    return fv_cli_end(&fv_cli_ask, st);
}

const fv_command fv_cli_ask = {.program = FV_PROGRAM_ASK, .run = run};
