/* Any bytes as the video helper's output. The result is within the limits, which are low, so that
 * an input costs microseconds and not a gigabyte. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "video/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds) {
    if (!holds) abort();
}

static fv_status feed(fv_video_reader *r, const uint8_t *data, size_t size) {
    while (size > 0 && !fv_video_reader_done(r)) {
        size_t n;
        void *at = fv_video_reader_room(r, &n);
        expect(n > 0);
        if (n > size) n = size;
        if (n > 1) n -= *data & 1; /* pieces of several sizes */
        memcpy(at, data, n);
        data += n;
        size -= n;
        FV_TRY(fv_video_reader_took(r, n));
    }
    return FV_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const fv_video_limits limits = {
        .side_max = 16, .source_max = 100, .seconds_max = 60, .frames_max = 8, .taken_max = 512};
    fv_video_reader r;
    fv_video_reader_init(&r, &limits);
    if (feed(&r, data, size) != FV_OK) {
        for (const char *c = fv_last_error(); *c; c++) expect(*c >= ' ' && *c <= '~');
    } else if (fv_video_reader_done(&r)) {
        fv_video v = fv_video_reader_take(&r);
        expect(v.n >= 1 && v.n <= limits.frames_max && v.n <= v.n_source);
        expect((int64_t)v.n * v.w * v.h <= limits.taken_max && isfinite(v.fps) && v.fps > 0);
        for (int32_t i = 0; i < v.n; i++) {
            expect(v.index[i] >= (i ? v.index[i - 1] + 1 : 0) && v.index[i] < v.n_source);
            expect(v.seconds[i] >= (i ? v.seconds[i - 1] : 0) && v.seconds[i] <= v.duration);
        }
        fv_video_free(&v);
    }
    fv_video_reader_fini(&r);
    return 0;
}
