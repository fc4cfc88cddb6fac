/* Clusters rows by their matrix of distances; everything is in double. */
#include "prefill-worker/prune/clusters.h"

#include <assert.h>
#include <math.h>

#include "common/top.h"

typedef struct clusters {
    int32_t n, k;
    double *apart;   /* [n, n] */
    double most;     /* the largest distance */
    double *density; /* [n] */
    float *score;    /* [n] */
    int32_t *order;  /* [n] */
} clusters;

static double at(const clusters *c, int32_t i, int32_t j) {
    return c->apart[(ptrdiff_t)i * c->n + j];
}

static void measure(const float *x, int32_t d, clusters *c) {
    for (int32_t i = 0; i < c->n; i++)
        for (int32_t j = 0; j < c->n; j++) {
            double sum = 0;
            for (int32_t e = 0; e < d; e++) {
                double by = (double)x[(ptrdiff_t)i * d + e] - (double)x[(ptrdiff_t)j * d + e];
                sum += by * by;
            }
            c->apart[(ptrdiff_t)i * c->n + j] = sqrt(sum / d);
            c->most = fmax(c->most, at(c, i, j));
        }
}

static fv_status find_density(clusters *c, int32_t i) {
    double sum = 0;
    for (int32_t j = 0; j < c->n; j++) c->score[j] = -(float)at(c, i, j);
    FV_TRY(fv_top_sort(c->score, c->n, c->order));
    for (int32_t j = 0; j < c->k; j++) sum += at(c, i, c->order[j]) * at(c, i, c->order[j]);
    c->density[i] = exp(-sum / c->k);
    return FV_OK;
}

/* Distance to the nearest token of higher density; ties by index. */
static double delta(const clusters *c, int32_t i) {
    double least = c->most;
    for (int32_t j = 0; j < c->n; j++) {
        double more = c->density[j] - c->density[i];
        if ((more > 0 || (more == 0 && j < i)) && at(c, i, j) < least) least = at(c, i, j);
    }
    return least;
}

static void join(const clusters *c, const int32_t *centre, int32_t *cluster) {
    for (int32_t i = 0; i < c->n; i++) {
        cluster[i] = 0;
        for (int32_t g = 1; g < c->k; g++)
            if (at(c, i, centre[g]) < at(c, i, centre[cluster[i]])) cluster[i] = g;
    }
    for (int32_t g = 0; g < c->k; g++) cluster[centre[g]] = g;
}

fv_status fv_clusters(const float *x, int32_t n, int32_t d, int32_t k, fv_arena *arena,
                      int32_t *cluster, int32_t *centre) {
    clusters c = {.n = n, .k = k};
    assert(k >= 1 && k <= n);
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)n, c.apart));
    FV_TRY(FV_ARENA_NEW(arena, n, c.density));
    FV_TRY(FV_ARENA_NEW(arena, n, c.score));
    FV_TRY(FV_ARENA_NEW(arena, n, c.order));
    measure(x, d, &c);
    for (int32_t i = 0; i < n; i++) FV_TRY(find_density(&c, i));
    for (int32_t i = 0; i < n; i++) c.score[i] = (float)(delta(&c, i) * c.density[i]);
    FV_TRY(fv_top_sort(c.score, n, c.order));
    for (int32_t g = 0; g < k; g++) centre[g] = c.order[g];
    join(&c, centre, cluster);
    return FV_OK;
}
