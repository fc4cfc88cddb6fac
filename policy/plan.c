/* Compiles a policy into a plan: `exact`, and what each method adds to it, stage by stage. The
 * methods' parts stand in policy/plan/. Pure function, any thread. */
#include "policy/plan.h"

#include <assert.h>
#include <string.h>

#include "policy/packed_shape.h"
#include "policy/plan/contribute.h"

/* In the order of fv_policy_methods: both come from methods.def. */
static fv_status (*const contributions[])(fv_plan *) = {
#define FV_METHOD(stage, name, source, summary) FV_PLAN_##stage(name),
#define FV_METHOD_AS(stage, name, source, summary, plan) FV_METHOD(stage, plan, source, summary)
#include "policy/methods.def"
};

fv_status fv_plan_make(const fv_policy *policy, const fv_plan_shape *shape, fv_plan *out) {
    assert(shape->n_layer > 0 && shape->n_layer <= FV_PLAN_MAX_LAYERS);
    fv_plan plan;
    int32_t n;
    memset(&plan, 0, sizeof plan); /* gaps too: what is equal is so byte by byte */
    plan.shape = *shape;
    plan.policy = *policy;
    plan.exact_counts = true;
    plan.keeps_packed = 1;
    const fv_method_info *first = fv_policy_methods(&n);
    for (int32_t l = 0; l < shape->n_layer; l++) {
        plan.visual[l] = shape->n_visual;
        plan.rank_from[l] = -1;
        plan.leader[l] = l;
    }
    for (int s = 0; s < FV_N_STAGE; s++)
        if (policy->stage[s].method) FV_TRY(contributions[policy->stage[s].method - first](&plan));
    for (int s = 0; s < FV_N_STAGE; s++)
        if (plan.note[s][0]) fv_plan_forget_mapped(&plan, (fv_stage)s);
    *out = plan;
    return FV_OK;
}

/* Keys of its own among the `rows` of a head of a layer that borrows. */
static int32_t own_keys(const fv_plan *plan, int32_t rows) {
    if (plan->lent_text) return 0;
    int32_t text = plan->shape.n_text, most = text + (text < plan->twice ? text : plan->twice);
    return rows < most ? rows : most;
}

/* Bytes of a layer: of all its rows, and of its image rows. */
typedef struct layer_bytes {
    uint64_t held, visual;
} layer_bytes;

/* Of one key, or one value. */
static uint64_t part_bytes(const fv_plan *plan) {
    return (uint64_t)plan->shape.d_head * (uint64_t)plan->shape.bytes_value;
}

/* Rows that a head keeps of those that ran. */
static int32_t rows_kept(const fv_plan *plan, int32_t l, int32_t head, int32_t ran) {
    int32_t kept = plan->select ? plan->select(plan, l, head) : ran;
    return kept < ran ? kept : ran;
}

/* leads: the keys are its own. */
static layer_bytes raw_layer(const fv_plan *plan, int32_t l, bool leads) {
    uint64_t held = 0, visual = 0;
    for (int32_t g = 0; g < plan->shape.n_kv; g++) {
        int32_t n = plan->forget[l] ? 0 : plan->visual[l];
        int32_t kept = rows_kept(plan, l, g, n + plan->shape.n_text);
        int32_t most = n + (n < plan->twice ? n : plan->twice);
        int32_t image = kept < most ? kept : most;
        held += (uint64_t)kept + (uint64_t)(leads ? kept : own_keys(plan, kept));
        visual += leads ? 2 * (uint64_t)image : (uint64_t)image;
    }
    return (layer_bytes){part_bytes(plan) * held, part_bytes(plan) * visual};
}

/* Of a layer's `text` text rows, as pages and as a block of factors: an answer that is taken up
 * again is raw, and `last` rows more. A number that is only a bound may come to fewer rows, which
 * may be too few to be packed. */
static uint64_t text_bytes(const fv_plan *plan, int32_t text, int32_t last, bool own) {
    const fv_plan_shape *s = &plan->shape;
    fv_dtype dtype = s->bytes_value == 4 ? FV_F32 : FV_BF16;
    uint64_t row = part_bytes(plan) * (uint64_t)s->n_kv;
    uint64_t raw = row * (uint64_t)(text + (own ? text : own_keys(plan, text)));
    int32_t n = text - s->n_answer - last;
    if (n <= 0 || !fv_text_keys_pack(&plan->text_keys, n, s->n_kv * s->d_head)) return raw;
    uint64_t bytes = fv_text_keys_bytes(&plan->text_keys, n, s->n_kv, s->d_head, dtype,
                                        own || !plan->lent_text) +
                     row * (uint64_t)(text - n) * (own || !plan->lent_text ? 2 : 1);
    return s->text_bound && raw > bytes ? raw : bytes;
}

/* Where the select stage lets rows go, the last row may be among them. */
static uint64_t most_text(const fv_plan *plan, int32_t text, bool own) {
    uint64_t most = 0;
    for (int32_t last = plan->select ? 0 : plan->first_packed; last <= plan->first_packed; last++) {
        uint64_t bytes = text_bytes(plan, text, last, own);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* How many of the rows are image rows may depend on data, and too few are not packed: the most that
 * any number of them comes to. Heads hold the same rows. */
static layer_bytes packed_layer(const fv_plan *plan, int32_t l, bool leads) {
    int32_t n = plan->forget[l] ? 0 : plan->visual[l], n_text = plan->shape.n_text;
    int32_t kept = rows_kept(plan, l, 0, n + n_text), most = kept < n ? kept : n;
    layer_bytes b = {0, 0};
    for (int32_t image = plan->exact_counts && !plan->select ? n : 0; image <= most; image++) {
        int32_t text = kept - image < n_text ? kept - image : n_text;
        uint64_t bytes = fv_plan_packed_bytes(plan, l, image, leads);
        uint64_t held = bytes + most_text(plan, text, leads);
        if (bytes > b.visual) b.visual = bytes;
        if (held > b.held) b.held = held;
    }
    return b;
}

static layer_bytes count_layer(const fv_plan *plan, int32_t l, bool leads) {
    bool packs = plan->pack[l].rank[FV_PACKED_V] > 0 || plan->text_keys.rank > 0;
    return packs ? packed_layer(plan, l, leads) : raw_layer(plan, l, leads);
}

static void most_of(uint64_t *most, uint64_t with, uint64_t without) {
    if (with > without && with - without > *most) *most = with - without;
}

fv_plan_bytes fv_plan_count(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    int32_t encoded = s->n_encoded ? s->n_encoded : s->n_visual; /* what `exact` has of images */
    uint64_t rows = (uint64_t)s->n_layer * (uint64_t)s->n_kv * (uint64_t)(encoded + s->n_text);
    layer_bytes sum = {0, 0}, more = {0, 0}; /* more: what a lazy layer that comes to lead adds */
    for (int32_t l = 0; l < s->n_layer; l++) {
        layer_bytes b = count_layer(plan, l, plan->leader[l] == l);
        layer_bytes leads = plan->splits ? count_layer(plan, l, true) : b;
        sum.held += b.held;
        sum.visual += b.visual;
        most_of(&more.held, leads.held, b.held);
        most_of(&more.visual, leads.visual, b.visual);
    }
    uint64_t n = (uint64_t)plan->splits;
    return (fv_plan_bytes){2 * part_bytes(plan) * rows, sum.held + n * more.held,
                           sum.visual + n * more.visual};
}

int32_t fv_plan_lent_text(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) n += plan->lent_text && plan->leader[l] != l;
    return n > plan->splits ? n - plan->splits : 0;
}
