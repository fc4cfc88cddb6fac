/* video/reader: a helper that a hostile video controls can write anything, without effect. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "video/reader.h"

enum { N = 2, W = 3, H = 2, PIXELS = 3 * W * H, BYTES_MAX = 4096 };

static const fv_video_limits limits = {
    .side_max = 8, .source_max = 10, .seconds_max = 5, .frames_max = 4, .taken_max = N * W * H};

typedef struct stream {
    uint8_t bytes[BYTES_MAX];
    size_t n;
} stream;

static void add(stream *s, const void *bytes, size_t n) {
    cr_assert_leq(s->n + n, BYTES_MAX);
    if (n) memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void add_record(stream *s, uint32_t kind, uint32_t status, const void *head, size_t n,
                       size_t n_more) {
    const fv_video_record r = {.kind = kind, .status = status, .bytes = n + n_more};
    add(s, &r, sizeof r);
    add(s, head, n);
}

static const fv_video_head head = {.n = N, .w = W, .h = H, .n_source = 10, .fps = 5, .duration = 2};

static void add_frame(stream *s, int64_t index, double seconds, uint8_t value) {
    const fv_video_frame f = {.index = index, .seconds = seconds};
    uint8_t pixels[PIXELS];
    memset(pixels, value, sizeof pixels);
    add_record(s, FV_VIDEO_FRAME, 0, &f, sizeof f, PIXELS);
    add(s, pixels, PIXELS);
}

/* Feeds at most `step` bytes at a time. */
static fv_status feed(fv_video_reader *r, const stream *s, size_t step) {
    fv_video_reader_init(r, &limits);
    size_t at = 0, n;
    while (at < s->n && !fv_video_reader_done(r)) {
        void *room = fv_video_reader_room(r, &n);
        if (n > step) n = step;
        if (n > s->n - at) n = s->n - at;
        memcpy(room, s->bytes + at, n);
        at += n;
        FV_TRY(fv_video_reader_took(r, n));
    }
    return FV_OK;
}

static void expect_refused(const stream *s, const char *words) {
    fv_video_reader r;
    cr_assert_eq(feed(&r, s, BYTES_MAX), FV_EDATA);
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
    fv_video_reader_fini(&r);
}

Test(reader, a_video_is_read_in_pieces_of_any_size) {
    stream s = {0};
    add_record(&s, FV_VIDEO_HEAD, 0, &head, sizeof head, 0);
    add_frame(&s, 0, 0, 7);
    add_frame(&s, 9, 1.8, 8);
    for (size_t step = 1; step < s.n; step++) {
        fv_video_reader r;
        cr_assert_eq(feed(&r, &s, step), FV_OK, "%s", fv_last_error());
        cr_assert(fv_video_reader_done(&r));
        fv_video v = fv_video_reader_take(&r);
        fv_video_reader_fini(&r);
        cr_assert(v.n == N && v.w == W && v.h == H && v.n_source == 10);
        cr_assert(v.index[0] == 0 && v.index[1] == 9 && v.seconds[1] == 1.8);
        cr_assert(v.fps == 5 && v.duration == 2);
        cr_assert(v.rgb[PIXELS - 1] == 7 && v.rgb[PIXELS] == 8 && v.rgb[2 * PIXELS - 1] == 8);
        fv_video_free(&v);
    }
}

Test(reader, one_that_ends_early_is_not_done) {
    stream s = {0};
    fv_video_reader r;
    add_record(&s, FV_VIDEO_HEAD, 0, &head, sizeof head, 0);
    add_frame(&s, 0, 0, 7);
    cr_assert_eq(feed(&r, &s, BYTES_MAX), FV_OK);
    cr_assert_not(fv_video_reader_done(&r));
    fv_video_reader_fini(&r);
}

