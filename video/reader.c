/* The reader: a state for each item to read, and a check when it is complete. */
#include "video/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect(fv_video_reader *r, int state, void *at, size_t n) {
    r->state = state;
    r->at = at;
    r->left = n;
}

void fv_video_reader_init(fv_video_reader *r, const fv_video_limits *limits) {
    *r = (fv_video_reader){.limits = *limits};
    expect(r, FV_READS_RECORD, &r->record, sizeof r->record);
}

void fv_video_reader_fini(fv_video_reader *r) { fv_video_free(&r->video); }

void *fv_video_reader_room(const fv_video_reader *r, size_t *n) {
    *n = r->left;
    return r->at;
}

bool fv_video_reader_done(const fv_video_reader *r) { return r->left == 0; }

fv_video fv_video_reader_take(fv_video_reader *r) {
    fv_video v = r->video;
    r->video = (fv_video){0};
    return v;
}

static fv_status wrong(const char *what) { return FV_FAIL(FV_EDATA, "the decoder wrote %s", what); }

static size_t pixel_bytes(const fv_video *v) { return 3 * (size_t)v->w * (size_t)v->h; }

/* Checks a record's length against the state, so a length is never used unchecked. */
static fv_status on_record(fv_video_reader *r) {
    const fv_video_record *c = &r->record;
    if (c->kind == FV_VIDEO_ERROR) {
        if (c->bytes < 1 || c->bytes > sizeof r->u.sentence || c->status == FV_OK ||
            c->status >= FV_N_STATUS)
            return wrong("an error that is none");
        expect(r, FV_READS_ERROR, r->u.sentence, (size_t)c->bytes);
        return FV_OK;
    }
    if (c->status != 0) return wrong("a record with a status");
    if (c->kind == FV_VIDEO_HEAD && !r->video.rgb && c->bytes == sizeof r->u.head) {
        expect(r, FV_READS_HEAD, &r->u.head, sizeof r->u.head);
        return FV_OK;
    }
    if (c->kind == FV_VIDEO_FRAME && r->video.rgb &&
        c->bytes == sizeof r->u.frame + pixel_bytes(&r->video)) {
        expect(r, FV_READS_FRAME, &r->u.frame, sizeof r->u.frame);
        return FV_OK;
    }
    return wrong("a record that it may not");
}

/* Checks the head; pixels are limited by taken_max, so that no product overflows. */
static bool head_fits(const fv_video_head *h, const fv_video_limits *l) {
    if (h->n < 1 || h->n > l->frames_max || h->n_source < h->n || h->n_source > l->source_max)
        return false;
    if (h->w < 1 || h->w > l->side_max || h->h < 1 || h->h > l->side_max) return false;
    if ((int64_t)h->w * h->h > l->taken_max / h->n) return false;
    return isfinite(h->fps) && h->fps > 0 && h->duration >= 0 && h->duration <= l->seconds_max;
}

static fv_status on_head(fv_video_reader *r) {
    const fv_video_head *h = &r->u.head;
    if (!head_fits(h, &r->limits)) return wrong("a video over its limits");
    fv_video *v = &r->video;
    *v = (fv_video){.n = h->n,
                    .w = h->w,
                    .h = h->h,
                    .n_source = h->n_source,
                    .fps = h->fps,
                    .duration = h->duration};
    v->rgb = malloc((size_t)v->n * pixel_bytes(v));
    v->index = calloc((size_t)v->n, sizeof *v->index);
    v->seconds = calloc((size_t)v->n, sizeof *v->seconds);
    if (!v->rgb || !v->index || !v->seconds)
        return FV_FAIL(FV_ENOMEM, "out of memory for %d frames of %dx%d", v->n, v->w, v->h);
    expect(r, FV_READS_RECORD, &r->record, sizeof r->record);
    return FV_OK;
}

static fv_status on_frame(fv_video_reader *r) {
    const fv_video_frame *f = &r->u.frame;
    fv_video *v = &r->video;
    const int32_t i = r->n_frame;
    if (f->index < (i ? v->index[i - 1] + 1 : 0) || f->index >= v->n_source)
        return wrong("frames that are not in order");
    if (!(f->seconds >= (i ? v->seconds[i - 1] : 0) && f->seconds <= v->duration))
        return wrong("frames whose times are not in order");
    v->index[i] = f->index;
    v->seconds[i] = f->seconds;
    expect(r, FV_READS_PIXELS, v->rgb + (size_t)i * pixel_bytes(v), pixel_bytes(v));
    return FV_OK;
}

static fv_status on_pixels(fv_video_reader *r) {
    if (++r->n_frame == r->video.n)
        expect(r, FV_READS_RECORD, NULL, 0);
    else
        expect(r, FV_READS_RECORD, &r->record, sizeof r->record);
    return FV_OK;
}

/* Fails with the helper's message, reduced to printable ASCII for terminals, logs and JSON. */
static fv_status on_error(fv_video_reader *r) {
    for (size_t i = 0; i < r->record.bytes; i++)
        if (r->u.sentence[i] < ' ' || r->u.sentence[i] > '~') r->u.sentence[i] = '?';
    return FV_FAIL((fv_status)r->record.status, "%.*s", (int)r->record.bytes, r->u.sentence);
}

fv_status fv_video_reader_took(fv_video_reader *r, size_t n) {
    static fv_status (*const complete[])(fv_video_reader * r) = {
        [FV_READS_RECORD] = on_record, [FV_READS_HEAD] = on_head,   [FV_READS_FRAME] = on_frame,
        [FV_READS_PIXELS] = on_pixels, [FV_READS_ERROR] = on_error,
    };
    r->at += n;
    r->left -= n;
    return r->left > 0 ? FV_OK : complete[r->state](r);
}
