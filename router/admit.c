/* The checks of a request, field by field, and the bound on its bytes in closed form. Pure
 * functions; any thread. */
#include "router/admit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "image/size.h"
#include "policy/plan/plan.h"
#include "router/admit_rules.h"
#include "serving/layout_message.h"
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Model model_message;
typedef Fovea__Inference__V1__Prompt prompt_message;

enum {
    ID_MAX = 128,
    STOP_MAX = 16,
    STOP_BYTES_MAX = 256,
    LOGPROBS_MAX = 20,
    LOGIT_BIAS_MAX = 300,
    ROLE_MAX = 64,
    AHEAD_MAX = 64, /* bytes of NextImage.ahead */
    SALT_MAX = 256, /* bytes of cache_salt */
    PREDICTION_MAX = 1 << 16,
    TEMPLATE_ROWS = 64, /* upper bound of the tokens that a chat template adds to a turn */
    TEXT_ROWS_MAX = 1 << 24,
};

bool fv_model_is_named(const model_message *model, const char *name) {
    if (!name[0] || strcmp(name, model->name) == 0 || strcmp(name, model->fingerprint) == 0)
        return true;
    for (size_t i = 0; i < model->n_aliases; i++)
        if (strcmp(name, model->aliases[i]) == 0) return true;
    return fv_model_adapter(model, name) != NULL;
}

const char *fv_model_adapter(const model_message *model, const char *name) {
    for (size_t i = 0; i < model->n_adapters; i++)
        if (strcmp(name, model->adapters[i]->name) == 0) return model->adapters[i]->name;
    return NULL;
}

fv_status fv_admit_model(const char *name, const model_message *model) {
    if (fv_model_is_named(model, name)) return FV_OK;
    return FV_FAIL(FV_ENOTFOUND, "unknown model '%s'; this fleet serves %s (%s)", name, model->name,
                   model->fingerprint);
}

static fv_status check_names(const request_message *r, const model_message *model) {
    size_t n = strlen(r->request_id);
    if (n > ID_MAX)
        return FV_FAIL(FV_EINVAL, "request_id has %zu bytes; the limit is %d", n, ID_MAX);
    for (size_t i = 0; i < n; i++)
        if (r->request_id[i] < '!' || r->request_id[i] > '~')
            return FV_FAIL(FV_EINVAL, "request_id must be printable ASCII without spaces");
    return fv_admit_model(r->model, model);
}

/* ---- the prompt ------------------------------------------------------------------------- */

/* Gives the marks of an image and of a video in plain text; the second is NULL if the model reads no videos. */
static void read_words(const model_message *model, const char *words[2]) {
    fv_layout_config c;
    words[0] = fv_layout_image_token(FV_LAYOUT_NONE);
    words[1] = NULL;
    if (fv_layout_from_message(model->image_layout, &c) != FV_OK) return;
    words[0] = fv_layout_image_token(c.family);
    if (fv_layout_reads_video(&c)) words[1] = fv_layout_video_token(c.family);
}

static size_t count_words(const char *text, const char *word) {
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word)) n++;
    return n;
}

void fv_admit_marks(const model_message *model, fv_prompt_marks *out) {
    *out = (fv_prompt_marks){.image_token = model->image_token, .video_token = model->video_token};
    read_words(model, out->word);
}

/* Counts the marks of images and videos in plain text, and their bytes. */
static size_t count_marks(const char *text, const model_message *model, size_t *bytes) {
    const char *words[2];
    size_t n = 0;
    *bytes = 0;
    read_words(model, words);
    for (int i = 0; i < 2 && words[i]; i++) {
        size_t found = count_words(text, words[i]);
        n += found;
        *bytes += found * strlen(words[i]);
    }
    return n;
}

