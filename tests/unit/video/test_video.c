/* video/: clips of a square that moves over black (support/clip/make_clip.c) through the helper.
 * Then files that are no videos, truncated, inconsistent or too large: each is refused at once with
 * an error. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/support/command.h"
#include "tests/support/tensor_file.h"
#include "video/video.h"

enum { W = 96, H = 64, SIDE = H / 4, N = 30, TAKEN = 4 };

static char dir[256], path[512];

static const char *clip(const char *name, const char *arguments) {
    static command_result r;
    if (!*dir) scratch_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    command_run(&r, "%s %s %s", FOVEA_BIN "/../tests/make_clip", path, arguments);
    cr_assert_eq(r.status, 0, "%s", r.err);
    return path;
}

static fv_video_options options(int32_t frames) {
    return (fv_video_options){
        .sampling = {.placement = FV_VIDEO_ENDS, .multiple = 1, .frames = frames},
        .limits = fv_video_limits_default(),
        .helper = FOVEA_BIN "/fovea-video"};
}

static fv_video decode(const char *file, const fv_video_options *opt) {
    fv_video v = {0};
    cr_assert_eq(fv_video_decode_file(file, opt, &v), FV_OK, "%s", fv_last_error());
    return v;
}

static void refused(const char *file, const fv_video_options *opt, fv_status want,
                    const char *words) {
    fv_video v = {0};
    fv_status st = fv_video_decode_file(file, opt, &v);
    cr_assert_eq(st, want, "%s: %s", fv_status_name(st), fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
    cr_assert_null(v.rgb);
}

/* Frame `index` of N is drawn with the square there, in this colour; (x, y) -> its place in a frame that was
 * turned comes from `place`. */
typedef struct spot {
    double x, y, n;
    int channel;
} spot;

static spot find(const fv_video *v, int32_t frame) {
    double sum[3] = {0};
    spot s = {0};
    const uint8_t *rgb = v->rgb + (size_t)frame * 3 * (size_t)v->w * (size_t)v->h;
    for (int32_t y = 0; y < v->h; y++) {
        for (int32_t x = 0; x < v->w; x++, rgb += 3) {
            if (rgb[0] + rgb[1] + rgb[2] < 128) continue;
            s.x += x + 0.5;
            s.y += y + 0.5;
            s.n++;
            for (int c = 0; c < 3; c++) sum[c] += rgb[c];
        }
    }
    cr_assert_gt(s.n, 0);
    s.x /= s.n;
    s.y /= s.n;
    for (int c = 0; c < 3; c++)
        if (sum[c] > sum[s.channel]) s.channel = c;
    cr_assert_gt(sum[s.channel] / s.n, 200);
    return s;
}

static void expect_square(const fv_video *v, int32_t frame, double x, double y) {
    spot s = find(v, frame);
    cr_assert_eq(s.channel, (int)(3 * v->index[frame] / N));
    cr_assert(fabs(s.x - x) < 1.5 && fabs(s.y - y) < 1.5, "frame %d: %g %g, not %g %g", frame, s.x,
              s.y, x, y);
    cr_assert_float_eq(s.n, SIDE * SIDE, 0.15 * SIDE * SIDE);
}

static double left(int64_t index) { return (double)index * (W - SIDE) / (N - 1) + SIDE / 2.0; }

static void expect_clip(const fv_video *v) {
    static const int64_t taken[TAKEN] = {0, 10, 19, 29};
    cr_assert(v->n == TAKEN && v->w == W && v->h == H && v->n_source == N);
    cr_assert_float_eq(v->fps, 10, 1e-9);
    cr_assert_float_eq(v->duration, 3, 2e-3);
    for (int32_t i = 0; i < TAKEN; i++) {
        cr_assert_eq(v->index[i], taken[i]);
        cr_assert_float_eq(v->seconds[i], (double)v->index[i] / 10, 2e-3);
        expect_square(v, i, left(v->index[i]), SIDE / 2.0);
    }
}

Test(video, frames_of_every_format_and_codec_have_their_content_and_time) {
    static const char *const clips[][2] = {
        {"h264.mp4", ""},
        {"hevc.mp4", "codec=libx265"},
        {"mpeg4.mp4", "codec=mpeg4"},
        {"vp8.webm", "codec=libvpx"},
        {"vp9.webm", "codec=libvpx-vp9"},
        {"av1.webm", "codec=libaom-av1"},
        {"h264.mkv", "gop=300"},
        {"gif.gif", "codec=gif"},
    };
    const fv_video_options opt = options(TAKEN);
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++) {
        fv_video v = decode(clip(clips[i][0], clips[i][1]), &opt);
        expect_clip(&v);
        fv_video_free(&v);
    }
}

