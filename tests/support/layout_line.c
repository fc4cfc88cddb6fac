#include "tests/support/layout_line.h"

#include <inttypes.h>
#include <stdio.h>

const char *layout_config_read(const char *line, fv_layout_config *c) {
    int family, split, at;
    *c = (fv_layout_config){0};
    if (sscanf(line,
               "%d %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %d %" SCNd32 " %" SCNd32 " %n",
               &family, &c->tile, &c->patch, &c->merge, &c->longest_edge, &split, &c->tiles_min,
               &c->tiles_max, &at) != 8)
        return NULL;
    c->family = (fv_layout_family)family;
    c->split = split;
    if (c->family == FV_LAYOUT_LLAVA) c->shortest_edge = c->tile;
    if (c->family == FV_LAYOUT_MISTRAL3) {
        c->resize = (fv_layout_size){c->longest_edge, c->longest_edge};
        c->longest_edge = 0;
    }
    if (c->family == FV_LAYOUT_QWEN_VL || c->family == FV_LAYOUT_QWEN3_VL ||
        c->family == FV_LAYOUT_GLM4V || c->family == FV_LAYOUT_PADDLEOCR_VL) {
        c->pixels_min = c->tiles_min, c->pixels_max = c->tiles_max;
        c->tiles_min = c->tiles_max = 0;
    }
    line += at;
    if (*line == '-') return line + 1;
    while (c->n_pinpoint < FV_LAYOUT_PINPOINTS_MAX) {
        fv_layout_size *p = &c->pinpoint[c->n_pinpoint++];
        if (sscanf(line, "%" SCNd32 "x%" SCNd32 "%n", &p->w, &p->h, &at) != 2) return NULL;
        line += at;
        if (*line++ != ',') return line - 1;
    }
    return NULL;
}
