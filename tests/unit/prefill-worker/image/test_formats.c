/* Every format and orientation against Pillow's pixels (golden/formats/, parity/image_formats.py); files that are cut
 * or damaged; a program without its decoder. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/file.h"
#include "prefill-worker/image/image.h"
#include "video/still.h"

#define GOLDEN FOVEA_TEST_DATA "/golden/formats/"

static char *load(const char *name, size_t *n) {
    char path[512], *data = NULL;
    snprintf(path, sizeof path, GOLDEN "%s", name);
    cr_assert_eq(fv_file_read(path, 1 << 20, &data, n), FV_OK, "%s", fv_last_error());
    return data;
}

static fv_image decode(const char *name) {
    size_t n;
    char *bytes = load(name, &n);
    fv_image img = {0};
    cr_expect_eq(fv_image_decode(bytes, n, NULL, &img), FV_OK, "%s: %s", name, fv_last_error());
    free(bytes);
    return img;
}

static size_t bytes_of(const fv_image *img) { return (size_t)img->w * (size_t)img->h * 3; }

/* "decode FILE W H CRC" or "near FILE W H MOST REFERENCE"; returns false for other lines. */
static bool check(const char *line) {
    char name[64], reference[64] = "";
    int32_t w, h, most = 0;
    uint32_t want = 0;
    if (sscanf(line, "decode %63s %" SCNd32 " %" SCNd32 " %" SCNx32, name, &w, &h, &want) != 4 &&
        sscanf(line, "near %63s %" SCNd32 " %" SCNd32 " %" SCNd32 " %63s", name, &w, &h, &most,
               reference) != 5)
        return false;
    fv_image img = decode(name);
    cr_expect(img.w == w && img.h == h, "%s is %" PRId32 " x %" PRId32, name, img.w, img.h);
    if (!*reference) {
        const uint32_t got = (uint32_t)crc32(0, img.rgb, (uInt)bytes_of(&img));
        cr_expect_eq(got, want, "the pixels of %s differ", name);
    } else {
        fv_image near = decode(reference);
        cr_assert_eq(bytes_of(&near), bytes_of(&img), "%s", name);
        for (size_t i = 0; i < bytes_of(&img); i++)
            cr_assert(abs(img.rgb[i] - near.rgb[i]) <= most, "%s: sample %zu is %d, not %d", name,
                      i, img.rgb[i], near.rgb[i]);
        fv_image_free(&near);
    }
    fv_image_free(&img);
    return true;
}

Test(formats, every_format_and_orientation_has_the_pixels_that_pillow_gives) {
    FILE *f = fopen(GOLDEN "golden.txt", "r");
    char line[512];
    int32_t n = 0;
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) n += check(line);
    fclose(f);
    cr_assert_gt(n, 100);
}

Test(formats, one_picture_in_eight_orientations_is_one_picture) {
    static const char *const kinds[] = {"png", "webp", "tiff"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        fv_image first = {0};
        for (int o = 1; o <= 8; o++) {
            char name[64];
            snprintf(name, sizeof name, "exif_%d.%s", o, kinds[k]);
            fv_image img = decode(name);
            if (o == 1) first = img;
            cr_assert(img.w == first.w && img.h == first.h && img.w > img.h, "%s", name);
            cr_assert_arr_eq(img.rgb, first.rgb, bytes_of(&first), "%s", name);
            if (o > 1) fv_image_free(&img);
        }
        fv_image_free(&first);
    }
}

/* Gives an image of the size that the header says, or an error with a sentence. */
static void survives(const char *name, const void *bytes, size_t n) {
    static const fv_image_limits small = {
        .bytes_max = 1 << 20, .side_max = 512, .pixels_max = 1 << 18};
    fv_image_size said;
    fv_image img = {0};
    const fv_status st = fv_image_decode(bytes, n, &small, &img);
    if (st == FV_OK) {
        cr_assert_eq(fv_image_size_read(bytes, n, &said), FV_OK, "%s", name);
        cr_assert(img.w == said.w && img.h == said.h, "%s", name);
    } else {
        cr_assert(st == FV_EDATA || st == FV_EINVAL || st == FV_EUNSUPPORTED, "%s: %s %s", name,
                  fv_status_name(st), fv_last_error());
        cr_assert(!strstr(fv_last_error(), "signal") && !strstr(fv_last_error(), "may not"),
                  "%s: %s", name, fv_last_error());
    }
    fv_image_free(&img);
}