Test(video, bytes_are_decoded_as_their_file_is) {
    const fv_video_options opt = options(TAKEN);
    char *bytes;
    size_t n;
    fv_video v;
    cr_assert_eq(fv_file_read(clip("a.mp4", ""), 1 << 20, &bytes, &n), FV_OK);
    cr_assert_eq(fv_video_decode_bytes(bytes, n, &opt, &v), FV_OK, "%s", fv_last_error());
    expect_clip(&v);
    fv_video_free(&v);
    free(bytes);
}

Test(video, each_frame_is_the_one_that_was_chosen) {
    const char *file =
        clip("a.mp4", "gop=5"); /* with frames that are shown before those decoded earlier */
    for (int32_t n = 1; n <= N; n = n < 2 ? 2 : n + 14) {
        const fv_video_options opt = options(n);
        fv_video v = decode(file, &opt);
        cr_assert_eq(v.n, n);
        for (int32_t i = 0; i < n; i++) expect_square(&v, i, left(v.index[i]), SIDE / 2.0);
        fv_video_free(&v);
    }
}

Test(video, a_display_matrix_turns_and_mirrors_frames) {
    static const struct {
        const char *arguments;
        bool upright, from_end, far; /* the square moves along x; from its end; at the other side */
    } cases[] = {{"turned=90", false, false, true},
                 {"turned=180", true, true, true},
                 {"turned=270", false, true, false},
                 {"mirrored=1", true, true, false}};
    const fv_video_options opt = options(TAKEN);
    for (int i = 0; i < 4; i++) {
        fv_video v = decode(clip("turned.mp4", cases[i].arguments), &opt);
        cr_assert(v.w == (cases[i].upright ? W : H) && v.h == (cases[i].upright ? H : W));
        for (int32_t k = 0; k < TAKEN; k++) {
            double along = left(v.index[k]), across = cases[i].far ? H - SIDE / 2.0 : SIDE / 2.0;
            if (cases[i].from_end) along = W - along;
            expect_square(&v, k, cases[i].upright ? along : across,
                          cases[i].upright ? across : along);
        }
        fv_video_free(&v);
    }
    refused(clip("askew.mp4", "turned=45"), &opt, FV_EUNSUPPORTED, "multiple of 90 degrees");
}

Test(video, times_are_those_of_the_file_where_the_rate_varies) {
    const fv_video_options opt = options(N);
    fv_video v = decode(clip("slow.mp4", "slow=15"), &opt);
    cr_assert_eq(v.n, N);
    for (int32_t i = 0; i < N; i++) {
        cr_assert_float_eq(v.seconds[i], (i < 15 ? i : 2 * i - 15) / 10.0, 1e-3);
        expect_square(&v, i, left(i), SIDE / 2.0);
    }
    cr_assert_float_eq(v.fps, 29 / 4.3, 0.01); /* the mean */
    fv_video_free(&v);
}

Test(video, frames_are_scaled_down_where_together_they_have_too_many_pixels) {
    fv_video_options opt = options(TAKEN);
    opt.limits.taken_max = TAKEN * W * H / 4;
    fv_video v = decode(clip("a.mp4", ""), &opt);
    cr_assert(v.w == W / 2 && v.h == H / 2);
    spot s = find(&v, 3);
    cr_assert(fabs(s.x - left(29) / 2) < 1 && fabs(s.y - SIDE / 4.0) < 1);
    fv_video_free(&v);
}

/* ---- refusals ---------------------------------------------------------------------------- */

static void write_bytes(const char *file, const void *bytes, size_t n) {
    cr_assert_eq(fv_file_write(file, bytes, n), FV_OK, "%s", fv_last_error());
}

Test(video, a_file_that_was_cut_short_anywhere_is_refused) {
    static const char *const clips[][2] = {
        {"a.mp4", ""}, {"a.webm", "codec=libvpx"}, {"a.gif", "codec=gif"}};
    const fv_video_options opt = options(TAKEN);
    char *bytes, name[600];
    size_t n;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fv_file_read(clip(clips[i][0], clips[i][1]), 1 << 20, &bytes, &n), FV_OK);
        const size_t at[] = {n - 1, n / 2};
        for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
            snprintf(name, sizeof name, "%s.cut", path);
            write_bytes(name, bytes, at[k]);
            refused(name, &opt, FV_EDATA, "truncated");
        }
        free(bytes);
    }
}

