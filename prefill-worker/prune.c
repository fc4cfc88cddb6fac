/* The table of prune methods, made from methods.def: a row without its file does not link. */
#include "prefill-worker/prune.h"

#include <assert.h>
#include <string.h>

#define CONDENSE(name)
#define PRUNE(name) extern const fv_prune_method fv_prune_##name;
#define LAZY(name)
#define SELECT(name)
#define PACK(name)
#define EXPAND(name)
#define EVICT(name)
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"

static const fv_prune_method *const methods[] = {
#undef PRUNE
#define PRUNE(name) &fv_prune_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

const fv_prune_method *fv_prune_find(const char *name) {
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i]->name, name) == 0) return methods[i];
    assert(!"a prune method without its file");
    return NULL;
}
