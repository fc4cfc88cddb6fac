#ifndef FOVEA_CLI_CLIENT_PROGRESS_H
#define FOVEA_CLI_CLIENT_PROGRESS_H

/* PROGRESS of work that takes more than two seconds: a bar on stderr if that is a terminal. */
#include <stdbool.h>
#include <stdint.h>

typedef struct fv_progress {
    bool on;
    double began_s;
    bool shown;
} fv_progress;

void fv_progress_begin(fv_progress *p);

/* Shows "[####......] 37/100 <note>" in place of the previous line. */
void fv_progress_show(fv_progress *p, int64_t done, int64_t total, const char *note);
void fv_progress_end(fv_progress *p); /* removes the bar */

#endif
