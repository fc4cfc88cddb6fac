/* video/sampling: the frames that transformers 5.23 chooses (Qwen2VL-, Qwen3VL- and
 * InternVLVideoProcessor.sample_frames), and what it refuses. */
#include <criterion/criterion.h>
#include <string.h>

#include "video/sampling.h"

enum { SHOWN = 8 };

static fv_video_sampling by_rate(fv_video_placement p, int32_t multiple, int32_t min) {
    return (fv_video_sampling){
        .placement = p, .multiple = multiple, .rate = 2, .frames_min = min, .frames_max = 768};
}

static fv_video_sampling by_count(fv_video_placement p, int32_t multiple, int32_t n) {
    return (fv_video_sampling){.placement = p, .multiple = multiple, .frames = n};
}

static void expect(const fv_video_sampling *s, int64_t total, double fps, int64_t n,
                   const int32_t first[SHOWN]) {
    cr_assert_eq(fv_video_sampling_check(s), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_video_sampling_count(s, total, fps), n);
    for (int64_t i = 0; i < n && i < SHOWN; i++)
        cr_assert_eq(fv_video_sampling_index(s, total, n, i), first[i], "frame %d of %d of %d",
                     (int)i, (int)n, (int)total);
}

Test(sampling, by_rate_are_the_frames_that_transformers_takes) {
    static const struct {
        int64_t total;
        double fps;
        struct {
            int64_t n;
            int32_t first[SHOWN];
        } of[FV_N_VIDEO_PLACEMENT];
    } cases[] = {
        {30,
         10,
         {{6, {0, 5, 10, 15, 20, 25}}, {6, {2, 7, 12, 17, 22, 27}}, {6, {0, 6, 12, 17, 23, 29}}}},
        {100,
         29.97,
         {{6, {0, 16, 33, 50, 66, 83}},
          {6, {8, 25, 41, 58, 75, 91}},
          {6, {0, 20, 40, 59, 79, 99}}}},
        {300,
         30,
         {{20, {0, 15, 30, 45, 60, 75, 90, 105}},
          {20, {7, 22, 37, 52, 67, 82, 97, 112}},
          {20, {0, 16, 31, 47, 63, 79, 94, 110}}}},
        {7, 10, {{4, {0, 1, 3, 5}}, {1, {3}}, {4, {0, 2, 4, 6}}}},
    };
    const fv_video_sampling s[] = {by_rate(FV_VIDEO_START, 2, 4), by_rate(FV_VIDEO_MIDDLE, 1, 1),
                                   by_rate(FV_VIDEO_ENDS, 1, 4)};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int p = 0; p < FV_N_VIDEO_PLACEMENT; p++)
            expect(&s[p], cases[i].total, cases[i].fps, cases[i].of[p].n, cases[i].of[p].first);
}

Test(sampling, by_count_are_the_frames_that_transformers_takes) {
    fv_video_sampling s = by_count(FV_VIDEO_START, 2, 5); /* half to even: 4 */
    expect(&s, 30, 10, 4, (int32_t[]){0, 7, 15, 22, 0, 0, 0, 0});
    s = by_count(FV_VIDEO_START, 2, 7);
    expect(&s, 31, 25, 8, (int32_t[]){0, 3, 7, 11, 15, 19, 23, 27});
    s = by_count(FV_VIDEO_ENDS, 1, 8);
    expect(&s, 17, 8, 8, (int32_t[]){0, 2, 5, 7, 9, 11, 14, 16});
    s = by_count(FV_VIDEO_MIDDLE, 1, 8);
    expect(&s, 17, 8, 8, (int32_t[]){1, 3, 5, 7, 9, 11, 13, 15});
}

Test(sampling, of_a_short_video_all_frames_are_taken) {
    fv_video_sampling s = by_count(FV_VIDEO_ENDS, 1, 8);
    expect(&s, 3, 10, 3, (int32_t[]){0, 1, 2, 0, 0, 0, 0, 0});
    s = by_count(FV_VIDEO_START, 2, 8);
    expect(&s, 3, 10, 2, (int32_t[]){0, 1, 0, 0, 0, 0, 0, 0});
    expect(&s, 1, 10, 1, (int32_t[]){0, 0, 0, 0, 0, 0, 0, 0}); /* not even two */
    s = by_rate(FV_VIDEO_ENDS, 1, 4);
    expect(&s, 1, 10, 1, (int32_t[]){0, 0, 0, 0, 0, 0, 0, 0});
}

Test(sampling, indices_increase_and_lie_within_the_video) {
    for (int p = 0; p < FV_N_VIDEO_PLACEMENT; p++)
        for (int64_t total = 1; total < 70; total++)
            for (int64_t n = 1; n <= total; n++) {
                fv_video_sampling s = by_count((fv_video_placement)p, 1, (int32_t)n);
                int64_t last = -1;
                for (int64_t i = 0; i < n; i++) {
                    int64_t at = fv_video_sampling_index(&s, total, n, i);
                    cr_assert(at > last && at < total);
                    last = at;
                }
            }
}

Test(sampling, at_most_so_many_are_taken_by_rate) {
    fv_video_sampling s = by_rate(FV_VIDEO_START, 2, 4);
    s.frames_max = 9;
    cr_assert_eq(fv_video_sampling_count(&s, 3000, 30), 8);
    cr_assert_eq(fv_video_sampling_count(&s, INT64_C(1) << 40, 1e-3), 8);
}

Test(sampling, numbers_out_of_range_are_refused) {
    fv_video_sampling s[6];
    for (int i = 0; i < 6; i++) s[i] = by_rate(FV_VIDEO_START, 2, 4);
    s[0].placement = FV_N_VIDEO_PLACEMENT;
    s[1].multiple = 0;
    s[2].frames = -1;
    s[3].rate = 0;
    s[4].frames_min = 0;
    s[5].frames_max = 3;
    for (int i = 0; i < 6; i++) cr_assert_eq(fv_video_sampling_check(&s[i]), FV_EINVAL, "%d", i);
}