static size_t turn_bytes(const Fovea__Inference__V1__Turn *t) {
    size_t n = strlen(t->text) + strlen(t->members);
    for (size_t i = 0; i < t->n_parts; i++)
        if (t->parts[i]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_TEXT)
            n += strlen(t->parts[i]->text);
        else if (t->parts[i]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_IMAGE)
            n += strlen(t->parts[i]->image->ahead);
    return n;
}

static fv_status read_turn(const Fovea__Inference__V1__Turn *t, size_t number, size_t *n_image,
                           size_t *rows) {
    if (t->n_parts && (t->text[0] || t->n_images))
        return FV_FAIL(FV_EINVAL, "turn %zu has parts as well as text or n_images: use one form",
                       number);
    *n_image += t->n_images;
    for (size_t i = 0; i < t->n_parts; i++) {
        if (t->parts[i]->kind_case == FOVEA__INFERENCE__V1__PART__KIND__NOT_SET)
            return FV_FAIL(FV_EINVAL, "part %zu of turn %zu is neither text, image nor video", i,
                           number);
        if (t->parts[i]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_IMAGE &&
            strlen(t->parts[i]->image->ahead) > AHEAD_MAX)
            return FV_FAIL(FV_EINVAL, "part %zu of turn %zu: ahead has more than %d bytes", i,
                           number, AHEAD_MAX);
        *n_image += t->parts[i]->kind_case != FOVEA__INFERENCE__V1__PART__KIND_TEXT;
    }
    *rows += turn_bytes(t) + TEMPLATE_ROWS;
    return FV_OK;
}

static fv_status read_chat(const Fovea__Inference__V1__Chat *chat, size_t *n_image, size_t *rows) {
    for (size_t i = 0; i < chat->n_turns; i++) {
        const Fovea__Inference__V1__Turn *t = chat->turns[i];
        if (!t->role[0] || strlen(t->role) > ROLE_MAX)
            return FV_FAIL(FV_EINVAL, "turn %zu: the role must have 1..%d bytes", i, ROLE_MAX);
        FV_TRY(read_turn(t, i, n_image, rows));
    }
    *rows += strlen(chat->variables);
    return chat->n_turns ? FV_OK : FV_FAIL(FV_EINVAL, "the chat has no turns");
}

/* any_image: the request has images. If not, the image token is an ordinary id (of a text-only model it is 0). */
static fv_status read_ids(const Fovea__Inference__V1__TokenIds *ids, const model_message *model,
                          bool any_image, size_t *n_image, size_t *rows) {
    for (size_t i = 0; i < ids->n_id; i++) {
        if (ids->id[i] >= model->n_vocab && ids->id[i] != model->image_token)
            return FV_FAIL(FV_EINVAL,
                           "prompt token %zu has id %" PRIu32 "; the vocabulary has %" PRIu32, i,
                           ids->id[i], model->n_vocab);
        bool video = model->video_token && ids->id[i] == model->video_token;
        *n_image += any_image && (video || ids->id[i] == model->image_token);
    }
    *rows += ids->n_id - *n_image;
    return ids->n_id ? FV_OK : FV_FAIL(FV_EINVAL, "the prompt has no token ids");
}

/* Reads the prompt. *rows: upper bound of the text tokens, as a token has at least one byte. */
static fv_status read_prompt(const request_message *r, const model_message *model, size_t *n_image,
                             size_t *rows) {
    const prompt_message *p = r->prompt;
    size_t bytes;
    switch (p ? p->form_case : FOVEA__INFERENCE__V1__PROMPT__FORM__NOT_SET) {
    case FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT: return read_chat(p->chat, n_image, rows);
    case FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT:
        *n_image = count_marks(p->text, model, &bytes);
        *rows = strlen(p->text) + TEMPLATE_ROWS;
        return p->text[0] ? FV_OK : FV_FAIL(FV_EINVAL, "the prompt is empty");
    case FOVEA__INFERENCE__V1__PROMPT__FORM_IDS:
        return read_ids(p->ids, model, r->n_images > 0, n_image, rows);
    default: return FV_FAIL(FV_EINVAL, "the request has no prompt");
    }
}

