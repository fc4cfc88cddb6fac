#ifndef FOVEA_POLICY_STAGE_ROWS_H
#define FOVEA_POLICY_STAGE_ROWS_H

/* For a worker's table of one stage's methods: FV_METHOD expands to the stage's macro, and all of
 * those are empty. A table redefines its own stage's and includes methods.def:
 *
 *     #include "policy/stage_rows.h"
 *     #undef PRUNE
 *     #define PRUNE(name) extern const fv_prune_method fv_prune_##name;
 *     #define FV_METHOD(stage, name, source, summary) stage(name)
 *     #include "policy/methods.def"
 */
#define CONDENSE(name)
#define PRUNE(name)
#define LAZY(name)
#define SELECT(name)
#define PACK(name)
#define EXPAND(name)
#define EVICT(name)

#endif
