/* Item -> chat -> score. */
#include "cli/eval/session.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "eval/scenes/render.h"
#include "eval/scenes/score.h"
#include "image/size.h"
#include "video/png.h"

static void ask_turn(fv_eval_session *s) {
    const char *own = s->own && s->own->question ? s->own->question : "";
    const char *question = s->own ? own : s->item.turn[s->turn].question;
    s->chat[s->n_chat++] =
        (fv_chat_turn){.role = "user", .text = question, .n_image = s->turn == 0 ? s->n_image : 0};
}

fv_status fv_eval_session_render(const fv_scene *scene, int32_t side, fv_image *out) {
    fv_image image = {malloc((size_t)side * (size_t)side * 3), side, side};
    if (!image.rgb) return FV_FAIL(FV_ENOMEM, "out of memory for an image");
    fv_status st = fv_render(scene, side, image.rgb);
    if (st == FV_OK)
        *out = image;
    else
        fv_image_free(&image);
    return st;
}

fv_status fv_eval_session_scenes(const char *kind, bool *rich) {
    *rich = strcmp(kind, "rich") == 0;
    if (*rich || strcmp(kind, "plain") == 0) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--scenes %s: write plain or rich", kind);
}

int32_t fv_eval_session_side(const fv_model_config *cfg) {
    int32_t side = cfg->vision.image;
    if (side < FV_RENDER_SIDE_MIN) return FV_RENDER_SIDE_MIN;
    return side > FV_RENDER_SIDE_MAX ? FV_RENDER_SIDE_MAX : side;
}

static fv_status take_scenes(const fv_suite *suite, int32_t side, int32_t item,
                             fv_eval_session *s) {
    FV_TRY(fv_suite_item(suite, item, &s->item));
    s->n_image = s->item.n_image;
    s->n_turn = s->item.n_turn;
    for (int32_t i = 0; i < s->n_image; i++)
        FV_TRY(fv_eval_session_render(&s->item.scene[i], side, &s->image[i]));
    return FV_OK;
}

static fv_status read_own(const char *path, fv_image *out) {
    char *data;
    size_t n;
    FV_TRY(fv_file_read(path, fv_image_limits_default().bytes_max, &data, &n));
    fv_status st = fv_image_decode(data, n, NULL, out);
    free(data);
    return st == FV_OK ? FV_OK : fv_fail_prefix(st, "%s", path);
}

static fv_status take_own(const fv_benchmark_item *own, fv_eval_session *s) {
    s->own = own;
    s->n_image = own->n_image;
    s->n_turn = 1;
    for (int32_t i = 0; i < s->n_image; i++)
        FV_TRY(fv_eval_session_failed(s, read_own(own->image[i], &s->image[i])));
    return FV_OK;
}

fv_status fv_eval_session_take(const fv_suite *suite, int32_t side, int32_t policy, int32_t item,
                               fv_eval_session *out) {
    fv_eval_session *s = out;
    *s = (fv_eval_session){.item_score = {.policy = policy, .item = item}};
    fv_status st = suite->benchmark ? take_own(&suite->benchmark->item[item], s)
                                    : take_scenes(suite, side, item, s);
    if (st == FV_OK)
        ask_turn(s);
    else
        fv_eval_session_leave(s);
    return st;
}

void fv_eval_session_again(fv_eval_session *s) {
    if (s->hears) fclose(s->hears);
    free(s->heard);
    s->hears = NULL;
    s->heard = NULL;
    s->n_heard = 0;
}

void fv_eval_session_leave(fv_eval_session *s) {
    fv_eval_session_again(s);
    fv_eval_document_free(&s->document);
    for (int32_t i = 0; i < FV_BENCHMARK_IMAGES; i++) fv_image_free(&s->image[i]);
    fv_item_score_free(&s->item_score);
}

int32_t fv_eval_session_max_tokens(const fv_eval_session *s) {
    return s->own ? s->own->max_tokens
                  : fv_suite_max_tokens((int32_t)s->item.turn[s->turn].task, s->item.scene[0].rich);
}

fv_status fv_eval_session_file(const fv_eval_session *s, int32_t image, uint8_t **data, size_t *n) {
    return s->own
               ? fv_file_read(s->own->image[image], fv_image_limits_default().bytes_max,
                              (char **)data, n)
               : fv_png_write(s->image[image].rgb, s->image[image].w, s->image[image].h, data, n);
}

fv_status fv_eval_session_failed(const fv_eval_session *s, fv_status st) {
    return st == FV_OK || !s->own ? st : fv_fail_prefix(st, "--data line %d", s->own->line);
}

fv_status fv_eval_session_add_text(void *session, const char *text, size_t n) {
    fv_eval_session *s = session;
    if (!s->hears) s->hears = open_memstream(&s->heard, &s->n_heard);
    bool good = s->hears != NULL;
    for (size_t i = 0; i < n && good; i++) good = text[i] == 0 || fputc(text[i], s->hears) != EOF;
    return good ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for an answer");
}

/* Takes the reply without leading space, which templates write themselves. */
static fv_status take_answer(fv_eval_session *s) {
    if (s->hears && fclose(s->hears) != 0) {
        s->hears = NULL;
        return FV_FAIL(FV_ENOMEM, "out of memory for an answer");
    }
    s->hears = NULL;
    const char *said = s->heard ? s->heard : "";
    while (isspace((unsigned char)*said)) said++;
    char *kept = strdup(said);
    if (!kept) return FV_FAIL(FV_ENOMEM, "out of memory for an answer");
    s->item_score.said[s->turn] = kept;
    s->item_score.score[s->turn] =
        s->own ? fv_benchmark_score(s->own, kept) : fv_score_turn(&s->item.turn[s->turn], kept);
    s->item_score.n_turn = s->turn + 1;
    fv_eval_session_again(s);
    return FV_OK;
}

static fv_status take_notes(const fv_report *r, fv_item_score *m) {
    char all[FV_N_STAGE * (FV_PLAN_NOTE_MAX + 2)] = "";
    for (int i = 0; i < FV_N_STAGE; i++) {
        if (!r->note[i][0]) continue;
        if (all[0]) strcat(all, "; ");
        strcat(all, r->note[i]);
    }
    if (!all[0]) return FV_OK;
    m->note = strdup(all);
    return m->note ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a note");
}

static fv_status take_report(const fv_report *r, fv_item_score *m) {
    m->n_prompt = r->n_prompt;
    m->n_visual = r->n_visual;
    m->n_token = r->n_generated;
    m->bytes_exact = (double)r->bytes_raw * r->n_encoded / (r->n_encoded + r->n_text);
    m->bytes_visual = (double)r->bytes_visual;
    m->bytes_visual_end = (double)r->bytes_visual_end;
    m->bytes_sent = (double)r->bytes_sent;
    m->ttft_s = r->s_first_token;
    m->tpot_s = r->n_generated > 1 ? r->s_decode / (r->n_generated - 1) : -1;
    return take_notes(r, m);
}

fv_status fv_eval_session_answered(fv_eval_session *s, const fv_report *report, bool *more) {
    if (s->turn == 0) FV_TRY(take_report(report, &s->item_score));
    FV_TRY(take_answer(s));
    *more = ++s->turn < s->n_turn;
    if (!*more) return FV_OK;
    s->chat[s->n_chat++] =
        (fv_chat_turn){.role = "assistant", .text = s->item_score.said[s->turn - 1]};
    ask_turn(s);
    return FV_OK;
}
