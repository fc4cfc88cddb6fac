/* The image functions behind a pipe, for image_golden.py: one command line on stdin, followed by
 * its bytes, gives "ok W H BYTES" and the bytes, or "fail CODE sentence".
 *
 *   decode BYTES                          an encoded file -> RGB
 *   resize W H RESAMPLE w h               RGB of w x h -> RGB of W x H
 *   pixels FLAGS EDGE RW RH TILE RESAMPLE FACTOR MEAN*3 STD*3 w h
 *                                         RGB of w x h -> float CHW; FLAGS is a sum of 1 resize,
 *                                         2 crop, 4 rescale, 8 normalise, 16 pad to a square
 *   layout CONFIG N_IMAGE W H             -> the layout as JSON, with its text in the prompt
 *   tiles CONFIG N_IMAGE RESAMPLE MEAN STD w h
 *                                         RGB of w x h -> float [n_tile, 3, tile, tile]
 * CONFIG is as in support/layout_line.h.
 * Numbers with a fraction are written as C hexadecimal floats, so that no bit is lost. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/image/image.h"
#include "tests/support/layout_line.h"

static void *read_bytes(size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p || fread(p, 1, n, stdin) != n) exit(2);
    return p;
}

static void answer(fv_status st, int32_t w, int32_t h, const void *bytes, size_t n) {
    if (st != FV_OK) {
        printf("fail %s %s\n", fv_status_name(st), fv_last_error());
    } else {
        printf("ok %" PRId32 " %" PRId32 " %zu\n", w, h, n);
        fwrite(bytes, 1, n, stdout);
    }
    fflush(stdout);
}

static void answer_image(fv_status st, fv_image *img) {
    answer(st, img->w, img->h, img->rgb, (size_t)img->w * (size_t)img->h * 3);
    fv_image_free(img);
}

static fv_image read_image(int32_t w, int32_t h) {
    return (fv_image){.rgb = read_bytes((size_t)w * (size_t)h * 3), .w = w, .h = h};
}

static void decode(size_t n) {
    void *bytes = read_bytes(n);
    fv_image img = {0};
    fv_status st = fv_image_decode(bytes, n, NULL, &img);
    answer_image(st, &img);
    free(bytes);
}

static void resize(int32_t to_w, int32_t to_h, int32_t resample, int32_t w, int32_t h) {
    fv_image in = read_image(w, h), img = {0};
    fv_status st = fv_image_resize(&in, to_w, to_h, resample, &img);
    answer_image(st, &img);
    fv_image_free(&in);
}

static int pixels(const char *line) {
    fv_layout_config layout = {.family = FV_LAYOUT_LLAVA, .merge = 1};
    fv_image_config c = {.do_convert_rgb = true};
    fv_layout l;
    int32_t w, h;
    int flags;
    if (sscanf(line,
               "pixels %d %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32
               " %la %a %a %a %a %a %a %" SCNd32 " %" SCNd32,
               &flags, &layout.shortest_edge, &layout.resize.w, &layout.resize.h, &layout.tile,
               &c.resample, &c.rescale_factor, &c.mean[0], &c.mean[1], &c.mean[2], &c.std[0],
               &c.std[1], &c.std[2], &w, &h) != 15)
        return 0;
    layout.patch = layout.tile;
    layout.pad_square = flags & 16;
    if (!(flags & 1)) layout.shortest_edge = layout.resize.w = layout.resize.h = 0;
    c.do_rescale = flags & 4;
    c.do_normalize = flags & 8;
    fv_image in = read_image(w, h);
    if (fv_layout_image(&layout, w, h, 1, &l) != FV_OK) return 0;
    const size_t bytes = fv_image_pixels_count(&l) * sizeof(float);
    float *out = malloc(bytes);
    if (!out) return 0;
    fv_status st = fv_image_preprocess(&in, &l, &c, out);
    answer(st, layout.tile, layout.tile, out, bytes);
    free(out);
    fv_image_free(&in);
    return 1;
}

static void print_layout(FILE *f, const fv_layout_config *c, const fv_layout *l) {
    static char text[FV_LAYOUT_TEXT_MAX];
    if (fv_layout_text(c, l, "<image>", text) != FV_OK) exit(2);
    fprintf(f, "{\"n_tile\":%d,\"n_visual\":%d,\"n_text\":%d,\"max\":%d,\"view\":[", l->n_tile,
            l->n_visual, l->n_text, fv_layout_tokens_max(c, 1));
    for (int32_t i = 0; i < l->n_view; i++) {
        const fv_layout_view *v = &l->view[i];
        fprintf(
            f, "%s{\"pad_square\":%d,\"at\":[%d,%d],\"size\":[%d,%d],\"grid\":[%d,%d],\"resize\":[",
            i ? "," : "", v->pad_square, v->x, v->y, v->w, v->h, v->cols, v->rows);
        for (int32_t k = 0; k < v->n_resize; k++)
            fprintf(f, "%s[%d,%d]", k ? "," : "", v->resize[k].w, v->resize[k].h);
        fprintf(f, "]}");
    }
    fprintf(f, "],\"span\":[");
    for (int32_t i = 0; i < l->n_span; i++) {
        const fv_layout_span *s = &l->span[i];
        fprintf(
            f, "%s{\"n\":%d,\"h\":%d,\"w\":%d,\"tile\":%d,\"grid\":[%d,%d],\"crop\":[%d,%d,%d,%d],",
            i ? "," : "", s->n, s->h, s->w, s->tile, s->cols, s->rows, s->crop_x, s->crop_y,
            s->crop_w, s->crop_h);
        fprintf(f, "\"column\":%d,\"end\":%d}", s->newline_column, s->newline_end);
    }
    fprintf(f, "],\"text\":\"");
    for (const char *p = text; *p; p++) fprintf(f, *p == '\n' ? "\\n" : "%c", *p);
    fprintf(f, "\"}");
}

static int layout(const char *line) {
    fv_layout_config c;
    fv_layout l;
    int32_t n_image, w, h;
    char *text = NULL;
    size_t n = 0;
    line = strncmp(line, "layout ", 7) ? NULL : layout_config_read(line + 7, &c);
    if (!line || sscanf(line, "%" SCNd32 " %" SCNd32 " %" SCNd32, &n_image, &w, &h) != 3) return 0;
    fv_status st = fv_layout_check(&c);
    if (st == FV_OK) st = fv_layout_image(&c, w, h, n_image, &l);
    FILE *f = open_memstream(&text, &n);
    if (!f) return 0;
    if (st == FV_OK) print_layout(f, &c, &l);
    fclose(f);
    answer(st, w, h, text, n);
    free(text);
    return 1;
}

static int tiles(const char *line) {
    fv_layout_config config;
    fv_layout l;
    fv_image_config c = {.do_rescale = true, .do_normalize = true, .rescale_factor = 1 / 255.0};
    int32_t n_image, w, h;
    line = strncmp(line, "tiles ", 6) ? NULL : layout_config_read(line + 6, &config);
    if (!line || sscanf(line, "%" SCNd32 " %" SCNd32 " %a %a %" SCNd32 " %" SCNd32, &n_image,
                        &c.resample, &c.mean[0], &c.std[0], &w, &h) != 6)
        return 0;
    for (int i = 1; i < 3; i++) c.mean[i] = c.mean[0], c.std[i] = c.std[0];
    fv_image in = read_image(w, h);
    float *out = NULL;
    size_t bytes = 0;
    fv_status st = fv_layout_check(&config);
    if (st == FV_OK) st = fv_layout_image(&config, w, h, n_image, &l);
    if (st == FV_OK) {
        bytes = fv_image_pixels_count(&l) * sizeof *out;
        out = malloc(bytes);
        if (!out) return 0;
        st = fv_image_preprocess(&in, &l, &c, out);
    }
    answer(st, w, h, out, bytes);
    free(out);
    fv_image_free(&in);
    return 1;
}

int main(void) {
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        size_t n;
        int32_t a[5];
        if (sscanf(line, "decode %zu", &n) == 1) {
            decode(n);
        } else if (sscanf(line, "resize %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32,
                          &a[0], &a[1], &a[2], &a[3], &a[4]) == 5) {
            resize(a[0], a[1], a[2], a[3], a[4]);
        } else if (!layout(line) && !tiles(line) && !pixels(line)) {
            fprintf(stderr, "image_dump: cannot read: %s", line);
            return 1;
        }
    }
    return 0;
}
