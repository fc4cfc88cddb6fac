/* Attention on quantized and depth-merged rows, as kernels/ops.h words it. */
#include "kernels/cpu/plain/packed.h"
#include "packed/read.h"

typedef struct quantized {
    packed_query x;  /* must be first; its u [D] holds a key */
    codes_view k, v; /* codes or directions */
} quantized;

static void open_views(packed_query *x) {
    quantized *of = (quantized *)x;
    of->k = codes_view_of(x->seq->k);
    of->v = codes_view_of(x->seq->v);
    x->n_z = (size_t)x->a->d_head;
}

/* Score of row j: the query times the key, rotated by its anchor. */
static float score(packed_query *x, int32_t j) {
    codes_row(&((const quantized *)x)->k, (size_t)x->g, (size_t)j, x->u);
    return packed_score_of_key(x, j, x->u);
}

static size_t value(packed_query *x, int32_t j, float *to) {
    codes_row(&((const quantized *)x)->v, (size_t)x->g, (size_t)j, to);
    return x->n_z;
}

static void output(const packed_query *x, size_t n, float *o) { memcpy(o, x->z, n * sizeof *o); }

/* Codes have no rank: scratch depends on the head dim only. */
fv_cpu_plan fv_plain_attn_quantized_plan(const void *args) { return packed_plan(args); }

void fv_plain_attn_quantized(const void *args, void *scratch, int64_t begin, int64_t end) {
    static const packed_form form = {open_views, NULL, score, value, output};
    quantized of = {.x = {.form = &form}};
    packed_attend_rows(&of.x, args, scratch, begin, end);
}
