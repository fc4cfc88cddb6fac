/* Decodes by uv_queue_work: a libuv thread reads the helper's output and encodes the frames as PNG
 * files; the loop gets the result. */
#include "gateway/decode.h"

#include <stdio.h>
#include <stdlib.h>

struct fv_decoding {
    uv_work_t work;
    fv_gateway *gateway;
    fv_video_options opt;
    fv_request_memory *held;
    ProtobufCBinaryData file; /* borrowed from `held` */
    fv_decoded done;          /* NULL: freed by its owner */
    void *user;
    bool over;
    fv_status st;
    char sentence[512]; /* the thread's error text */
    fv_api_frame frame[FV_VIDEO_AS_IMAGES_MAX];
    char time[FV_VIDEO_AS_IMAGES_MAX][FV_VIDEO_TIME_MAX];
    size_t n, n_held; /* n_held: how many of the n frames `held` owns */
    double fps;
    bool as_video;
};

static fv_status decode(fv_decoding *d) {
    fv_video v;
    FV_TRY(fv_video_decode_bytes(d->file.data, d->file.len, &d->opt, &v));
    fv_status st = FV_OK;
    for (int32_t i = 0; i < v.n && st == FV_OK; i++) {
        fv_api_frame *f = &d->frame[i];
        st = fv_video_frame_png(&v, i, &f->png.data, &f->png.len);
        fv_video_time_text(v.seconds[i], d->time[i]);
        f->time = d->time[i];
        f->seconds = v.seconds[i];
        if (st == FV_OK) d->n++;
    }
    d->fps = v.n * v.fps / (double)v.n_source;
    fv_video_free(&v);
    return st;
}

static void on_thread(uv_work_t *w) {
    fv_decoding *d = w->data;
    d->st = decode(d);
    if (d->st == FV_OK) return;
    d->st = fv_fail_caller(d->st); /* except that the helper is missing, which has another origin */
    snprintf(d->sentence, sizeof d->sentence, "%s", fv_last_error());
}

static void release(fv_decoding *d) {
    for (size_t i = d->n_held; i < d->n; i++) free(d->frame[i].png.data);
    free(d);
}

/* Gives the frames to `held`, which lends them to the calls without a copy. */
static fv_status hold_frames(fv_decoding *d) {
    for (; d->n_held < d->n; d->n_held++)
        FV_TRY(fv_request_memory_own(d->held, d->frame[d->n_held].png.data));
    return FV_OK;
}

static void on_over(uv_work_t *w, int status) {
    fv_decoding *d = w->data;
    fv_gateway *g = d->gateway;
    (void)status; /* work is never cancelled */
    fv_request_memory *held = d->held;
    d->over = true;
    g->n_decoding--;
    if (!d->done)
        release(d);
    else
        d->done(d->user, d->st == FV_OK ? hold_frames(d) : FV_FAIL(d->st, "%s", d->sentence));
    fv_request_memory_unref(held);
    fv_gateway_task_gone(g);
}

fv_status fv_decode_start(fv_gateway *g, const fv_api_video *v, fv_request_memory *held,
                          const fv_layout_config *layout, fv_decoded done, void *user,
                          fv_decoding **out) {
    if (g->n_decoding >= FV_DECODINGS_MAX)
        return FV_FAIL(FV_EBUSY, "%d videos are being decoded: retry later", FV_DECODINGS_MAX);
    fv_decoding *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "out of memory for a video");
    *d = (fv_decoding){.work = {.data = d},
                       .gateway = g,
                       .held = held,
                       .file = v->file,
                       .done = done,
                       .user = user,
                       .as_video = fv_layout_reads_video(layout)};
    const fv_layout_frames frames = fv_layout_frames_of(layout);
    fv_status st = fv_video_as_images(v->frames, v->rate, &d->opt);
    if (d->as_video) fv_video_as_video(frames.ends, frames.multiple, &d->opt);
    if (st != FV_OK) {
        free(d);
        return st;
    }
    fv_request_memory_ref(held);
    uv_queue_work(fv_bridge_loop(g->opt.bridge), &d->work, on_thread, on_over);
    g->n_decoding++;
    g->n_task++; /* on_over uses the gateway */
    *out = d;
    return FV_OK;
}

fv_api_frames fv_decoding_frames(const fv_decoding *d) {
    return (fv_api_frames){d->frame, d->n, d->fps, d->as_video};
}

void fv_decoding_free(fv_decoding *d) {
    if (!d) return;
    d->done = NULL;
    if (d->over) release(d);
}