/* Checks an image by its header and adds its pixels; nothing is decoded here. */
static fv_status read_image(const request_message *r, size_t i, const fv_image_limits *lim,
                            const fv_layout_config *layout, uint64_t *pixels) {
    const ProtobufCBinaryData *data = &r->images[i]->data;
    fv_image_size size;
    if (data->len == 0) return FV_FAIL(FV_EINVAL, "image %zu has no bytes", i);
    if (lim->bytes_max && data->len > lim->bytes_max)
        return FV_FAIL(FV_EINVAL, "image %zu has %zu bytes; the limit is %zu", i, data->len,
                       lim->bytes_max);
    if (fv_image_size_check(data->data, data->len, lim, &size) != FV_OK)
        return fv_fail_prefix(FV_EINVAL, "image %zu", i);
    *pixels += (uint64_t)fv_layout_pixels(layout, size.w, size.h);
    return FV_OK;
}

/* Converts a worker's limits; a number that does not fit these types means no limit. */
static fv_image_limits image_limits(const Fovea__Inference__V1__Limits *lim) {
    if (!lim) return (fv_image_limits){0};
    return (fv_image_limits){.bytes_max = lim->bytes_image,
                             .side_max = lim->side_max < INT32_MAX ? (int32_t)lim->side_max : 0,
                             .pixels_max =
                                 lim->pixels_max < INT64_MAX ? (int64_t)lim->pixels_max : 0};
}

/* Refuses text that cannot fit the context, before it costs a worker time. Marks of images in plain text do not
 * count as text. */
static fv_status check_text(const request_message *r, const model_message *model) {
    const prompt_message *p = r->prompt;
    uint64_t most = model->limits ? model->limits->bytes_text : 0, bytes = 0;
    size_t mark_bytes;
    if (p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT) {
        count_marks(p->text, model, &mark_bytes);
        bytes = strlen(p->text) - mark_bytes;
    }
    if (p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT)
        for (size_t i = 0; i < p->chat->n_turns; i++) bytes += turn_bytes(p->chat->turns[i]);
    if (p->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT)
        bytes += strlen(p->chat->variables);
    if (!most || bytes <= most) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "the text has %" PRIu64 " bytes, but the model's context of %" PRIu32
                   " tokens holds at most %" PRIu64 " bytes: shorten the text",
                   bytes, model->limits->max_positions, most);
}

/* Checks the videos. *n: their frames in total. */
static fv_status check_videos(const request_message *r, const model_message *model, size_t *n) {
    size_t end = 0;
    *n = 0;
    if (r->n_videos && !model->video_token)
        return FV_FAIL(FV_EINVAL, "this model reads no videos: send their frames as images");
    for (size_t i = 0; i < r->n_videos; i++) {
        const Fovea__Inference__V1__Video *v = r->videos[i];
        if (v->n_frames == 0) return FV_FAIL(FV_EINVAL, "video %zu has no frames", i);
        if (v->first_image < end)
            return FV_FAIL(FV_EINVAL,
                           "video %zu begins with image %" PRIu32
                           ", which is a frame of the video before it",
                           i, v->first_image);
        if (v->first_image > r->n_images || v->n_frames > r->n_images - v->first_image)
            return FV_FAIL(FV_EINVAL,
                           "video %zu has %" PRIu32 " frames from image %" PRIu32
                           " on, and the request has %zu images",
                           i, v->n_frames, v->first_image, r->n_images);
        end = (size_t)v->first_image + v->n_frames;
        *n += v->n_frames;
    }
    return FV_OK;
}

