#ifndef FOVEA_TESTS_SUPPORT_CALLED_H
#define FOVEA_TESTS_SUPPORT_CALLED_H

/* Runs an answer through a parser of tool calls in pieces, and writes down what comes out:
 * text as it is, calls as "{NAME ARGUMENTS}". */
#include <stdint.h>

#include "text/calls/calls.h"

/* Pieces have the sizes 1 + next() % size_max. Gives the text (free it). */
char *called_in_pieces(const fv_calls_form *form, const json_t *tools, const char *text, size_t n,
                       uint32_t seed, size_t size_max);

#endif
