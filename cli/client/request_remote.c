/* Makes a request to a fleet from options. Image files are sent as they are: the prefill worker
 * decodes them. */
#include <stdlib.h>
#include <string.h>

#include "cli/client/request.h"
#include "serving/policy_message.h"
#include "video/as_images.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Image image_message;
typedef Fovea__Inference__V1__Sampling sampling_message;

/* Moves data, from malloc, into the arena. */
static fv_status keep_image(void *data, size_t n, fv_arena *a, image_message **out) {
    image_message *m = NULL;
    void *kept = NULL;
    fv_status st = FV_ARENA_NEW(a, 1, m);
    if (st == FV_OK) st = fv_arena_alloc(a, n, &kept);
    if (st == FV_OK) {
        memcpy(kept, data, n);
        fovea__inference__v1__image__init(m);
        m->data = (ProtobufCBinaryData){n, kept};
        *out = m;
    }
    free(data);
    return st;
}

fv_status fv_request_image(const char *path, fv_arena *a, image_message **out) {
    char *data;
    size_t n;
    FV_TRY(fv_request_file(path, &data, &n));
    return keep_image(data, n, a, out);
}

static fv_status read_images(const fv_options *o, const fv_request_frames *v, fv_arena *a,
                             request_message *out) {
    const fv_video *video = &v->video;
    const char *const *files;
    const int n_file = fv_options_list(o, "image", &files);
    FV_TRY(FV_ARENA_NEW(a, video->n + n_file, out->images));
    for (int i = 0; i < video->n; i++) {
        uint8_t *png;
        size_t n;
        FV_TRY(fv_video_frame_png(video, i, &png, &n));
        FV_TRY(keep_image(png, n, a, &out->images[i]));
    }
    for (int i = 0; i < n_file; i++)
        FV_TRY(fv_request_image(files[i], a, &out->images[video->n + i]));
    out->n_images = (size_t)(video->n + n_file);
    if (!v->own) return FV_OK;
    Fovea__Inference__V1__Video *m;
    FV_TRY(FV_ARENA_NEW(a, 1, m));
    FV_TRY(FV_ARENA_NEW(a, 1, out->videos));
    fovea__inference__v1__video__init(m);
    m->n_frames = (uint32_t)video->n;
    m->fps = v->fps;
    m->seconds = video->seconds; /* owned by the session */
    m->n_seconds = (size_t)video->n;
    out->videos[0] = m;
    out->n_videos = 1;
    return FV_OK;
}

static fv_status read_sampling(const fv_options *o, fv_arena *a, request_message *out) {
    sampling_message *s;
    FV_TRY(FV_ARENA_NEW(a, 1, s));
    fovea__inference__v1__sampling__init(s);
    s->temperature = (float)fv_options_float(o, "temperature");
    s->top_k = (uint32_t)fv_options_int(o, "top-k");
    if (fv_options_given(o, "top-p"))
        s->nucleus_case = FOVEA__INFERENCE__V1__SAMPLING__NUCLEUS_TOP_P;
    s->top_p = (float)fv_options_float(o, "top-p");
    if (fv_options_given(o, "repetition-penalty"))
        s->repetition_case = FOVEA__INFERENCE__V1__SAMPLING__REPETITION_REPETITION_PENALTY;
    s->repetition_penalty = (float)fv_options_float(o, "repetition-penalty");
    s->min_p = (float)fv_options_float(o, "min-p");
    s->presence_penalty = (float)fv_options_float(o, "presence-penalty");
    s->frequency_penalty = (float)fv_options_float(o, "frequency-penalty");
    s->seed = (uint64_t)fv_options_int(o, "seed");
    out->sampling = s;
    return FV_OK;
}

fv_status fv_request_message(const fv_options *o, const fv_request_frames *v, fv_arena *a,
                             request_message *out) {
    const char *const *stop;
    fv_policy policy;
    FV_TRY(fv_policy_parse(fv_options_string(o, "policy"), &policy));
    FV_TRY(fv_policy_to_message(&policy, a, &out->policy));
    FV_TRY(read_images(o, v, a, out));
    FV_TRY(read_sampling(o, a, out));
    out->max_tokens = (uint32_t)fv_options_int(o, "max-tokens");
    out->n_stop = (size_t)fv_options_list(o, "stop", &stop);
    out->stop = (char **)stop;
    out->ignore_eos = fv_options_flag(o, "ignore-eos");
    out->cache_off = fv_options_flag(o, "cache-off");
    out->cache_salt = (char *)(uintptr_t)fv_options_string(o, "cache-salt");
    FV_TRY(fv_request_form_message(o, a, &out->rules));
    fv_ask_drafts drafts;
    FV_TRY(fv_request_drafts(o, a, &drafts));
    if (drafts.given) {
        out->speculation_case = FOVEA__INFERENCE__V1__GENERATE_REQUEST__SPECULATION_SPECULATE;
        out->speculate = drafts.on;
    }
    if (drafts.prediction) out->prediction = (char *)(uintptr_t)drafts.prediction;
    out->n_logprobs = (uint32_t)fv_options_int(o, "logprobs");
    out->digests = true;
    return FV_OK;
}
