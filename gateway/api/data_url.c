#include "gateway/api/data_url.h"

#include <string.h>
#include <strings.h>

#include "gateway/api/base64.h"

static bool has_type(const char *type, bool video) {
    if (!video) return strncasecmp(type, "image/", 6) == 0;
    return strncasecmp(type, "video/", 6) == 0 || strncasecmp(type, "image/gif;", 10) == 0;
}

fv_status fv_data_url_read(const char *url, size_t n, bool video, fv_arena *arena,
                           ProtobufCBinaryData *out) {
    const char *what = video ? "a video" : "an image", *type = video ? "video/mp4" : "image/png";
    static const char scheme[] = "data:", mark[] = ";base64";
    size_t skip = sizeof scheme - 1, n_mark = sizeof mark - 1;
    if (n < skip || strncasecmp(url, scheme, skip) != 0)
        return FV_FAIL(FV_EINVAL,
                       "%s must be a data: URL (data:%s;base64,...), or an http(s) URL where the "
                       "server allows its host",
                       what, type);
    const char *comma = memchr(url, ',', n);
    size_t head = comma ? (size_t)(comma - url) : 0;
    if (head < skip + n_mark || strncasecmp(comma - n_mark, mark, n_mark) != 0)
        return FV_FAIL(FV_EINVAL, "a data: URL must be base64: data:%s;base64,...", type);
    if (!has_type(url + skip, video))
        return FV_FAIL(FV_EINVAL, "the data: URL must have the type of %s: data:%s;base64,...",
                       what, type);
    n -= head + 1;
    FV_TRY(FV_ARENA_NEW(arena, n / 4 * 3 + 2, out->data));
    return fv_base64_read(FV_BASE64, comma + 1, n, out->data, &out->len);
}
