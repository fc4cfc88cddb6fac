/* Reads containers with libav's demuxers, chosen by the file's first bytes.
 *
 * All packets are read once before the first is decoded, because headers do not reliably say how many
 * frames there are and when each is shown. Demuxers ignore one kind of damage that is checked here: a
 * file that ends before the boxes it consists of. */
#include "video/helper/container.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/grow.h"

enum { IO_BYTES = 1 << 16, STREAMS_MAX = 64 };

static const double default_fps = 24; /* as in transformers, if a file has none */

static const struct {
    enum AVCodecID id;
    const char *decoder;
} codecs[] = {{AV_CODEC_ID_H264, "h264"},    {AV_CODEC_ID_HEVC, "hevc"},
              {AV_CODEC_ID_VP8, "vp8"},      {AV_CODEC_ID_VP9, "vp9"},
              {AV_CODEC_ID_AV1, "libdav1d"}, {AV_CODEC_ID_MPEG4, "mpeg4"},
              {AV_CODEC_ID_GIF, "gif"}};
enum { N_CODECS = sizeof codecs / sizeof *codecs };

fv_status fv_av_failed(int e, const char *what) {
    char words[AV_ERROR_MAX_STRING_SIZE];
    if (e == AVERROR(ENOMEM))
        return FV_FAIL(FV_EINVAL, "decoding the video exceeds the memory limit");
    av_strerror(e, words, sizeof words);
    return FV_FAIL(FV_EDATA, "%s: %s", what, words);
}

static fv_status truncated(void) { return FV_FAIL(FV_EDATA, "the video file is truncated"); }

/* ---- the file --------------------------------------------------------------------------- */

static int read_file(void *opaque, uint8_t *out, int n) {
    (void)opaque;
    ssize_t got = read(STDIN_FILENO, out, (size_t)n);
    return got > 0 ? (int)got : got == 0 ? AVERROR_EOF : AVERROR(errno);
}

static int64_t seek_file(void *opaque, int64_t offset, int whence) {
    if (whence == AVSEEK_SIZE) return ((const fv_container *)opaque)->bytes;
    off_t at = lseek(STDIN_FILENO, offset, whence & ~AVSEEK_FORCE);
    return at < 0 ? AVERROR(errno) : at;
}

/* Refuses to open other files, which a container may name. */
static int open_other(AVFormatContext *format, AVIOContext **io, const char *url, int flags,
                      AVDictionary **options) {
    (void)format, (void)io, (void)url, (void)flags, (void)options;
    return AVERROR(EPERM);
}

/* ---- completeness ----------------------------------------------------------------------- */

static bool is_known_box(uint32_t type) {
    static const uint32_t known[] = {MKBETAG('f', 't', 'y', 'p'), MKBETAG('m', 'o', 'o', 'v'),
                                     MKBETAG('m', 'o', 'o', 'f'), MKBETAG('m', 'd', 'a', 't'),
                                     MKBETAG('f', 'r', 'e', 'e')};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (type == known[i]) return true;
    return false;
}

/* ISO 14496-12, 4.2: a file is a sequence of boxes, each with its size and type. Anything may follow the
 * last of the known boxes. */
static bool mp4_is_whole(AVIOContext *io, int64_t bytes) {
    for (int64_t at = 0; bytes - at >= 8;) {
        avio_seek(io, at, SEEK_SET);
        uint64_t size = avio_rb32(io);
        if (!is_known_box(avio_rb32(io)) || size == 0) return true; /* 0: to the end */
        if (size == 1) size = avio_rb64(io);
        if (size < 8 || size > (uint64_t)(bytes - at)) return false;
        at += (int64_t)size;
    }
    return true;
}

/* RFC 8794, 4: the leading zeros of a size say how long it is. All ones: unknown, -1. */
static int64_t ebml_size(AVIOContext *io) {
    int n = 1, first = avio_r8(io);
    while (n < 8 && !(first & (0x80 >> (n - 1)))) n++;
    uint64_t size = (uint64_t)first & (0xffU >> n);
    for (int i = 1; i < n; i++) size = size << 8 | (uint64_t)avio_r8(io);
    return size == (UINT64_C(1) << 7 * n) - 1 ? -1 : (int64_t)size;
}

/* RFC 9559, 5: the EBML header, and the segment, whose size is unknown in live recordings. */
static bool matroska_is_whole(AVIOContext *io, int64_t bytes) {
    for (int i = 0; i < 2; i++) {
        avio_skip(io, 4);
        int64_t size = ebml_size(io);
        if (size < 0) return true;
        if (size > bytes - avio_tell(io)) return false;
        avio_skip(io, size);
    }
    return true;
}

/* Appendix A of GIF89a: a table of colours, if the flags say so. */
static void skip_colours(AVIOContext *io, int flags) {
    if (flags & 0x80) avio_skip(io, 3 << ((flags & 7) + 1));
}

