#ifndef FOVEA_EVAL_SUITE_PAGE_H
#define FOVEA_EVAL_SUITE_PAGE_H

/* THE PAGE: results.json as figures, in one HTML file that needs nothing from the network.
 *
 * eval/suite/page.html draws the figures; this inserts the data. */
#include <jansson.h>

#include "common/status.h"

/* Writes the page of `results` (fv_results_json) to `path`. */
fv_status fv_page_write(const char *path, const json_t *results);

#endif
