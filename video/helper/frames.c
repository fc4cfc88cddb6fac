/* Decodes the wanted frames, with one thread.
 *
 *   packets  K . . . . K . . . . K . . . .     K: key packets, where decoding can begin
 *   wanted       |                   |
 *            '-->'    (skipped)  '-->'
 *
 * A frame that is shown before its key packet needs the previous key packet too. Files may mark keys
 * wrongly: if a wanted frame does not come out, all packets are decoded from the first one on. */
#include "video/helper/frames.h"

#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct decoding {
    fv_container *c;
    const fv_video_request *request;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    struct SwsContext *scale;
    int64_t n_wanted, n_written;
    int64_t position; /* packets read */
    int64_t n_out;    /* frames that came out since the first packet */
    bool skips;       /* may skip packets */
    int32_t w, h;     /* of the source's frames; 0: none has been decoded */
    int32_t w_scaled, h_scaled;
    bool swap, flip_x, flip_y; /* makes frames upright: swaps axes, then flips directions */
    uint8_t *scaled, *upright; /* [h, w, 3] */
} decoding;

/* ---- writing ---------------------------------------------------------------------------- */

static void write_all(const void *bytes, size_t n) {
    for (const char *at = bytes; n > 0;) {
        ssize_t k = write(STDOUT_FILENO, at, n);
        if (k <= 0) continue; /* without a reader SIGPIPE ends the process */
        at += k;
        n -= (size_t)k;
    }
}

void fv_record_write(fv_video_record_kind kind, fv_status status, const void *head, size_t n_head,
                     const void *rest, size_t n_rest) {
    const fv_video_record r = {
        .kind = (uint32_t)kind, .status = (uint32_t)status, .bytes = n_head + n_rest};
    write_all(&r, sizeof r);
    write_all(head, n_head);
    write_all(rest, n_rest);
}

static int64_t wanted_index(const decoding *d, int64_t i) {
    return fv_video_sampling_index(&d->request->sampling, d->c->n_shown, d->n_wanted, i);
}

/* ---- from libav's frame to pixels ------------------------------------------------------- */

/* Reads the matrix of ISO 14496-12, 8.3.2: (p, q) is shown at (a p + c q, b p + d q). Scale and offset are
 * ignored. */