Test(video, what_is_no_video_is_refused) {
    const fv_video_options opt = options(TAKEN);
    char name[600];
    clip("mjpeg.mkv", "codec=mjpeg");
    refused(path, &opt, FV_EUNSUPPORTED, "the video's codec is mjpeg");
    snprintf(name, sizeof name, "%s/pipe", dir);
    cr_assert_eq(mkfifo(name, 0600), 0);
    refused(name, &opt, FV_EINVAL, "not a regular file");
    snprintf(name, sizeof name, "%s/text", dir);
    write_bytes(name, "", 0);
    refused(name, &opt, FV_EINVAL, "the video is empty");
    write_bytes(name, "What is it?", 11);
    refused(name, &opt, FV_EUNSUPPORTED, "no MP4, WebM or GIF");
    write_bytes(name, "a", 1);
    refused(name, &opt, FV_EUNSUPPORTED, "no MP4, WebM or GIF");
    refused(dir, &opt, FV_EINVAL, "not a regular file");
    refused("/nonexistent/file", &opt, FV_ENOTFOUND, "/nonexistent/file");
}

Test(video, frames_that_change_their_size_are_refused) {
    const fv_video_options opt = options(TAKEN);
    refused(clip("a.webm", "codec=libvpx change=10"), &opt, FV_EINVAL,
            "change from 96x64 to 48x64");
    refused(clip("a.mp4", "change=10"), &opt, FV_EDATA,
            "damaged"); /* its header has the first size */
}

Test(video, more_than_the_limits_allow_is_refused) {
    const char *file = clip("a.mp4", "");
    fv_video_options o[7];
    for (int i = 0; i < 7; i++) o[i] = options(TAKEN);
    o[0].limits.bytes_max = 1000;
    o[1].limits.side_max = W - 1;
    o[2].limits.pixels_max = W * H - 1;
    o[3].limits.source_max = N - 1;
    o[4].limits.seconds_max = 2.9;
    o[5].limits.frames_max = TAKEN - 1;
    o[6].limits.wall_s = 0;
    static const char *const words[] = {
        "bytes: the most are 1000", "96x64: the most are", "96x64: the most are",
        "more than 29 frames",      "lasts 3 s",           "4 frames of the video were asked for",
        "more than 0 s to decode"};
    for (int i = 0; i < 7; i++) refused(file, &o[i], FV_EINVAL, words[i]);
}

/* The 4 bytes at `offset` after the name of a box. */
static void patch(char *bytes, size_t n, const char *box, size_t offset, uint32_t value) {
    char *at = memmem(bytes, n, box, 4);
    cr_assert_not_null(at);
    for (int i = 0; i < 4; i++) at[4 + offset + (size_t)i] = (char)(value >> (24 - 8 * i));
}

/* Files of a few kilobytes that declare a million frames, a thousand, or frames with sides of 65535
 * pixels. */
Test(video, headers_that_lie_are_refused) {
    const fv_video_options opt = options(TAKEN);
    char *bytes, *copy, name[600];
    size_t n;
    cr_assert_eq(fv_file_read(clip("a.mp4", "codec=mpeg4"), 1 << 20, &bytes, &n), FV_OK);
    copy = malloc(n);
    snprintf(name, sizeof name, "%s.lies", path);

    memcpy(copy, bytes, n);
    patch(copy, n, "stsz", 4, 1);       /* size of every sample */
    patch(copy, n, "stsz", 8, 1000000); /* and their number */
    patch(copy, n, "stts", 8, 1000000);
    patch(copy, n, "stsc", 12, 1000000); /* all in one chunk */
    write_bytes(name, copy, n);
    refused(name, &opt, FV_EINVAL, "more than 262144 frames");

    memcpy(copy, bytes, n);
    patch(copy, n, "stsz", 4, 100);
    patch(copy, n, "stsz", 8, 1000);
    patch(copy, n, "stts", 8, 1000);
    patch(copy, n, "stsc", 12, 1000);
    write_bytes(name, copy, n);
    refused(name, &opt, FV_EDATA, "truncated");
    free(bytes);
    free(copy);

    cr_assert_eq(fv_file_read(clip("a.gif", "codec=gif"), 1 << 20, &bytes, &n), FV_OK);
    memset(bytes + 6, 0xff, 4); /* width and height */
    write_bytes(name, bytes, n);
    refused(name, &opt, FV_EINVAL, "65535x65535: the most are");
    free(bytes);
}

