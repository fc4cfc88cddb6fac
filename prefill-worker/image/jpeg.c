/* Decodes JPEG to RGB with libjpeg-turbo and Pillow's choices: slow integer DCT and smooth chroma
 * upsampling (the library's defaults), CMYK read as Adobe writes it, which is inverted.
 *
 * libjpeg reports errors by a callback that must not return; it jumps back to read_image, which
 * therefore keeps no state of its own: everything lives in struct reader. Damage that libjpeg
 * fills with grey and reports as a warning is an error here; oddities that do not change pixels
 * are not. For any thread. */
#include "prefill-worker/image/internal.h"

#include <setjmp.h>
#include <stdio.h> /* jpeglib.h uses FILE and size_t without including them */

#include <jerror.h>
#include <jpeglib.h>

struct reader {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr err;
    struct jpeg_progress_mgr progress;
    jmp_buf on_error;
    fv_status status;
    fv_image img; /* owned until the image is complete */
};

static fv_status status_of(int code) {
    switch (code) {
    case JERR_OUT_OF_MEMORY: return FV_ENOMEM;
    case JERR_IMAGE_TOO_BIG: return FV_EINVAL;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED: return FV_EUNSUPPORTED;
    default: return FV_EDATA;
    }
}

/* Jumps to read_image, which has not returned: longjmp is legal. */
static _Noreturn void on_error(j_common_ptr cinfo) {
    struct reader *r = cinfo->client_data;
    char why[JMSG_LENGTH_MAX];
    cinfo->err->format_message(cinfo, why);
    r->status = FV_FAIL(status_of(cinfo->err->msg_code), "the JPEG cannot be decoded: %s", why);
    longjmp(r->on_error, 1);
}

/* Called with warnings (level < 0) and traces. The warnings listed do not change pixels; the others (the
 * data ends early, a bad code, a lost restart) do. */
static void on_message(j_common_ptr cinfo, int level) {
    if (level >= 0) return;
    switch (cinfo->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL: return;
    default: on_error(cinfo);
    }
}

static void on_output(j_common_ptr cinfo) { (void)cinfo; } /* nothing is printed */

static void on_progress(j_common_ptr cinfo) {
    struct reader *r = cinfo->client_data;
    if (r->cinfo.input_scan_number <= FV_JPEG_SCANS_MAX) return;
    r->status = FV_FAIL(FV_EINVAL, "the JPEG has more than %d scans", FV_JPEG_SCANS_MAX);
    longjmp(r->on_error, 1);
}

/* Converts CMYK to RGB like Pillow, after its inversion of Adobe's ink values (255 = no ink):
 *   rgb = k - round((255 - ink) k / 255)
 * The shifts compute that rounded division, as in Pillow. */
static void cmyk_row_to_rgb(const uint8_t *in, int32_t w, uint8_t *out) {
    for (int32_t x = 0; x < w; x++, in += 4, out += 3)
        for (int c = 0; c < 3; c++) {
            int k = in[3], t = (255 - in[c]) * k + 128;
            out[c] = (uint8_t)(k - (((t >> 8) + t) >> 8));
        }
}

static void read_rows(struct reader *r) {
    struct jpeg_decompress_struct *cinfo = &r->cinfo;
    const size_t stride = (size_t)r->img.w * 3;
    JSAMPLE *cmyk = NULL;
    if (cinfo->out_color_space == JCS_CMYK)
        cmyk = cinfo->mem->alloc_large((j_common_ptr)cinfo, JPOOL_IMAGE, (size_t)r->img.w * 4);
    while (cinfo->output_scanline < cinfo->output_height) {
        uint8_t *row = r->img.rgb + cinfo->output_scanline * stride;
        JSAMPROW dst = cmyk ? cmyk : row;
        jpeg_read_scanlines(cinfo, &dst, 1);
        if (cmyk) cmyk_row_to_rgb(cmyk, r->img.w, row);
    }
    jpeg_finish_decompress(cinfo); /* reads up to the end marker: a file without one is truncated */
}

static fv_status read_image(struct reader *r, const uint8_t *bytes, size_t n,
                            const fv_image_size *said) {
    struct jpeg_decompress_struct *cinfo = &r->cinfo;
    if (setjmp(r->on_error)) return r->status;

    jpeg_create_decompress(cinfo);
    cinfo->progress = &r->progress;
    jpeg_mem_src(cinfo, bytes, (unsigned long)n);
    jpeg_read_header(cinfo, TRUE);
    FV_TRY(fv_image_size_agrees(said, cinfo->image_width, cinfo->image_height));

    switch (cinfo->num_components) {
    case 1:
    case 3: cinfo->out_color_space = JCS_RGB; break;
    case 4: cinfo->out_color_space = JCS_CMYK; break;
    default:
        return FV_FAIL(FV_EUNSUPPORTED, "the JPEG has %d colour components; 1, 3 or 4 are decoded",
                       cinfo->num_components);
    }
    FV_TRY(
        fv_image_alloc((int32_t)cinfo->image_width, (int32_t)cinfo->image_height, false, &r->img));
    jpeg_start_decompress(cinfo);
    read_rows(r);
    return FV_OK;
}

fv_status fv_image_decode_jpeg(const uint8_t *bytes, size_t n, const fv_image_size *said,
                               fv_image *out) {
    FV_TRY(fv_image_check_scans(bytes, n, fv_image_size_pixels(said)));
    struct reader r = {.progress.progress_monitor = on_progress};
    r.cinfo.err = jpeg_std_error(&r.err);
    r.cinfo.client_data = &r;
    r.err.error_exit = on_error;
    r.err.emit_message = on_message;
    r.err.output_message = on_output;

    fv_status st = read_image(&r, bytes, n, said);
    jpeg_destroy_decompress(&r.cinfo);
    if (st != FV_OK) {
        fv_image_free(&r.img);
        return st;
    }
    *out = r.img;
    return FV_OK;
}
