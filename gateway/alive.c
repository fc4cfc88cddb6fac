/* A single timer checks all streams, a few times in the shortest interval. It runs only while there are
 * any; the streams are few compared with the events that they get, so a list suffices. */
#include "gateway/alive.h"

#include <stdlib.h>

#include "common/clock.h"

enum { LOOKS = 8 };

struct fv_alive {
    uv_timer_t timer; /* first */
    int32_t ms;
    LIST_HEAD(, fv_alive_stream) streams;
};

static int32_t first_ms(const fv_alive *a) {
    return a->ms < FV_ALIVE_FIRST_MS ? a->ms : FV_ALIVE_FIRST_MS;
}

static void look(uv_timer_t *t) {
    fv_alive *a = (fv_alive *)t;
    const double now_s = fv_clock_s();
    fv_alive_stream *s = LIST_FIRST(&a->streams), *next;
    for (; s; s = next) {
        next = LIST_NEXT(s, link);
        if (now_s < s->quiet_s) continue;
        s->quiet_s = now_s + 1e-3 * a->ms;
        s->quiet(s);
    }
}

fv_status fv_alive_open(uv_loop_t *loop, int32_t ms, fv_alive **out) {
    fv_alive *a = calloc(1, sizeof *a);
    if (!a) return FV_FAIL(FV_ENOMEM, "out of memory for a timer");
    a->ms = ms;
    LIST_INIT(&a->streams);
    uv_timer_init(loop, &a->timer);
    *out = a;
    return FV_OK;
}

static void on_closed(uv_handle_t *timer) { free(timer); }

void fv_alive_close(fv_alive *a) {
    if (a) uv_close((uv_handle_t *)&a->timer, on_closed);
}

void fv_alive_join(fv_alive *a, fv_alive_stream *s, void (*quiet)(fv_alive_stream *s)) {
    if (a->ms == 0) return;
    if (LIST_EMPTY(&a->streams)) {
        const uint64_t every_ms = (uint64_t)first_ms(a) / LOOKS + 1;
        uv_timer_start(&a->timer, look, every_ms, every_ms);
    }
    s->alive = a;
    s->quiet = quiet;
    s->quiet_s = fv_clock_s() + 1e-3 * first_ms(a);
    LIST_INSERT_HEAD(&a->streams, s, link);
}

void fv_alive_wrote(fv_alive_stream *s) {
    if (s->alive) s->quiet_s = fv_clock_s() + 1e-3 * s->alive->ms;
}

void fv_alive_leave(fv_alive_stream *s) {
    fv_alive *a = s->alive;
    if (!a) return;
    LIST_REMOVE(s, link);
    s->alive = NULL;
    if (LIST_EMPTY(&a->streams)) uv_timer_stop(&a->timer);
}