static fv_status check_images(const request_message *r, const model_message *model, size_t n_prompt,
                              uint64_t *pixels) {
    const Fovea__Inference__V1__Limits *lim = model->limits;
    const fv_image_limits each = image_limits(lim);
    fv_layout_config layout = {0};
    size_t n_frame, n;
    FV_TRY(check_videos(r, model, &n_frame));
    n = r->n_images - n_frame + r->n_videos;
    if (n != n_prompt)
        return FV_FAIL(FV_EINVAL, "the prompt places %zu image%s, but the request has %zu",
                       n_prompt, n_prompt == 1 ? "" : "s", n);
    if (lim && lim->n_images && r->n_images > lim->n_images)
        return FV_FAIL(FV_EINVAL, "the request has %zu images; the limit is %" PRIu32, r->n_images,
                       lim->n_images);
    if (r->n_images) FV_TRY(fv_layout_from_message(model->image_layout, &layout));
    for (size_t i = 0; i < r->n_images; i++) FV_TRY(read_image(r, i, &each, &layout, pixels));
    if (lim && lim->pixels_request && *pixels > lim->pixels_request)
        return FV_FAIL(FV_EINVAL,
                       "the images have %" PRIu64 " pixels in total; the limit is %" PRIu64
                       ": send fewer or smaller ones",
                       *pixels, lim->pixels_request);
    return FV_OK;
}

/* ---- the answer ------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static fv_status check_bias(const Fovea__Inference__V1__Sampling *s, uint32_t n_vocab) {
    uint32_t ids[LOGIT_BIAS_MAX];
    if (s->n_logit_bias > LOGIT_BIAS_MAX)
        return FV_FAIL(FV_EINVAL, "logit_bias has %zu ids; the limit is %d", s->n_logit_bias,
                       LOGIT_BIAS_MAX);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        const Fovea__Inference__V1__LogitBias *b = s->logit_bias[i];
        ids[i] = b->id;
        if (b->id >= n_vocab)
            return FV_FAIL(FV_EINVAL,
                           "logit_bias: id %" PRIu32 " is not in the vocabulary of %" PRIu32 " ids",
                           b->id, n_vocab);
        if (!(b->bias >= -100 && b->bias <= 100))
            return FV_FAIL(FV_EINVAL, "logit_bias of id %" PRIu32 " is %g; it must be -100..100",
                           b->id, (double)b->bias);
    }
    qsort(ids, s->n_logit_bias, sizeof *ids, by_id);
    for (size_t i = 1; i < s->n_logit_bias; i++)
        if (ids[i] == ids[i - 1])
            return FV_FAIL(FV_EINVAL, "logit_bias has id %" PRIu32 " twice", ids[i]);
    return FV_OK;
}

static fv_status check_range(const char *name, float v, float min, float max) {
    if (v >= min && v <= max) return FV_OK;
    return FV_FAIL(FV_EINVAL, "%s is %g; it must be %g..%g", name, (double)v, (double)min,
                   (double)max);
}

static fv_status check_sampling(const Fovea__Inference__V1__Sampling *s, uint32_t n_vocab) {
    if (!s) return FV_OK;
    FV_TRY(check_range("temperature", s->temperature, 0, 100));
    FV_TRY(check_range("top_p", s->nucleus_case ? s->top_p : 1, 0, 1));
    FV_TRY(check_range("min_p", s->min_p, 0, 1));
    if (s->repetition_case && !(s->repetition_penalty > 0 && s->repetition_penalty <= 100))
        return FV_FAIL(FV_EINVAL,
                       "repetition_penalty is %g; it must be above 0, up to 100 (1 is off)",
                       (double)s->repetition_penalty);
    FV_TRY(check_range("presence_penalty", s->presence_penalty, -2, 2));
    FV_TRY(check_range("frequency_penalty", s->frequency_penalty, -2, 2));
    if (s->top_k > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "top_k is %" PRIu32 "; it must be 0..%d", s->top_k, INT32_MAX);
    return check_bias(s, n_vocab);
}

static fv_status check_answer(const request_message *r, const model_message *model) {
    FV_TRY(check_sampling(r->sampling, model->n_vocab));
    FV_TRY(fv_admit_rules(r, model->n_vocab));
    if (strlen(r->prediction) > PREDICTION_MAX)
        return FV_FAIL(FV_EINVAL, "prediction has %zu bytes; the limit is %d",
                       strlen(r->prediction), PREDICTION_MAX);
    if (strlen(r->cache_salt) > SALT_MAX)
        return FV_FAIL(FV_EINVAL, "cache_salt has %zu bytes; the limit is %d",
                       strlen(r->cache_salt), SALT_MAX);
    if (r->n_stop > STOP_MAX)
        return FV_FAIL(FV_EINVAL, "the request has %zu stop strings; the limit is %d", r->n_stop,
                       STOP_MAX);
    for (size_t i = 0; i < r->n_stop; i++)
        if (!r->stop[i][0] || strlen(r->stop[i]) > STOP_BYTES_MAX)
            return FV_FAIL(FV_EINVAL, "stop string %zu must have 1..%d bytes", i, STOP_BYTES_MAX);
    if (r->n_logprobs > LOGPROBS_MAX)
        return FV_FAIL(FV_EINVAL, "n_logprobs is %" PRIu32 "; it must be 0..%d", r->n_logprobs,
                       LOGPROBS_MAX);
    return FV_OK;
}

static fv_status check_conversation(const request_message *r, uint32_t keep_ms_max) {
    size_t n = r->conversation.len;
    if (r->keep_ms && !keep_ms_max)
        return FV_FAIL(FV_EUNSUPPORTED, "this fleet keeps no conversations: send the whole "
                                        "conversation, without keep_ms");
    if (r->keep_ms > keep_ms_max)
        return FV_FAIL(FV_EINVAL,
                       "keep_ms is %" PRIu32 "; conversations are kept for at most %" PRIu32 " ms",
                       r->keep_ms, keep_ms_max);
    if (n == 0) return FV_OK;
    if (n <= FV_CONVERSATION_ID_BYTES || n > FV_CONVERSATION_BYTES_MAX)
        return FV_FAIL(FV_EINVAL,
                       "conversation has %zu bytes; send Finished.conversation unchanged", n);
    if (r->n_images)
        return FV_FAIL(FV_EINVAL,
                       "a kept conversation cannot add images: send the whole conversation again");
    if (r->policy)
        return FV_FAIL(FV_EINVAL, "a kept conversation already has a policy: remove policy, or "
                                  "send the whole conversation again");
    return FV_OK;
}

/* ---- the bytes -------------------------------------------------------------------------- */

