#ifndef FOVEA_CLI_EVAL_PRINT_H
#define FOVEA_CLI_EVAL_PRINT_H

/* The results of an evaluation as tables: scores by task, then bytes and times by policy. */
#include "eval/suite/results.h"

fv_status fv_eval_print(FILE *f, const fv_results *r);

#endif
