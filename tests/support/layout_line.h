#ifndef FOVEA_TESTS_SUPPORT_LAYOUT_LINE_H
#define FOVEA_TESTS_SUPPORT_LAYOUT_LINE_H

/* LAYOUT LINE: a layout's configuration as golden/layout/golden.txt has it,
 *
 *   FAMILY TILE PATCH MERGE LONGEST_EDGE SPLIT LEAST MOST WxH,WxH,...
 *
 * the family by its number, LEAST and MOST tiles_min and tiles_max, of Qwen-VL pixels_min and
 * pixels_max, - where there are no sizes. LLaVA-1.5's shorter side is TILE, Mistral 3's
 * longer one at most LONGEST_EDGE. */
#include "layout/layout.h"

/* Reads a configuration; returns the rest of the line, or NULL if it cannot be read. */
const char *layout_config_read(const char *line, fv_layout_config *c);

#endif
