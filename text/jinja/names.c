/* Interns the names of a program: equal names have equal pointers, so that a look-up compares no
 * letters. Sorts rather than hashes, so that chosen names cannot make it slow. */
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

static int compare(const void *a, const void *b) {
    const fv_jj_token *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

fv_status fv_jj_names_make(fv_jj_token *tokens, size_t n, fv_arena *arena, fv_jj_names *out) {
    fv_jj_names names = {0};
    fv_jj_token **named = malloc((n + 1) * sizeof *named);
    size_t n_named = 0;
    if (!named) return FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    for (size_t i = 0; i < n; i++)
        if (tokens[i].name) named[n_named++] = &tokens[i];
    qsort(named, n_named, sizeof *named, compare);
    fv_status st = FV_ARENA_NEW(arena, n_named, names.name);
    for (size_t i = 0; st == FV_OK && i < n_named; i++) {
        bool same = names.n && strcmp(names.name[names.n - 1], named[i]->name) == 0;
        if (!same) names.name[names.n++] = named[i]->name;
        named[i]->name = names.name[names.n - 1];
    }
    free(named);
    *out = names;
    return st;
}

static int compare_name(const void *name, const void *with) {
    return strcmp(name, *(const char *const *)with);
}

const char *fv_jj_names_find(const fv_jj_names *names, const char *name) {
    const char *const *found =
        names->n ? bsearch(name, names->name, names->n, sizeof *names->name, compare_name) : NULL;
    return found ? *found : NULL;
}