typedef struct extent {
    uint64_t visual, text, answer; /* tokens */
    int32_t ahead;                 /* 1: at least one text token certainly precedes the images */
    int32_t n_span;
    const fv_token_span *span; /* [n_span] of the images */
    const char *uncondensable; /* fv_layout_uncondensable */
    bool tiled;                /* fv_layout_tiled */
} extent;

/* Reads a worker's fitted prune schedules; ignores impossible ones. Returns how many. */
static int32_t read_schedules(const model_message *m, fv_schedule out[FV_SCHEDULES]) {
    int32_t n = 0;
    for (size_t i = 0; i < m->n_fitprune && n < FV_SCHEDULES; i++) {
        const Fovea__Inference__V1__Schedule *s = m->fitprune[i];
        uint32_t left = FV_SCHEDULE_OF;
        bool good = s->n_dropped == m->n_layer && s->n_dropped <= FV_SCHEDULE_LAYERS;
        for (uint32_t l = 0; good && l < m->n_layer; l++) {
            good = s->dropped[l] <= left;
            left -= good ? s->dropped[l] : 0;
            out[n].leave[l] = good ? (int32_t)s->dropped[l] : 0;
        }
        out[n].target = (int32_t)s->target;
        n += good;
    }
    return n;
}

/* Whether the number of the prompt's tokens is known: it is ids, and nothing is cut off. */
static bool is_exact(const request_message *r) {
    return r->prompt->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_IDS && !r->truncate_case;
}

