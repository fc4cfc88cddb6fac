#include "tests/support/api_body.h"

#include <stdlib.h>
#include <string.h>

static fv_status feed(fv_api_reader *r, const char *body, size_t n, size_t piece) {
    size_t size = piece ? piece : 1;
    for (size_t at = 0; at < n; at += size) {
        if (!piece) size = 1 + (7 * size + (uint8_t)body[at]) % 61;
        if (size > n - at) size = n - at;
        char *exact = malloc(size); /* so that reading beyond it is found */
        memcpy(exact, body + at, size);
        fv_status st = fv_api_reader_feed(r, exact, size);
        free(exact);
        if (st != FV_OK) return st;
    }
    return fv_api_reader_end(r);
}

fv_status api_body_read(const fv_api_reader_options *opt, const char *body, size_t n, size_t piece,
                        fv_arena *arena, fv_api_request *out, char param[FV_API_PARAM_MAX]) {
    fv_api_reader *r;
    FV_TRY(fv_api_reader_open(opt, arena, out, &r));
    fv_status st = feed(r, body, n, piece);
    strcpy(param, fv_api_reader_param(r));
    fv_api_reader_close(r);
    return st;
}