Test(reader, a_head_over_a_limit_is_refused_before_memory_is_allocated) {
    static const fv_video_head heads[] = {
        {.n = 0, .w = W, .h = H, .n_source = 10, .fps = 5, .duration = 2},
        {.n = 5, .w = 1, .h = 1, .n_source = 10, .fps = 5, .duration = 2},
        {.n = 2, .w = 1, .h = 1, .n_source = 1, .fps = 5, .duration = 2},
        {.n = 2, .w = 1, .h = 1, .n_source = 11, .fps = 5, .duration = 2},
        {.n = 1, .w = 9, .h = 1, .n_source = 10, .fps = 5, .duration = 2},
        {.n = 1, .w = 1, .h = -1, .n_source = 10, .fps = 5, .duration = 2},
        {.n = 3, .w = W, .h = H, .n_source = 10, .fps = 5, .duration = 2},
        {.n = INT32_MAX, .w = INT32_MAX, .h = INT32_MAX, .n_source = INT64_MAX, .fps = 5},
        {.n = 1, .w = 1, .h = 1, .n_source = 10, .fps = 0, .duration = 2},
        {.n = 1, .w = 1, .h = 1, .n_source = 10, .fps = INFINITY, .duration = 2},
        {.n = 1, .w = 1, .h = 1, .n_source = 10, .fps = 5, .duration = NAN},
        {.n = 1, .w = 1, .h = 1, .n_source = 10, .fps = 5, .duration = 6},
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        stream s = {0};
        add_record(&s, FV_VIDEO_HEAD, 0, &heads[i], sizeof heads[i], 0);
        expect_refused(&s, "over its limits");
    }
}

Test(reader, frames_out_of_order_are_refused) {
    static const struct {
        int64_t index;
        double seconds;
    } second[] = {{3, 1}, {2, 1}, {-1, 1}, {10, 1}, {4, 0.5}, {4, NAN}, {4, 2.5}};
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        stream s = {0};
        add_record(&s, FV_VIDEO_HEAD, 0, &head, sizeof head, 0);
        add_frame(&s, 3, 0.6, 7);
        add_frame(&s, second[i].index, second[i].seconds, 8);
        expect_refused(&s, "not in order");
    }
}

Test(reader, records_at_the_wrong_place_or_of_the_wrong_length_are_refused) {
    const fv_video_frame frame = {.index = 0};
    stream s[5] = {0};
    add_frame(&s[0], 0, 0, 7);
    add_record(&s[1], FV_VIDEO_HEAD, 0, &head, sizeof head, 1);
    add_record(&s[2], FV_VIDEO_HEAD, 0, &head, sizeof head, 0);
    add_record(&s[2], FV_VIDEO_HEAD, 0, &head, sizeof head, 0);
    add_record(&s[3], FV_VIDEO_HEAD, 0, &head, sizeof head, 0);
    add_record(&s[3], FV_VIDEO_FRAME, 0, &frame, sizeof frame, PIXELS + 1);
    add_record(&s[4], 7, 0, NULL, 0, 0);
    for (int i = 0; i < 5; i++) expect_refused(&s[i], "a record that it may not");
    stream status = {0};
    add_record(&status, FV_VIDEO_HEAD, 1, &head, sizeof head, 0);
    expect_refused(&status, "a record with a status");
}

Test(reader, an_error_is_passed_on_as_printable_text) {
    stream s = {0};
    fv_video_reader r;
    add_record(&s, FV_VIDEO_ERROR, FV_EINVAL, "no\033[31m \xff\n", 10, 0);
    cr_assert_eq(feed(&r, &s, BYTES_MAX), FV_EINVAL);
    cr_assert_str_eq(fv_last_error(), "no?[31m ??");
    fv_video_reader_fini(&r);
}

Test(reader, an_error_without_a_status_or_a_sentence_or_with_too_long_a_one_is_refused) {
    static const char words[FV_VIDEO_SENTENCE_MAX + 1];
    static const struct {
        uint32_t status;
        size_t n;
    } errors[] = {{FV_OK, 5}, {FV_N_STATUS, 5}, {FV_EDATA, 0}, {FV_EDATA, sizeof words}};
    for (int i = 0; i < 4; i++) {
        stream s = {0};
        add_record(&s, FV_VIDEO_ERROR, errors[i].status, words, errors[i].n, 0);
        expect_refused(&s, "an error that is none");
    }
}