static fv_status make_plan(const request_message *r, const model_message *m, const extent *x,
                           fv_plan *plan) {
    fv_policy policy;
    fv_schedule fitted[FV_SCHEDULES];
    int32_t source_layers[FV_PLAN_MAX_LAYERS] = {0};
    bool ids = is_exact(r);
    bool latent = m->latent_layers <= m->n_layer && m->latent_directions <= UINT16_MAX;
    bool calibrated = m->n_lazy_source_layers == m->n_layer; /* the worker is calibrated */
    for (uint32_t l = 0; calibrated && l < m->n_layer; l++)
        source_layers[l] = (int32_t)m->lazy_source_layers[l];
    fv_plan_shape shape = {.n_layer = (int32_t)m->n_layer,
                           .n_kv = (int32_t)m->n_kv,
                           .d_head = (int32_t)m->d_head,
                           .bytes_value = strcmp(m->kv_dtype, "f32") == 0 ? 4 : 2,
                           .n_visual = (int32_t)x->visual,
                           .n_text = (int32_t)x->text,
                           .text_bound = !ids,
                           .n_span = x->n_span,
                           .span = x->span,
                           .uncondensable = x->uncondensable,
                           .tiled = x->tiled,
                           .calibrated = calibrated ? source_layers : NULL,
                           .withdraw = m->vtw_layer <= m->n_layer ? (int32_t)m->vtw_layer : 0,
                           .n_fitted = read_schedules(m, fitted),
                           .fitted = fitted,
                           .uncalibrated = m->uncalibrated[0] ? m->uncalibrated : NULL,
                           .latent_layers = latent ? (int32_t)m->latent_layers : 0,
                           .latent_rank = latent ? (int32_t)m->latent_directions : 0,
                           .n_latent_steps = m->n_latent_steps,
                           .latent_steps = m->latent_steps,
                           .no_latent = m->no_latent[0] ? m->no_latent : NULL,
                           .state_bytes = m->bytes_state};
    FV_TRY(fv_policy_from_message(r->policy, &policy));
    FV_TRY(fv_plan_make(&policy, &shape, plan));
    plan->shape.calibrated = NULL;
    plan->shape.fitted = NULL;
    plan->shape.no_latent = NULL;
    plan->shape.latent_steps = NULL;
    return FV_OK;
}

/* bytes = 2 D w (sum over layers and heads of rows(policy) + N Hkv answer), w bytes per number, plus
 * the tables of packed layers and the recurrent state; text keys that are reused from another layer are not held. */
static fv_status count_bytes(const request_message *r, const model_message *m, const extent *x,
                             uint64_t *prompt, uint64_t *answer) {
    fv_plan plan;
    FV_TRY(make_plan(r, m, x, &plan));
    uint64_t part = (uint64_t)plan.shape.d_head * (uint64_t)plan.shape.bytes_value;
    uint64_t parts = 2 * (uint64_t)m->n_layer - (uint64_t)fv_plan_reused_text(&plan);
    fv_plan_bytes bytes = fv_plan_count(&plan);
    *prompt = bytes.held + bytes.tables + bytes.state;
    *answer = parts * part * m->n_kv * x->answer;
    return FV_OK;
}

enum { POLICY_TEXT = 32 }; /* tokens of text with which policies are compared */

uint64_t fv_admit_policy_bytes(const Fovea__Inference__V1__Policy *policy, const model_message *m) {
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    request_message r = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    const extent x = {.visual = m->n_image_tokens, .text = POLICY_TEXT};
    uint64_t bytes, answer;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS; /* the text's length is known */
    r.prompt = &prompt;
    r.policy = (Fovea__Inference__V1__Policy *)(uintptr_t)policy;
    return count_bytes(&r, m, &x, &bytes, &answer) == FV_OK ? bytes : 0;
}

