/* Turns an image upright. Rows and columns are exchanged block by block, because a column of a large image
 * touches one cache line for each pixel. For any thread. */
#include "prefill-worker/image/internal.h"

#include <string.h>

enum { BLOCK = 32 };

/* Maps pixel (x, y) of the upright image to the stored one: exchange x and y, then count rows and columns from the
 * other end. */
typedef struct turning {
    bool swap, flip_x, flip_y;
} turning;

static turning turning_of(int32_t orientation) {
    static const turning of[9] = {
        [2] = {false, true, false}, [3] = {false, true, true}, [4] = {false, false, true},
        [5] = {true, false, false}, [6] = {true, false, true}, [7] = {true, true, true},
        [8] = {true, true, false},
    };
    return of[orientation];
}

static void turn_block(const fv_image *in, turning t, int32_t x0, int32_t y0, fv_image *out) {
    const int32_t x1 = x0 + BLOCK < out->w ? x0 + BLOCK : out->w;
    const int32_t y1 = y0 + BLOCK < out->h ? y0 + BLOCK : out->h;
    for (int32_t y = y0; y < y1; y++)
        for (int32_t x = x0; x < x1; x++) {
            int32_t from_x = t.swap ? y : x, from_y = t.swap ? x : y;
            if (t.flip_x) from_x = in->w - 1 - from_x;
            if (t.flip_y) from_y = in->h - 1 - from_y;
            memcpy(out->rgb + 3 * ((size_t)y * (size_t)out->w + (size_t)x),
                   in->rgb + 3 * ((size_t)from_y * (size_t)in->w + (size_t)from_x), 3);
        }
}

fv_status fv_image_turn(fv_image *stored, int32_t orientation, fv_image *out) {
    const turning t = turning_of(orientation);
    fv_image made;
    if (orientation == 1) {
        *out = *stored;
        *stored = (fv_image){0};
        return FV_OK;
    }
    fv_status st = fv_image_alloc(t.swap ? stored->h : stored->w, t.swap ? stored->w : stored->h,
                                  false, &made);
    for (int32_t y = 0; st == FV_OK && y < made.h; y += BLOCK)
        for (int32_t x = 0; x < made.w; x += BLOCK) turn_block(stored, t, x, y, &made);
    fv_image_free(stored);
    if (st == FV_OK) *out = made;
    return st;
}