/* A GIF of 25 megabytes with a million frames: each an extension with a delay, and one pixel. */
Test(video, a_million_frames_are_refused_while_they_are_counted) {
    static const unsigned char head[] = "GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff";
    static const unsigned char frame[] = {0x21, 0xf9, 4,    0, 4, 0, 0, 0,       /* 40 ms */
                                          0x2c, 0,    0,    0, 0, 1, 0, 1, 0, 0, /* at 0, 0 */
                                          2,    2,    0x44, 1, 0};
    enum { MILLION = 1000000, HEAD = sizeof head - 1 };
    const fv_video_options opt = options(TAKEN);
    const size_t n = HEAD + (size_t)MILLION * sizeof frame + 1;
    char *bytes = malloc(n);
    fv_video v = {0};
    cr_assert(bytes);
    memcpy(bytes, head, HEAD);
    for (size_t i = 0; i < MILLION; i++)
        memcpy(bytes + HEAD + i * sizeof frame, frame, sizeof frame);
    bytes[n - 1] = 0x3b;
    cr_assert_eq(fv_video_decode_bytes(bytes, n, &opt, &v), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "more than 262144 frames"), "%s", fv_last_error());
    const size_t few = HEAD + 9 * sizeof frame;
    bytes[few] = 0x3b;
    cr_assert_eq(fv_video_decode_bytes(bytes, few + 1, &opt, &v), FV_OK, "%s", fv_last_error());
    cr_assert(v.n == TAKEN && v.n_source == 9 && v.w == 1 && v.h == 1);
    fv_video_free(&v);
    free(bytes);
}

Test(video, frames_without_times_have_those_of_a_constant_rate) {
    const fv_video_options opt = options(TAKEN);
    char *bytes;
    size_t n;
    fv_video v;
    cr_assert_eq(fv_file_read(clip("a.mp4", "codec=mpeg4"), 1 << 20, &bytes, &n), FV_OK);
    patch(bytes, n, "stts", 12, 0); /* between frames */
    cr_assert_eq(fv_video_decode_bytes(bytes, n, &opt, &v), FV_OK, "%s", fv_last_error());
    cr_assert_eq(v.n, TAKEN);
    for (int32_t i = 0; i < TAKEN; i++) {
        cr_assert_float_eq(v.seconds[i], (double)v.index[i] / v.fps, 1e-9);
        expect_square(&v, i, left(v.index[i]), SIDE / 2.0);
    }
    fv_video_free(&v);
    free(bytes);
}

Test(video, damaged_bytes_are_refused_or_decoded_and_end) {
    const fv_video_options opt = options(TAKEN);
    char *bytes;
    size_t n;
    uint32_t state = 2463534242u;
    cr_assert_eq(fv_file_read(clip("a.mp4", "codec=mpeg4"), 1 << 20, &bytes, &n), FV_OK);
    for (int i = 0; i < 6; i++) {
        state ^= state << 13; /* xorshift32 */
        state ^= state >> 17;
        state ^= state << 5;
        const char was = bytes[state % n];
        fv_video v = {0};
        bytes[state % n] ^= (char)(state >> 24 | 1);
        fv_status st = fv_video_decode_bytes(bytes, n, &opt, &v);
        cr_assert(st == FV_OK ? v.n >= 1 : *fv_last_error() && st != FV_EIO, "%s", fv_last_error());
        fv_video_free(&v);
        bytes[state % n] = was;
    }
    free(bytes);
}

Test(video, a_helper_that_is_missing_or_ends_is_a_sentence) {
    const char *file = clip("a.mp4", "");
    fv_video_options opt = options(TAKEN);
    opt.helper = "/nonexistent/fovea-video";
    refused(file, &opt, FV_EUNSUPPORTED, "CMake target fovea-video");
    opt.helper = "/bin/false";
    refused(file, &opt, FV_EIO, "ended with status 1");
}

#ifndef __SANITIZE_ADDRESS__ /* needs more itself */
Test(video, memory_over_the_limit_is_refused) {
    fv_video_options opt = options(TAKEN);
    const char *file = clip("a.mp4", "w=1280 h=720 n=2");
    opt.limits.memory_max = 150 << 20; /* libraries alone have 100 */
    refused(file, &opt, FV_EINVAL, "memory limit");
}
#endif
