/* Counts the scans of a JPEG by its markers, before anything is decoded. A scan of a few bytes can
 * visit all coefficients of the image, so a small file with many scans costs as much as a hundred
 * large ones.
 *
 * There are two bounds. No file may have more than FV_JPEG_SCANS_MAX scans: the
 * scripts of libjpeg and mozjpeg write 6 to 18, and hand-written scripts a few more. All scans of a
 * file together may visit at most VISITS_MAX samples, 16 times those of the largest image that is
 * decoded by default: a script of libjpeg visits each sample at most 6 times. A small image may
 * therefore have all 100 scans, and the largest 16.
 *
 * Segments and entropy-coded data are skipped as libjpeg skips them. If the two differ in a damaged
 * file, jpeg.c still stops at FV_JPEG_SCANS_MAX. For any thread. */
#include "prefill-worker/image/internal.h"

#include <inttypes.h>
#include <string.h>

static const int64_t VISITS_MAX = (int64_t)1 << 30;

enum {
    TEM = 0x01,
    SOF0 = 0xc0,
    DHT = 0xc4,
    JPG = 0xc8,
    DAC = 0xcc,
    SOF15 = 0xcf,
    RST0 = 0xd0,
    SOI = 0xd8,
    EOI = 0xd9,
    SOS = 0xda
};

typedef struct scans {
    int32_t n;
    int64_t parts;       /* sum of the components of all scans */
    int32_t n_component; /* components of the frame; 0: no frame yet */
} scans;

/* Moves *at past the next marker and returns its code; 0: there is none. */
static uint8_t next_marker(const uint8_t *p, size_t n, size_t *at) {
    while (*at < n) {
        const uint8_t *ff = memchr(p + *at, 0xff, n - *at);
        if (!ff) return 0;
        size_t i = (size_t)(ff - p);
        while (i < n && p[i] == 0xff) i++;
        *at = i + 1;
        if (i < n && p[i] != 0) return p[i];
    }
    return 0;
}

static bool has_no_length(uint8_t marker) {
    return marker == TEM || (marker >= RST0 && marker <= SOI);
}

static bool is_frame(uint8_t marker) {
    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

static fv_status add_scan(scans *s, int32_t n_component, int64_t pixels) {
    int64_t most = VISITS_MAX / pixels * s->n_component;
    s->n++;
    s->parts += n_component;
    if (s->n > FV_JPEG_SCANS_MAX)
        return FV_FAIL(FV_EINVAL, "the JPEG has more than %d scans", FV_JPEG_SCANS_MAX);
    if (s->n_component && s->parts > most)
        return FV_FAIL(FV_EINVAL,
                       "the JPEG has %" PRId64
                       " pixels, too many for so many scans: save it with fewer, or as a baseline "
                       "JPEG",
                       pixels);
    return FV_OK;
}

fv_status fv_image_check_scans(const uint8_t *p, size_t n, int64_t pixels) {
    scans s = {0};
    for (size_t at = 2;;) {
        uint8_t marker = next_marker(p, n, &at);
        if (marker == 0 || marker == EOI) return FV_OK;
        if (has_no_length(marker)) continue;
        if (n - at < 2) return FV_OK; /* the decoder reports what is wrong */
        size_t length = (size_t)p[at] << 8 | p[at + 1];
        if (length < 2 || length > n - at) return FV_OK;
        if (is_frame(marker) && length > 7) s.n_component = p[at + 7];
        if (marker == SOS && length > 2) FV_TRY(add_scan(&s, p[at + 2], pixels));
        at += length;
    }
}
