/* Keeps a table of buckets for all answers, and one for each of the tenants seen last. */
#include "decode-worker/schedule/lengths.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 96,  /* up to more than 2^24 tokens */
    TENANTS = 64,  /* tenants that have a table of their own */
    NAME_MAX = 64, /* bytes of a name that tell it from others */
    PRIOR = 256,   /* mean length, until measured */
};
static const double QUANTILE = 0.75; /* of the lengths; bench/growth measures what they are worth */
static const double W = 4;
static const double KEEP = 1 - 1.0 / 256; /* an answer's weight, when the next one comes */

typedef struct table {
    double tokens[BUCKETS], ends[BUCKETS];
} table;

typedef struct tenant {
    char name[NAME_MAX + 1]; /* "": unused */
    uint64_t used;           /* when it was last counted, in answers */
    table table;
} tenant;

struct fv_lengths {
    int32_t edge[BUCKETS + 1]; /* bucket b has the lengths [edge[b], edge[b + 1]) */
    uint64_t n_added;
    table all;
    tenant tenant[TENANTS];
};

fv_status fv_lengths_open(fv_lengths **out) {
    fv_lengths *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for the lengths of answers");
    for (int b = 1; b < BUCKETS; b++) {
        int32_t next = (int32_t)ceil(l->edge[b - 1] * 1.1892); /* the fourth root of 2 */
        l->edge[b] = next > l->edge[b - 1] ? next : l->edge[b - 1] + 1;
    }
    l->edge[BUCKETS] = INT32_MAX;
    *out = l;
    return FV_OK;
}

void fv_lengths_close(fv_lengths *l) { free(l); }

/* ---- counting ----------------------------------------------------------------------------- */

static void add(const fv_lengths *l, table *t, int32_t from, int32_t to, bool ended) {
    for (int b = 0; b < BUCKETS; b++) {
        int32_t first = from > l->edge[b] ? from : l->edge[b];
        int32_t end = to < l->edge[b + 1] ? to : l->edge[b + 1];
        t->tokens[b] *= KEEP;
        t->ends[b] *= KEEP;
        if (first >= end) continue;
        t->tokens[b] += end - first;
        t->ends[b] += ended && end == to;
    }
}

static const tenant *find(const fv_lengths *l, const char *name) {
    for (int i = 0; *name && i < TENANTS; i++)
        if (strncmp(l->tenant[i].name, name, NAME_MAX) == 0) return &l->tenant[i];
    return NULL;
}

/* Returns the tenant's place, or that of the one which was counted the longest ago, emptied. */
static tenant *place_of(fv_lengths *l, const char *name) {
    tenant *t = (tenant *)(uintptr_t)find(l, name);
    if (t) return t;
    t = &l->tenant[0];
    for (int i = 1; i < TENANTS; i++)
        if (l->tenant[i].used < t->used) t = &l->tenant[i];
    *t = (tenant){0};
    strncpy(t->name, name, NAME_MAX);
    return t;
}

void fv_lengths_add(fv_lengths *l, const char *owner, int32_t from, int32_t to, bool ended) {
    if (from >= to) return;
    l->n_added++;
    add(l, &l->all, from, to, ended);
    if (!*owner) return;
    tenant *t = place_of(l, owner);
    t->used = l->n_added;
    add(l, &t->table, from, to, ended);
}

/* ---- expecting ---------------------------------------------------------------------------- */

/* The probability that a token in bucket b is the last. */
static double hazard(const fv_lengths *l, const table *own, int b) {
    double w = W * (l->edge[b + 1] - (double)l->edge[b]);
    double h = (l->all.ends[b] + w / PRIOR) / (l->all.tokens[b] + w);
    if (own) h = (own->ends[b] + w * h) / (own->tokens[b] + w);
    return fmin(h, 0.999);
}

int32_t fv_lengths_expect(const fv_lengths *l, const char *owner, int32_t have) {
    const tenant *t = find(l, owner);
    double left = log(1 - QUANTILE); /* of the logarithm of the answer's survival */
    int32_t at = have;
    for (int b = 0; b < BUCKETS; b++) {
        if (at >= l->edge[b + 1]) continue;
        double each = log1p(-hazard(l, t ? &t->table : NULL, b));
        double n = ceil(left / each);
        if (n <= l->edge[b + 1] - (double)at) {
            at += (int32_t)n;
            break;
        }
        left -= each * (l->edge[b + 1] - (double)at);
        at = l->edge[b + 1];
    }
    return at > have ? at - have : 1;
}