static bool gif_is_whole(AVIOContext *io, int64_t bytes) {
    (void)bytes;
    avio_skip(io, 10);
    int flags = avio_r8(io);
    avio_skip(io, 2);
    skip_colours(io, flags);
    while (!avio_feof(io)) {
        switch (avio_r8(io)) {
        case 0x3b: return !avio_feof(io);
        case 0x21: avio_skip(io, 1); break; /* extension: label */
        case 0x2c:                          /* image: place, colours, size of codes */
            avio_skip(io, 8);
            skip_colours(io, avio_r8(io));
            avio_skip(io, 1);
            break;
        default: return false;
        }
        for (int n; (n = avio_r8(io)) > 0;) avio_skip(io, n);
    }
    return false;
}

/* ---- opening ---------------------------------------------------------------------------- */

static const struct {
    const char *demuxer, *magic;
    int64_t offset;
    bool (*is_whole)(AVIOContext *io, int64_t bytes);
} formats[] = {{"mov", "ftyp", 4, mp4_is_whole},
               {"matroska", "\x1a\x45\xdf\xa3", 0, matroska_is_whole},
               {"gif", "GIF8", 0, gif_is_whole}};

static fv_status detect(AVIOContext *io, int64_t bytes, const AVInputFormat **out) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        uint8_t magic[4] = {0};
        avio_seek(io, formats[i].offset, SEEK_SET);
        avio_read(io, magic, 4);
        if (memcmp(magic, formats[i].magic, 4) != 0) continue;
        avio_seek(io, 0, SEEK_SET);
        if (!formats[i].is_whole(io, bytes)) return truncated();
        avio_seek(io, 0, SEEK_SET);
        *out = av_find_input_format(formats[i].demuxer);
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED, "the video is no MP4, WebM or GIF file");
}

/* Opens the file at its first packet. */
static fv_status open_format(fv_container *c) {
    const AVInputFormat *demuxer = NULL;
    lseek(STDIN_FILENO, 0, SEEK_SET);
    uint8_t *buffer = av_malloc(IO_BYTES);
    c->io = buffer ? avio_alloc_context(buffer, IO_BYTES, 0, c, read_file, NULL, seek_file) : NULL;
    c->format = avformat_alloc_context();
    if (!c->io || !c->format) return fv_av_failed(AVERROR(ENOMEM), "");
    FV_TRY(detect(c->io, c->bytes, &demuxer));
    c->format->pb = c->io;
    c->format->io_open = open_other;
    c->format->max_streams = STREAMS_MAX;
    int e = avformat_open_input(&c->format, NULL, demuxer, NULL);
    if (e < 0) return fv_av_failed(e, "the video's header cannot be read");
    c->stream = NULL;
    for (unsigned i = 0; i < c->format->nb_streams; i++) {
        AVStream *s = c->format->streams[i];
        bool picture = s->disposition & AV_DISPOSITION_ATTACHED_PIC; /* album cover */
        if (!c->stream && !picture && s->codecpar->codec_type == AVMEDIA_TYPE_VIDEO)
            c->stream = s;
        else
            s->discard = AVDISCARD_ALL;
    }
    return c->stream ? FV_OK : FV_FAIL(FV_EUNSUPPORTED, "the file has no video in it");
}

static fv_status find_codec(const fv_video_limits *l, fv_container *c) {
    const AVCodecParameters *p = c->stream->codecpar;
    for (int i = 0; i < N_CODECS; i++)
        if (codecs[i].id == p->codec_id) c->codec = avcodec_find_decoder_by_name(codecs[i].decoder);
    if (!c->codec)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the video's codec is %s; supported are H.264, HEVC, VP8, VP9, AV1, MPEG-4 "
                       "and GIF",
                       avcodec_get_name(p->codec_id));
    if (p->width > l->side_max || p->height > l->side_max ||
        (int64_t)p->width * p->height > l->pixels_max)
        return FV_FAIL(FV_EINVAL,
                       "the video's frames are %dx%d: the most are %lld pixels, and %d on a side",
                       p->width, p->height, (long long)l->pixels_max, l->side_max);
    return FV_OK;
}

fv_status fv_container_rewind(fv_container *c) {
    avformat_close_input(&c->format);
    av_freep(&c->io->buffer);
    avio_context_free(&c->io);
    return open_format(c);
}

/* ---- packets ---------------------------------------------------------------------------- */

fv_status fv_container_next(fv_container *c, AVPacket *packet, bool *there) {
    for (;;) {
        av_packet_unref(packet);
        int e = av_read_frame(c->format, packet);
        *there = e >= 0;
        if (e == AVERROR_EOF && !c->io->error) return FV_OK;
        if (e < 0) return fv_av_failed(e, "the video is damaged, or cut short");
        if (packet->stream_index == c->stream->index) return FV_OK;
    }
}

/* Whether a VP8 frame is not shown, and only a reference for others: RFC 6386, 9.1. */
static bool is_hidden(const fv_container *c, const AVPacket *p) {
    return c->codec->id == AV_CODEC_ID_VP8 && p->size > 0 && !(p->data[0] & 0x10);
}

