#include "gateway/api/data_url.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/grow.h"

static const char scheme[] = "data:", mark[] = ";base64";
enum { N_SCHEME = sizeof scheme - 1, N_MARK = sizeof mark - 1 };

/* Checks the head as far as it was read; `whole`: to its comma. The media type may be anything: the
 * bytes say what they are. */
static fv_status check_head(const fv_data_url *u, bool whole) {
    const char *what = u->video ? "a video" : "an image",
               *type = u->video ? "video/mp4" : "image/png";
    const char *comma = u->head + u->n_head - 1;
    const size_t n = u->n_head < N_SCHEME ? u->n_head : N_SCHEME;
    if (strncasecmp(u->head, scheme, n) != 0 || (whole && n < N_SCHEME))
        return FV_FAIL(FV_EINVAL,
                       "%s must be a data: URL (data:%s;base64,...), or an http(s) URL where the "
                       "server allows its host",
                       what, type);
    if (!whole) return FV_OK;
    if (u->n_head < N_SCHEME + N_MARK + 1 || *comma != ',' ||
        strncasecmp(comma - N_MARK, mark, N_MARK) != 0)
        return FV_FAIL(FV_EINVAL, "a data: URL must be base64: data:%s;base64,...", type);
    return FV_OK;
}

/* Takes the characters of the head, up to its comma. */
static fv_status take_head(fv_data_url *u, const char **text, size_t *n) {
    const char *comma = memchr(*text, ',', *n);
    const size_t take = comma ? (size_t)(comma - *text) + 1 : *n;
    const size_t room = sizeof u->head - u->n_head, kept = take < room ? take : room;
    memcpy(u->head + u->n_head, *text, kept);
    u->n_head += kept;
    *text += take;
    *n -= take;
    u->decodes = comma != NULL;
    return check_head(u, comma || kept < take);
}

static fv_status decode(fv_data_url *u, const char *text, size_t n) {
    size_t more;
    FV_TRY(fv_grow(&u->data, &u->cap, u->n + FV_BASE64_BYTES(n), 1));
    FV_TRY(fv_base64_feed(&u->base64, text, n, u->data + u->n, &more));
    u->n += more;
    return FV_OK;
}

void fv_data_url_begin(fv_data_url *u, bool video) {
    *u = (fv_data_url){.video = video};
    fv_base64_begin(&u->base64, FV_BASE64);
}

void fv_data_url_drop(fv_data_url *u) {
    free(u->data);
    u->data = NULL;
    u->n = u->cap = 0;
}

fv_status fv_data_url_feed(fv_data_url *u, const char *text, size_t n) {
    if (!u->decodes) FV_TRY(take_head(u, &text, &n));
    return n ? decode(u, text, n) : FV_OK;
}

fv_status fv_data_url_end(fv_data_url *u, ProtobufCBinaryData *out) {
    uint8_t last[2];
    size_t n;
    if (!u->decodes) FV_TRY(check_head(u, true));
    FV_TRY(fv_base64_end(&u->base64, last, &n));
    FV_TRY(fv_grow(&u->data, &u->cap, u->n + n, 1));
    memcpy(u->data + u->n, last, n);
    u->n += n;
    uint8_t *exact = realloc(u->data, u->n); /* frees the spare room */
    *out = (ProtobufCBinaryData){u->n, exact ? exact : u->data};
    u->data = NULL;
    u->n = u->cap = 0;
    return FV_OK;
}
