#ifndef FOVEA_POLICY_STAGE_ROWS_H
#define FOVEA_POLICY_STAGE_ROWS_H

/* For a worker's table of one stage's methods: declares fv_prune_fastv, of type fv_prune_method,
 * and so on; a row without its file does not link. FV_METHOD expands to the stage's macro; all of
 * these are empty. A table redefines its own stage's macro and includes methods.def:
 *
 *     #include "policy/stage_rows.h"
 *
 *     static const fv_prune_method *const methods[] = {
 *     #undef PRUNE
 *     #define PRUNE(name) [FV_METHOD_PRUNE_##name] = &fv_prune_##name,
 *     #define FV_METHOD(stage, name, source, summary) stage(name)
 *     #include "policy/methods.def"
 *     }; */
#include "policy/params.h"

#define FV_METHOD(stage, name, source, summary)                                                    \
    extern const struct FV_NAME(fv_, stage, method) FV_NAME(fv_, stage, name);
#include "policy/methods.def"

#define CONDENSE(name)
#define PRUNE(name)
#define LAZY(name)
#define SELECT(name)
#define PACK(name)
#define EXPAND(name)
#define EVICT(name)

#endif