static fv_status check_count(const fv_video_limits *l, int64_t n) {
    if (n <= l->source_max) return FV_OK;
    return FV_FAIL(FV_EINVAL, "the video has more than %lld frames", (long long)l->source_max);
}

static fv_status list_packets(const fv_video_limits *l, fv_container *c) {
    size_t capacity = 0;
    bool there;
    const int64_t indexed =
        avformat_index_get_entries_count(c->stream); /* MP4 indexes all packets */
    AVPacket *p = av_packet_alloc();
    if (!p) return fv_av_failed(AVERROR(ENOMEM), "");
    FV_TRY(check_count(l, indexed));
    for (;;) {
        FV_TRY(fv_container_next(c, p, &there));
        if (!there) return c->n_packet < indexed ? truncated() : FV_OK;
        if (p->flags & AV_PKT_FLAG_CORRUPT) return truncated();
        FV_TRY(check_count(l, c->n_packet + 1));
        FV_TRY(fv_grow(&c->packet, &capacity, (size_t)c->n_packet + 1, sizeof *c->packet));
        c->packet[c->n_packet] =
            (fv_packet_info){.pts = p->pts,
                             .number = c->n_packet,
                             .key = p->flags & AV_PKT_FLAG_KEY,
                             .shown = !(p->flags & AV_PKT_FLAG_DISCARD) && !is_hidden(c, p)};
        c->n_packet++;
    }
}

/* ---- times ------------------------------------------------------------------------------ */

static int by_time(const void *a, const void *b) {
    const fv_packet_info *x = *(const fv_packet_info *const *)a,
                         *y = *(const fv_packet_info *const *)b;
    if (x->pts != y->pts) return x->pts < y->pts ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* The frame rate. Times are rounded, to milliseconds in WebM, so a measured rate near an integer, or near
 * 1000/1001 of one as in NTSC, is taken to be that. `measured` is 0 if there are no usable times. */
static double frame_rate(const AVStream *s, double measured) {
    double said = s->avg_frame_rate.den > 0 ? av_q2d(s->avg_frame_rate) : 0;
    if (measured <= 0) return said >= 1e-3 && said <= 1e3 ? said : default_fps;
    double whole = nearbyint(measured), ntsc = nearbyint(measured * 1.001) / 1.001;
    double nearest = fabs(whole - measured) <= fabs(ntsc - measured) ? whole : ntsc;
    return nearest > 0 && fabs(nearest - measured) < 5e-4 * measured ? nearest : measured;
}

/* Seconds from the first frame on, rounded once: 0.7 of seven tenths, as the frame's number over the rate
 * gives, not the 0.7000000000000001 of seven times a tenth, which shows in the text of a time. */
static double seconds_of(int64_t pts, int64_t first, AVRational unit) {
    return ((double)pts - (double)first) * unit.num / unit.den;
}

static fv_status order_frames(const fv_video_limits *l, fv_container *c) {
    int64_t n = 0;
    bool times = true; /* all packets have a time */
    c->shown = calloc((size_t)c->n_packet + 1, sizeof *c->shown);
    c->seconds = calloc((size_t)c->n_packet + 1, sizeof *c->seconds);
    if (!c->shown || !c->seconds) return fv_av_failed(AVERROR(ENOMEM), "");
    for (int64_t i = 0; i < c->n_packet; i++) {
        if (!c->packet[i].shown) continue;
        times = times && c->packet[i].pts != AV_NOPTS_VALUE;
        c->shown[n++] = &c->packet[i];
    }
    if (n == 0) return FV_FAIL(FV_EDATA, "the video has no frames");
    if (times) qsort(c->shown, (size_t)n, sizeof *c->shown, by_time);
    c->n_shown = n;
    const int64_t first = c->shown[0]->pts;
    const AVRational unit = c->stream->time_base;
    double span = times ? seconds_of(c->shown[n - 1]->pts, first, unit) : 0;
    c->fps = frame_rate(c->stream, n > 1 && span > 0 ? (double)(n - 1) / span : 0);
    c->timed = times;
    for (int64_t i = 0; i < n; i++) {
        c->timed = c->timed && (i == 0 || c->shown[i]->pts != c->shown[i - 1]->pts);
        c->seconds[i] = span > 0 ? seconds_of(c->shown[i]->pts, first, unit) : (double)i / c->fps;
    }
    c->duration = c->seconds[n - 1] + 1 / c->fps;
    if (!(c->duration <= l->seconds_max))
        return FV_FAIL(FV_EINVAL, "the video lasts %.0f s: the most are %.0f s", c->duration,
                       l->seconds_max);
    return FV_OK;
}

fv_status fv_container_open(const fv_video_limits *limits, fv_container *out) {
    out->bytes = lseek(STDIN_FILENO, 0, SEEK_END);
    FV_TRY(open_format(out));
    FV_TRY(find_codec(limits, out));
    FV_TRY(list_packets(limits, out));
    return order_frames(limits, out);
}
