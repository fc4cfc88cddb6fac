/* A progress bar: one line that is overwritten. */
#include "cli/client/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"

enum { AFTER_S = 2, WIDTH = 24 };

void fv_progress_begin(fv_progress *p) {
    *p = (fv_progress){.on = isatty(STDERR_FILENO), .began_s = fv_clock_s()};
}

void fv_progress_show(fv_progress *p, int64_t done, int64_t total, const char *note) {
    static const char full[] = "########################", none[] = "........................";
    if (!p->on || fv_clock_s() - p->began_s < AFTER_S) return;
    int n = total > 0 ? (int)(done * WIDTH / total) : 0;
    fprintf(stderr, "\r\033[K[%.*s%.*s] %lld/%lld %s", n, full, WIDTH - n, none, (long long)done,
            (long long)total, note);
    fflush(stderr);
    p->shown = true;
}

void fv_progress_end(fv_progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}