static fv_status read_orientation(decoding *d) {
    size_t bytes = 0;
    const int32_t *m =
        (const void *)av_stream_get_side_data(d->c->stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
    if (!m || bytes < 9 * sizeof *m) return FV_OK;
    const int32_t a = m[0], b = m[1], c = m[3], e = m[4];
    d->swap = a == 0 && e == 0;
    if (d->swap ? b == 0 || c == 0 : a == 0 || e == 0 || b != 0 || c != 0)
        return FV_FAIL(FV_EUNSUPPORTED, "the video's rotation is not a multiple of 90 degrees");
    d->flip_x = (d->swap ? c : a) < 0;
    d->flip_y = (d->swap ? b : e) < 0;
    return FV_OK;
}

/* Writes the head: all frames must have the size of the first. */
static fv_status begin_video(decoding *d) {
    const fv_video_limits *l = &d->request->limits;
    const int64_t pixels = (int64_t)d->w * d->h;
    double f = fmin(1, sqrt((double)l->taken_max / ((double)pixels * (double)d->n_wanted)));
    d->w_scaled = (int32_t)fmax(1, floor(d->w * f));
    d->h_scaled = (int32_t)fmax(1, floor(d->h * f));
    const size_t bytes = 3 * (size_t)d->w_scaled * (size_t)d->h_scaled;
    d->scaled = av_malloc(bytes + 64); /* swscale writes past the end of a row */
    d->upright = av_malloc(bytes);
    if (!d->scaled || !d->upright) return fv_av_failed(AVERROR(ENOMEM), "");
    const fv_video_head head = {.n = (int32_t)d->n_wanted,
                                .w = d->swap ? d->h_scaled : d->w_scaled,
                                .h = d->swap ? d->w_scaled : d->h_scaled,
                                .n_source = d->c->n_shown,
                                .fps = d->c->fps,
                                .duration = d->c->duration};
    fv_record_write(FV_VIDEO_HEAD, FV_OK, &head, sizeof head, NULL, 0);
    return FV_OK;
}

/* Converts to RGB with the frame's own matrix and range (default: BT.601, limited). */
static fv_status to_rgb(decoding *d) {
    const AVFrame *f = d->frame;
    d->scale = sws_getCachedContext(
        d->scale, f->width, f->height, (enum AVPixelFormat)f->format, d->w_scaled, d->h_scaled,
        AV_PIX_FMT_RGB24, SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, NULL, NULL, NULL);
    if (!d->scale)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the video's pixels have a format that cannot be converted");
    sws_setColorspaceDetails(d->scale, sws_getCoefficients(f->colorspace),
                             f->color_range == AVCOL_RANGE_JPEG,
                             sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
    uint8_t *out[4] = {d->scaled};
    const int stride[4] = {3 * d->w_scaled};
    int e = sws_scale(d->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, out,
                      stride);
    return e < 0 ? fv_av_failed(e, "a frame cannot be converted") : FV_OK;
}

static void turn(const decoding *d) {
    const int32_t w = d->w_scaled, h = d->h_scaled;
    const int32_t w_up = d->swap ? h : w, h_up = d->swap ? w : h;
    for (int32_t q = 0; q < h; q++) {
        for (int32_t p = 0; p < w; p++) {
            int32_t x = d->swap ? q : p, y = d->swap ? p : q;
            if (d->flip_x) x = w_up - 1 - x;
            if (d->flip_y) y = h_up - 1 - y;
            memcpy(d->upright + 3 * ((size_t)y * (size_t)w_up + (size_t)x),
                   d->scaled + 3 * ((size_t)q * (size_t)w + (size_t)p), 3);
        }
    }
}

static fv_status write_frame(decoding *d) {
    const int64_t index = wanted_index(d, d->n_written);
    const fv_video_frame head = {.index = index, .seconds = d->c->seconds[index]};
    if (d->n_written == 0) FV_TRY(begin_video(d));
    FV_TRY(to_rgb(d));
    const bool turned = d->swap || d->flip_x || d->flip_y;
    if (turned) turn(d);
    fv_record_write(FV_VIDEO_FRAME, FV_OK, &head, sizeof head, turned ? d->upright : d->scaled,
                    3 * (size_t)d->w_scaled * (size_t)d->h_scaled);
    d->n_written++;
    return FV_OK;
}

/* ---- decoding --------------------------------------------------------------------------- */

static fv_status open_codec(decoding *d) {
    d->codec = avcodec_alloc_context3(d->c->codec);
    d->packet = av_packet_alloc();
    d->frame = av_frame_alloc();
    if (!d->codec || !d->packet || !d->frame) return fv_av_failed(AVERROR(ENOMEM), "");
    int e = avcodec_parameters_to_context(d->codec, d->c->stream->codecpar);
    d->codec->thread_count = 1;
    d->codec->max_pixels = d->request->limits.pixels_max;
    d->codec->pkt_timebase = d->c->stream->time_base;
    if (e >= 0) e = avcodec_open2(d->codec, d->c->codec, NULL);
    return e < 0 ? fv_av_failed(e, "the video cannot be decoded") : FV_OK;
}

/* The packet at which decoding must begin for packet p. */
static int64_t key_before(const fv_container *c, const fv_packet_info *p) {
    int64_t k = p->number;
    while (k > 0 && !c->packet[k].key) k--;
    if (k > 0 && p->pts < c->packet[k].pts)
        for (k--; k > 0 && !c->packet[k].key;) k--;
    return k;
}

/* Skips packets that no wanted frame depends on. */
static fv_status skip(decoding *d) {
    int64_t to = key_before(d->c, d->c->shown[wanted_index(d, d->n_written)]);
    bool there = true;
    if (to <= d->position) return FV_OK;
    while (there && d->position < to) {
        FV_TRY(fv_container_next(d->c, d->packet, &there));
        d->position++;
    }
    avcodec_flush_buffers(d->codec);
    return FV_OK;
}

static fv_status on_frame(decoding *d) {
    const AVFrame *f = d->frame;
    if (d->w == 0) {
        d->w = f->width;
        d->h = f->height;
    }
    if (f->width != d->w || f->height != d->h)
        return FV_FAIL(FV_EINVAL, "the video's frames change from %dx%d to %dx%d pixels", d->w,
                       d->h, f->width, f->height);
    const int64_t index = wanted_index(d, d->n_written), number = d->n_out++;
    if (d->c->timed ? f->pts != d->c->shown[index]->pts : number != index) return FV_OK;
    if (f->decode_error_flags || f->flags & AV_FRAME_FLAG_CORRUPT)
        return FV_FAIL(FV_EDATA, "frame %lld of the video is damaged", (long long)index);
    return write_frame(d);
}

/* Gives the decoder one packet, or the end (there: false), and takes all frames that it returns. */
static fv_status decode(decoding *d, bool there) {
    int e = avcodec_send_packet(d->codec, there ? d->packet : NULL);
    while (e >= 0 && d->n_written < d->n_wanted) {
        e = avcodec_receive_frame(d->codec, d->frame);
        if (e == AVERROR(EAGAIN) || e == AVERROR_EOF) return FV_OK;
        if (e >= 0) FV_TRY(on_frame(d));
    }
    return e < 0 ? fv_av_failed(e, "the video is damaged") : FV_OK;
}

static fv_status decode_wanted(decoding *d) {
    bool there = true;
    while (d->n_written < d->n_wanted) {
        if (!there)
            return FV_FAIL(FV_EDATA, "frame %lld of the video cannot be decoded",
                           (long long)wanted_index(d, d->n_written));
        if (d->skips) FV_TRY(skip(d));
        FV_TRY(fv_container_next(d->c, d->packet, &there));
        d->position++;
        FV_TRY(decode(d, there));
    }
    return FV_OK;
}

fv_status fv_frames_write(fv_container *c, const fv_video_request *request) {
    decoding d = {.c = c,
                  .request = request,
                  .n_wanted = fv_video_sampling_count(&request->sampling, c->n_shown, c->fps),
                  .skips = c->timed};
    if (d.n_wanted > request->limits.frames_max)
        return FV_FAIL(FV_EINVAL, "%lld frames of the video were asked for: the most are %d",
                       (long long)d.n_wanted, request->limits.frames_max);
    FV_TRY(read_orientation(&d));
    FV_TRY(fv_container_rewind(c));
    FV_TRY(open_codec(&d));
    fv_status st = decode_wanted(&d);
    if (st != FV_EDATA || !d.skips) return st;
    FV_TRY(fv_container_rewind(c));
    avcodec_flush_buffers(d.codec);
    d.skips = false;
    d.position = d.n_out = 0;
    return decode_wanted(&d);
}