static const char *const sandboxed[] = {"interlaced.gif",    "rle8.bmp",   "lzw.tiff",
                                        "jpeg.tiff",         "alpha.avif", "grid.heic",
                                        "animated_part.webp"};
enum { N_SANDBOXED = sizeof sandboxed / sizeof *sandboxed };

Test(formats, a_file_that_is_cut_anywhere_gives_an_error_and_no_crash) {
    for (size_t i = 0; i < N_SANDBOXED; i++) {
        size_t n;
        char *bytes = load(sandboxed[i], &n);
        for (size_t k = 1; k <= 8; k++) {
            const size_t left = n * k / 9;
            char *cut = malloc(left);
            cr_assert_not_null(cut);
            memcpy(cut, bytes, left);
            survives(sandboxed[i], cut, left);
            free(cut);
        }
        free(bytes);
    }
}

Test(formats, damage_ends_in_an_image_or_in_an_error) {
    for (size_t i = 0; i < N_SANDBOXED; i++) {
        size_t n;
        char *bytes = load(sandboxed[i], &n);
        for (size_t k = 0; k < 8; k++) {
            const size_t at = 12 + (n - 12) * k / 8;
            bytes[at] ^= (char)0xa5;
            survives(sandboxed[i], bytes, n);
            bytes[at] ^= (char)0xa5;
        }
        free(bytes);
    }
}

Test(formats, limits_are_those_of_all_images) {
    static const struct {
        const char *name;
        int32_t side; /* of the image: 31 x 19 and so on */
    } files[] = {{"plain.gif", 31}, {"rgb.bmp", 21}, {"lzw.tiff", 37}, {"420.avif", 45}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n;
        char *bytes = load(files[i].name, &n);
        fv_image img = {0};
        fv_image_limits lim = {.side_max = files[i].side - 1};
        cr_assert_eq(fv_image_decode(bytes, n, &lim, &img), FV_EINVAL, "%s", files[i].name);
        lim.side_max++;
        cr_assert_eq(fv_image_decode(bytes, n, &lim, &img), FV_OK, "%s", fv_last_error());
        fv_image_free(&img);
        free(bytes);
    }
}

Test(formats, a_helper_checks_the_size_again) {
    static const fv_image_limits small = {
        .bytes_max = 1 << 20, .side_max = 30, .pixels_max = 1 << 20};
    size_t n;
    char *bytes = load("plain.gif", &n);
    fv_still still = {0};
    cr_assert_eq(fv_still_decode(bytes, n, FV_IMAGE_GIF, &small, NULL, &still), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "31x19"), "%s", fv_last_error());
    free(bytes);
}

Test(formats, bytes_of_another_kind_than_said_are_refused) {
    const fv_image_limits lim = fv_image_limits_default();
    size_t n;
    char *bytes = load("plain.gif", &n);
    for (int kind = FV_IMAGE_WEBP + 1; kind < FV_N_IMAGE_KIND; kind++) {
        if (kind == FV_IMAGE_GIF) continue;
        fv_still still = {0};
        cr_assert_eq(fv_still_decode(bytes, n, (fv_image_kind)kind, &lim, NULL, &still), FV_EDATA,
                     "%s: %s", fv_image_kind_name((fv_image_kind)kind), fv_last_error());
    }
    free(bytes);
}

Test(formats, a_program_without_its_decoder_names_what_to_build) {
    const fv_image_limits lim = fv_image_limits_default();
    size_t n;
    char *bytes = load("plain.gif", &n);
    fv_still still = {0};
    cr_assert_eq(fv_still_decode(bytes, n, FV_IMAGE_GIF, &lim, "/nowhere/fovea-video", &still),
                 FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "CMake target fovea-video"), "%s", fv_last_error());
    free(bytes);
}

Test(formats, a_png_with_a_wrong_checksum_ahead_of_its_pixels_is_refused_as_by_pillow) {
    size_t n;
    char *bytes = load("xmp.png", &n);
    char *text = memmem(bytes, n, "iTXt", 4);
    fv_image img = {0};
    cr_assert_not_null(text);
    text[30] ^= 1;
    cr_assert_eq(fv_image_decode(bytes, n, NULL, &img), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "CRC"), "%s", fv_last_error());
    free(bytes);
}
