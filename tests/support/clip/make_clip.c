/* make_clip FILE [KEY=VALUE]...: a video of a square that moves over black.
 *
 * In frame i of n the square's side is a quarter of the height, its left edge is at
 * i (w - side) / (n - 1), its top at 0; it is red in the first third, then green, then blue.
 *
 *   codec    an encoder of libav's    libx264
 *   w, h     pixels                   96, 64
 *   n, fps   frames                   30, 10
 *   gop      frames between keys      12
 *   slow     from this frame on, times pass twice as slowly: variable frame rate    (none)
 *   turned   degrees in the display matrix    0
 *   mirrored 1: the display matrix mirrors as well
 *   change   from this frame on, frames have half the width    (none) */
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libx265"; }
#endif

static struct {
    const char *name;
    int value;
} numbers[] = {{"w", 96},    {"h", 64},     {"n", 30},       {"fps", 10},   {"gop", 12},
               {"slow", -1}, {"turned", 0}, {"mirrored", 0}, {"change", -1}};

static int number(const char *name) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name) == 0) return numbers[i].value;
    abort();
}

static const char *codec_name = "libx264";

static void need(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "make_clip: cannot %s\n", what);
    exit(1);
}

static void read_arguments(int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        bool known = false;
        need(value != NULL, argv[i]);
        *value++ = 0;
        if (strcmp(argv[i], "codec") == 0) {
            codec_name = value;
            continue;
        }
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            if (strcmp(numbers[k].name, argv[i]) != 0) continue;
            numbers[k].value = atoi(value);
            known = true;
        }
        need(known, argv[i]);
    }
}

static void draw(AVFrame *rgb, int i) {
    const int n = number("n"), side = rgb->height / 4;
    const int left = n > 1 ? i * (rgb->width - side) / (n - 1) : 0;
    for (int y = 0; y < rgb->height; y++)
        memset(rgb->data[0] + y * rgb->linesize[0], 0, (size_t)(3 * rgb->width));
    for (int y = 0; y < side; y++)
        for (int x = left; x < left + side; x++)
            rgb->data[0][y * rgb->linesize[0] + 3 * x + 3 * i / n] = 255;
}

static AVFrame *new_frame(int w, int h, enum AVPixelFormat format) {
    AVFrame *f = av_frame_alloc();
    f->width = w;
    f->height = h;
    f->format = format;
    need(av_frame_get_buffer(f, 0) >= 0, "allocate a frame");
    return f;
}

static AVCodecContext *open_encoder(const AVFormatContext *out, int w, int h) {
    const AVCodec *codec = avcodec_find_encoder_by_name(codec_name);
    need(codec != NULL, "find the encoder");
    AVCodecContext *c = avcodec_alloc_context3(codec);
    c->width = w;
    c->height = h;
    c->time_base = (AVRational){1, codec->id == AV_CODEC_ID_GIF ? 100 : 1000};
    if (codec->id == AV_CODEC_ID_MPEG4) c->time_base = (AVRational){1, number("fps")};
    c->pix_fmt = codec->pix_fmts ? codec->pix_fmts[0] : AV_PIX_FMT_YUV420P;
    c->color_range = AVCOL_RANGE_MPEG;
    c->gop_size = number("gop");
    c->max_b_frames = codec->id == AV_CODEC_ID_H264 || codec->id == AV_CODEC_ID_HEVC ? 2 : 0;
    c->bit_rate = 4000000;
    c->thread_count = 1;
    av_opt_set(c->priv_data, "preset", "ultrafast", 0);
    av_opt_set(c->priv_data, "deadline", "realtime", 0);
    av_opt_set_int(c->priv_data, "cpu-used", 8, 0);
    av_opt_set(c->priv_data, "x265-params", "log-level=none", 0);
    if (out->oformat->flags & AVFMT_GLOBALHEADER) c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    need(avcodec_open2(c, codec, NULL) >= 0, "open the encoder");
    return c;
}

static void drain(AVFormatContext *out, AVCodecContext *c, AVPacket *p) {
    while (avcodec_receive_packet(c, p) >= 0) {
        p->duration = c->time_base.den / c->time_base.num / number("fps");
        av_packet_rescale_ts(p, c->time_base, out->streams[0]->time_base);
        need(av_interleaved_write_frame(out, p) >= 0, "write a packet");
    }
}

/* Milliseconds at which frame i is shown. */
static int64_t time_of(int i) {
    const int slow = number("slow");
    return (int64_t)(slow < 0 || i < slow ? i : 2 * i - slow) * 1000 / number("fps");
}

/* Frames first..end-1. */
static void encode(AVFormatContext *out, AVCodecContext *c, AVPacket *p, int first, int end) {
    AVFrame *rgb = new_frame(c->width, c->height, AV_PIX_FMT_RGB24);
    AVFrame *frame = new_frame(c->width, c->height, c->pix_fmt);
    struct SwsContext *sws =
        sws_getContext(c->width, c->height, AV_PIX_FMT_RGB24, c->width, c->height, c->pix_fmt,
                       SWS_BICUBIC | SWS_ACCURATE_RND, NULL, NULL, NULL);
    for (int i = first; i < end; i++) {
        draw(rgb, i);
        need(av_frame_make_writable(frame) >= 0, "reuse a frame");
        sws_scale(sws, (const uint8_t *const *)rgb->data, rgb->linesize, 0, c->height, frame->data,
                  frame->linesize);
        frame->pts = av_rescale_q(time_of(i), (AVRational){1, 1000}, c->time_base);
        need(avcodec_send_frame(c, frame) >= 0, "encode a frame");
        drain(out, c, p);
    }
    avcodec_send_frame(c, NULL);
    drain(out, c, p);
    sws_freeContext(sws);
    av_frame_free(&rgb);
    av_frame_free(&frame);
}

int main(int argc, char **argv) {
    AVFormatContext *out = NULL;
    AVPacket *p = av_packet_alloc();
    need(argc > 1, "write: make_clip FILE [KEY=VALUE]...");
    read_arguments(argc, argv);
    av_log_set_level(AV_LOG_ERROR);
    need(avformat_alloc_output_context2(&out, NULL, NULL, argv[1]) >= 0, "tell the format");
    const int n = number("n"), change = number("change");
    AVCodecContext *c = open_encoder(out, number("w"), number("h"));
    AVStream *s = avformat_new_stream(out, NULL);
    avcodec_parameters_from_context(s->codecpar, c);
    s->time_base = c->time_base;
    if (number("slow") < 0) s->avg_frame_rate = (AVRational){number("fps"), 1};
    if (number("turned") || number("mirrored")) {
        int32_t *m =
            (int32_t *)(void *)av_stream_new_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof *m);
        av_display_rotation_set(m, number("turned"));
        if (number("mirrored")) av_display_matrix_flip(m, 1, 0);
    }
    need(avio_open(&out->pb, argv[1], AVIO_FLAG_WRITE) >= 0, "open the file");
    need(avformat_write_header(out, NULL) >= 0, "write the header");
    encode(out, c, p, 0, change < 0 ? n : change);
    if (change >= 0) {
        avcodec_free_context(&c);
        c = open_encoder(out, number("w") / 2, number("h"));
        encode(out, c, p, change, n);
    }
    need(av_write_trailer(out) >= 0, "write the end");
    avio_closep(&out->pb);
    avformat_free_context(out);
    avcodec_free_context(&c);
    av_packet_free(&p);
    return 0;
}