/* Counts the positions of the image tokens, at most, after `condense`. */
static fv_status count_positions(const request_message *r, const model_message *m,
                                 const extent *images, uint64_t *taken) {
    extent one = *images;
    fv_plan plan;
    one.text = 1;
    FV_TRY(make_plan(r, m, &one, &plan));
    *taken = (uint64_t)plan.shape.n_visual;
    return FV_OK;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Bounds the KV's bytes. The number of ids is exact; text takes between one row in all and one per byte. */
static fv_status bound_bytes(const request_message *r, const model_message *m, const extent *images,
                             size_t text_rows, fv_request_bounds *need) {
    uint32_t limit = m->limits ? m->limits->max_positions : 0;
    uint64_t visual = images->visual, taken;
    bool exact = is_exact(r);
    FV_TRY(count_positions(r, m, images, &taken));
    if (limit && taken >= limit)
        return FV_FAIL(FV_EINVAL,
                       "%zu images need %" PRIu64 " positions, but the model has %" PRIu32,
                       r->n_images, taken, limit);
    uint64_t left = limit ? limit - taken : TEXT_ROWS_MAX;
    if (exact && text_rows > left)
        return FV_FAIL(FV_EINVAL,
                       "the prompt needs %" PRIu64 " positions, but the model has %" PRIu32,
                       taken + text_rows, limit);
    extent most = *images, fewest = *images;
    most.text = least(text_rows, left);
    most.answer = least(need->max_tokens, left);
    fewest.text = exact ? text_rows : 1;
    fewest.answer = least(need->max_tokens, left - fewest.text);
    uint64_t prompt, answer;
    FV_TRY(count_bytes(r, m, &most, &prompt, &answer));
    need->bytes = prompt + answer;
    need->bytes_token = most.answer ? answer / most.answer : 0;
    if (need->open_ended) fewest.answer = least(fewest.answer, FV_REQUEST_TOKENS_LEAST);
    FV_TRY(count_bytes(r, m, &fewest, &need->bytes_prompt, &answer));
    need->bytes_least = need->bytes_prompt + answer;
    need->tokens_known = visual + (exact ? most.text : 0);
    need->tokens_text = exact ? 0 : most.text;
    return FV_OK;
}

/* Adds an image's spans: at least one text token precedes each further image, and one lies between two spans of
 * an image if its layout has text. */
static fv_status add_image(fv_token_span **list, size_t *cap, int32_t image, const fv_layout *l,
                           extent *x) {
    FV_TRY(fv_grow(list, cap, (size_t)(x->n_span + l->n_span), sizeof **list));
    int32_t first = x->ahead;
    if (x->n_span) first = (*list)[x->n_span - 1].first + (*list)[x->n_span - 1].n + 1;
    for (int32_t i = 0; i < l->n_span; i++) {
        const fv_layout_span *s = &l->span[i];
        (*list)[x->n_span++] = (fv_token_span){
            .first = first, .n = s->n, .image = image, .t = s->t, .h = s->h, .w = s->w};
        first += s->n + (l->n_text >= l->n_span);
    }
    x->visual += (uint64_t)l->n_visual;
    x->text += (uint64_t)l->n_text;
    return FV_OK;
}

static fv_status lay_video(const fv_layout_config *c, const fv_image_size *size,
                           const Fovea__Inference__V1__Video *v, fv_layout *out) {
    const fv_layout_clip clip = {
        .n = (int32_t)v->n_frames, .fps = v->fps, .seconds = v->seconds, .n_seconds = v->n_seconds};
    return fv_layout_video(c, size->w, size->h, &clip, out);
}

/* Whether the prompt certainly begins with a text token; false if it is not ids, as only the worker has a
 * tokenizer. */
static bool begins_with_text(const request_message *r, const model_message *m) {
    if (r->prompt->form_case != FOVEA__INFERENCE__V1__PROMPT__FORM_IDS) return false;
    const Fovea__Inference__V1__TokenIds *ids = r->prompt->ids;
    return ids->n_id > 0 && ids->id[0] != m->image_token &&
           (m->video_token == 0 || ids->id[0] != m->video_token);
}

/* Lays out the tokens of the n_item images and videos as in the prompt. Gives *span (free it, also after a
 * failure). */
static fv_status lay_images(const request_message *r, const model_message *m, int32_t n_item,
                            fv_token_span **span, extent *out) {
    const Fovea__Inference__V1__ImageBounds *bounds = r->image_bounds;
    fv_layout_config config, bounded;
    fv_layout layout;
    size_t cap = 0;
    *span = NULL;
    *out = (extent){.ahead = begins_with_text(r, m)};
    if (r->n_images == 0) return FV_OK;
    FV_TRY(fv_layout_from_message(m->image_layout, &config));
    if (config.family == FV_LAYOUT_NONE)
        return FV_FAIL(FV_EINVAL, "this model is text-only; remove the images");
    bounded = config;
    if (bounds) FV_TRY(fv_layout_bound(&bounded, bounds->pixels_min, bounds->pixels_max));
    for (size_t i = 0, v = 0, item = 0; i < r->n_images; item++) {
        const ProtobufCBinaryData *data = &r->images[i]->data;
        const Fovea__Inference__V1__Video *video = NULL;
        if (v < r->n_videos && r->videos[v]->first_image == i) video = r->videos[v++];
        fv_image_size size;
        FV_TRY(fv_image_size_read(data->data, data->len, &size));
        fv_status st = video ? lay_video(&config, &size, video, &layout)
                             : fv_layout_image(&bounded, size.w, size.h, n_item, &layout);
        if (st != FV_OK) return fv_fail_prefix(FV_EINVAL, "image %zu", i);
        if (out->visual + (uint64_t)layout.n_visual > TEXT_ROWS_MAX)
            return FV_FAIL(FV_EINVAL, "%zu images are too many", r->n_images);
        FV_TRY(add_image(span, &cap, (int32_t)item, &layout, out));
        i += video ? video->n_frames : 1;
    }
    out->span = *span;
    out->uncondensable = fv_layout_uncondensable(&config);
    out->tiled = fv_layout_tiled(&config);
    return FV_OK;
}

static uint32_t default_tokens(const request_message *r, const model_message *model,
                               uint32_t tokens_default) {
    uint32_t n = tokens_default;
    if (!n && r->conversation.len) n = FV_REQUEST_TOKENS_FOLLOW;
    if (!n) n = model->limits ? model->limits->max_positions : 0;
    if (!n) n = FV_REQUEST_TOKENS_LEAST;
    return n < TEXT_ROWS_MAX ? n : TEXT_ROWS_MAX;
}

fv_status fv_admit(const request_message *r, const model_message *model, uint32_t keep_ms_max,
                   uint32_t tokens_default, fv_request_bounds *out) {
    size_t n_image = 0, text_rows = 0;
    FV_TRY(check_names(r, model));
    FV_TRY(check_answer(r, model));
    FV_TRY(check_conversation(r, keep_ms_max));
    FV_TRY(read_prompt(r, model, &n_image, &text_rows));
    FV_TRY(check_text(r, model));
    fv_request_bounds need = {.max_tokens = r->max_tokens,
                              .open_ended = !r->max_tokens && !r->conversation.len};
    FV_TRY(check_images(r, model, n_image, &need.pixels));
    if (!need.max_tokens) need.max_tokens = default_tokens(r, model, tokens_default);
    if (need.max_tokens > TEXT_ROWS_MAX)
        return FV_FAIL(FV_EINVAL, "max_tokens is %" PRIu32 "; at most %d can be asked for",
                       need.max_tokens, TEXT_ROWS_MAX);
    fv_token_span *span;
    extent images = {0};
    fv_status st = lay_images(r, model, (int32_t)n_image, &span, &images);
    text_rows += images.text;
    if (st == FV_OK) st = bound_bytes(r, model, &images, text_rows, &need);
    free(span);
    if (st == FV_OK) *out = need;
    return st;
}
