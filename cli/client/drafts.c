/* Reads the options that say what an answer is drafted from. */
#include "cli/client/drafts.h"

#include <stdlib.h>
#include <string.h>

#include "cli/client/request.h"

enum { PREDICTION_MAX = 1 << 16 };

static fv_status read_prediction(const char *path, fv_arena *a, char **out) {
    char *data;
    size_t n;
    FV_TRY(fv_request_file(path, &data, &n));
    fv_status st = FV_OK;
    if (n > PREDICTION_MAX || memchr(data, 0, n))
        st = FV_FAIL(FV_EINVAL, "--prediction: %s must be text of at most %d bytes", path,
                     PREDICTION_MAX);
    if (st == FV_OK) st = fv_arena_strndup(a, data, n, out);
    free(data);
    return st;
}

fv_status fv_request_drafts(const fv_options *o, fv_arena *a, fv_ask_drafts *out) {
    const char *s = fv_options_string(o, "speculate"), *path = fv_options_string(o, "prediction");
    fv_ask_drafts d = {.given = s != NULL, .on = !s || strcmp(s, "on") == 0};
    char *text = NULL;
    if (s && !d.on && strcmp(s, "off") != 0)
        return FV_FAIL(FV_EINVAL, "--speculate is '%s'; it must be on or off", s);
    if (path) FV_TRY(read_prediction(path, a, &text));
    d.prediction = text;
    *out = d;
    return FV_OK;
}
