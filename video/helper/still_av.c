/* GIF and BMP by libav, whose decoders take a whole file as one packet. */
#include "video/helper/still_av.h"

#include <libavutil/pixdesc.h>
#include <string.h>

#include "video/helper/still.h"

static fv_status failed(int e) {
    char words[AV_ERROR_MAX_STRING_SIZE];
    if (e == AVERROR(ENOMEM))
        return FV_FAIL(FV_EINVAL, "the image needs more memory to decode than it may");
    av_strerror(e, words, sizeof words);
    return FV_FAIL(FV_EDATA, "the image cannot be decoded: %s", words);
}

static int set_extra(const fv_still_codec *codec, AVCodecContext *c) {
    if (codec->n_extra == 0) return 0;
    if (codec->n_extra > INT32_MAX / 2) return AVERROR_INVALIDDATA;
    c->extradata = av_mallocz(codec->n_extra + AV_INPUT_BUFFER_PADDING_SIZE);
    if (!c->extradata) return AVERROR(ENOMEM);
    memcpy(c->extradata, codec->extra, codec->n_extra);
    c->extradata_size = (int)codec->n_extra;
    return 0;
}

/* Gives the decoder the packet and the end, and takes the first frame. */
static int decode(const fv_still_codec *codec, const AVCodec *decoder, AVCodecContext *c,
                  const AVPacket *packet, AVFrame *frame) {
    c->thread_count = 1;
    c->max_pixels = codec->pixels_max;
    int e = set_extra(codec, c);
    if (e >= 0) e = avcodec_open2(c, decoder, NULL);
    if (e >= 0) e = avcodec_send_packet(c, packet);
    if (e >= 0) e = avcodec_send_packet(c, NULL);
    if (e >= 0) e = avcodec_receive_frame(c, frame);
    if (e >= 0 && (frame->decode_error_flags || frame->flags & AV_FRAME_FLAG_CORRUPT))
        e = AVERROR_INVALIDDATA;
    return e;
}

fv_status fv_still_frame(const fv_still_codec *codec, const uint8_t *bytes, size_t n,
                         AVFrame **out) {
    const AVCodec *decoder = avcodec_find_decoder_by_name(codec->decoder);
    if (!decoder)
        return FV_FAIL(FV_EUNSUPPORTED, "libavcodec has no decoder %s here", codec->decoder);
    AVCodecContext *c = avcodec_alloc_context3(decoder);
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();
    int e = AVERROR(ENOMEM);
    if (c && packet && frame && n <= INT32_MAX / 2) e = av_new_packet(packet, (int)n);
    if (e >= 0) {
        memcpy(packet->data, bytes, n);
        e = decode(codec, decoder, c, packet, frame);
    }
    avcodec_free_context(&c); /* the frame has references of its own */
    av_packet_free(&packet);
    if (e < 0) {
        av_frame_free(&frame);
        return failed(e);
    }
    *out = frame;
    return FV_OK;
}

static uint32_t scale_to_255(uint32_t v, uint32_t most) { return v * 255 / most; }

/* Reads pixel x of a row; false: its format is another one. */
static bool read_pixel(const AVFrame *f, const uint8_t *row, int32_t x, uint8_t out[4]) {
    const uint8_t *p;
    uint32_t v;
    out[3] = 255;
    switch (f->format) {
    case AV_PIX_FMT_BGRA:
    case AV_PIX_FMT_BGR0:
        p = row + 4 * x;
        out[0] = p[2], out[1] = p[1], out[2] = p[0];
        if (f->format == AV_PIX_FMT_BGRA) out[3] = p[3];
        return true;
    case AV_PIX_FMT_BGR24:
        p = row + 3 * x;
        out[0] = p[2], out[1] = p[1], out[2] = p[0];
        return true;
    case AV_PIX_FMT_GRAY8: memset(out, row[x], 3); return true;
    case AV_PIX_FMT_PAL8:
        memcpy(&v, f->data[1] + 4 * row[x], 4); /* alpha, red, green, blue from the top byte on */
        out[0] = (uint8_t)(v >> 16), out[1] = (uint8_t)(v >> 8), out[2] = (uint8_t)v;
        return true;
    case AV_PIX_FMT_RGB555LE:
    case AV_PIX_FMT_RGB565LE:
        v = row[2 * x] | (uint32_t)row[2 * x + 1] << 8;
        const int green = f->format == AV_PIX_FMT_RGB565LE ? 6 : 5;
        out[0] = (uint8_t)scale_to_255(v >> (5 + green) & 31, 31);
        out[1] = (uint8_t)scale_to_255(v >> 5 & ((1U << green) - 1), (1U << green) - 1);
        out[2] = (uint8_t)scale_to_255(v & 31, 31);
        return true;
    default: return false;
    }
}

static fv_status take_frame(const AVFrame *f, const fv_video_limits *l, fv_pixels *out) {
    FV_TRY(fv_pixels_alloc(f->width, f->height, l, out));
    uint8_t *to = out->rgba;
    for (int32_t y = 0; y < f->height; y++)
        for (int32_t x = 0; x < f->width; x++, to += 4)
            if (!read_pixel(f, f->data[0] + (ptrdiff_t)y * f->linesize[0], x, to))
                return FV_FAIL(FV_EUNSUPPORTED, "the image has pixels of the format %s",
                               av_get_pix_fmt_name((enum AVPixelFormat)f->format));
    return FV_OK;
}

fv_status fv_still_gif(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out) {
    const fv_still_codec codec = {.decoder = "gif", .pixels_max = l->pixels_max};
    AVFrame *f;
    FV_TRY(fv_still_frame(&codec, bytes, n, &f));
    fv_status st = take_frame(f, l, out);
    av_frame_free(&f);
    return st;
}

/* Alpha counts only where the header has a mask for it, as in Pillow: other files have any bytes there. */
static bool has_alpha(const uint8_t *bytes, size_t n) {
    enum { BITFIELDS = 3 };
    static const uint8_t none[4] = {0};
    return n >= 70 && bytes[14] >= 56 && bytes[30] == BITFIELDS && memcmp(bytes + 66, none, 4) != 0;
}

fv_status fv_still_bmp(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out) {
    const fv_still_codec codec = {.decoder = "bmp", .pixels_max = l->pixels_max};
    AVFrame *f;
    FV_TRY(fv_still_frame(&codec, bytes, n, &f));
    if (f->format == AV_PIX_FMT_BGRA && !has_alpha(bytes, n)) f->format = AV_PIX_FMT_BGR0;
    fv_status st = take_frame(f, l, out);
    av_frame_free(&f);
    return st;
}
