/* prune=grid: a share of the visual rows from one layer on, as prune=random has it. */
#include "policy/plan/contribute.h"

fv_status fv_plan_prune_grid(fv_plan *plan) { return fv_plan_prune_random(plan); }
