/* `fovea plan`: results of policies on a network of some shape: visual tokens by layer, FLOPs of
 * the prefill, bytes of the KV cache, and how many layers the beginning of an earlier prompt saves. They are counted from the plans; no weights are read and
 * nothing runs. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "cli/client/table.h"
#include "common/options.h"
#include "model/synth/synth.h"
#include "policy/plan/flops.h"
#include "policy/plan/prefix.h"

/* A line of the result. */
typedef struct planned {
    const char *policy;
    double flops;
    fv_plan_bytes kv;
    int32_t first, last; /* visual tokens of the first and last layer */
    int32_t prefix;      /* first layers that a prompt's beginning need not run again */
    bool exact_counts;
    /* Why it cannot run on such a network, from the thread's last error; NULL: it can. */
    const char *refusal;
} planned;

typedef struct answer {
    fv_plan_shape shape;
    fv_flops_net net;
    fv_flops_rule rule;
    int64_t ffn[FV_MAX_LAYERS]; /* of net.ffn_of */
    fv_flops_heads heads[FV_MAX_LAYERS];
    planned exact;
    uint64_t table_bytes; /* of per-layer embeddings in bf16 */
    fv_table table;
    json_t *rows;
} answer;

/* Directions that the network is assumed to have. */
static void read_latent(const fv_options *o, fv_plan_shape *s) {
    int32_t layers = (int32_t)fv_options_int(o, "latent-layers");
    s->latent_rank = (int32_t)fv_options_int(o, "directions");
    if (s->latent_rank > 0) s->latent_layers = layers > 0 ? layers : s->n_layer;
}

/* Multiply-adds of a token in the recurrent layers of one layer: projections, the convolution, the delta
 * rule's three passes over the state, and the FFN. */
static double recurrent_of(const fv_text_config *c) {
    const fv_recurrent_config *r = &c->recurrent;
    double d = c->d_model, wide = fv_recurrent_width(r), values = r->n_value * r->d_value;
    double projections = d * (wide + 2 * values + 2 * r->n_value);
    return r->n * (projections + r->taps * wide + 3 * values * r->d_key +
                   3 * d * (double)fv_text_ffn_width(c, 0));
}

/* Columns of the projections of a layer. */
static fv_flops_heads heads_of(const fv_text_config *c, int32_t l) {
    const int32_t d = c->slide_d && c->slides[l] ? c->slide_d : c->d_head;
    const int32_t n_kv = !c->slide_d ? c->n_kv : c->slides[l] ? c->slide_kv : c->full_kv;
    return (fv_flops_heads){c->n_head * d, n_kv * d,
                            c->value_is_key && !c->slides[l] ? 0 : n_kv * d};
}

/* Width of a layer's FFN and of its own embeddings, which have three matrices too. */
static int64_t ffn_of(const fv_text_config *c, int32_t l) {
    return fv_text_ffn_width(c, l) + c->d_input;
}

/* Multiply-adds of a token in the layers that share keys and values, without attention. */
static double sharers_of(const fv_text_config *c) {
    double sum = 0;
    for (int32_t l = c->n_layer; l < fv_text_layers(c); l++)
        sum += (double)c->d_model * (2.0 * heads_of(c, l).q + 3.0 * (double)ffn_of(c, l));
    return sum;
}

static fv_status read_net(const fv_options *o, answer *a) {
    fv_model_config c;
    fv_synth_options s = {.config_file = fv_options_string(o, "config"), .dtype = FV_BF16};
    if (!s.config_file) s.shape = fv_options_string(o, "shape");
    FV_TRY(fv_synth_config(&s, &c));
    a->shape = (fv_plan_shape){
        .n_layer = c.text.n_layer,
        .n_kv = c.text.n_kv,
        .d_head = c.text.d_head,
        .bytes_value = 2,
        .n_visual = (int32_t)fv_options_int(o, "visual"),
        .n_text = (int32_t)(fv_options_int(o, "text") + fv_options_int(o, "answer")),
        .n_answer = (int32_t)fv_options_int(o, "answer"),
        .uncondensable = fv_layout_uncondensable(&c.layout),
        .state_bytes = (uint64_t)c.text.n_layer * fv_recurrent_state_bytes(&c.text.recurrent)};
    read_latent(o, &a->shape);
    for (int32_t l = 0; l < c.text.n_layer; l++) {
        a->ffn[l] = ffn_of(&c.text, l);
        a->heads[l] = heads_of(&c.text, l);
    }
    a->net = (fv_flops_net){.d_model = c.text.d_model,
                            .d_ffn = c.text.d_ffn,
                            .ffn_of = a->ffn,
                            .heads_of = a->heads,
                            .n_head = c.text.n_head,
                            .vocab = c.text.vocab,
                            .gated = c.text.gated_attention,
                            .n_sharer = c.text.n_sharer,
                            .sharers = sharers_of(&c.text),
                            .recurrent = recurrent_of(&c.text)};
    a->table_bytes =
        (uint64_t)c.text.vocab * (uint64_t)fv_text_layers(&c.text) * (uint64_t)c.text.d_input * 2;
    return FV_OK;
}

static fv_status read_rule(const fv_options *o, answer *a) {
    const char *name = fv_options_string(o, "flops");
    for (int r = 0; r < FV_N_FLOPS_RULE; r++) {
        if (strcmp(name, fv_flops_rule_name((fv_flops_rule)r)) != 0) continue;
        a->rule = (fv_flops_rule)r;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "--flops is '%s'; executed, square and visual exist", name);
}

/* A policy that this network cannot run becomes a line with the reason; invalid text is an
 * error. */
static fv_status plan_one(const answer *a, const char *text, planned *out) {
    static fv_plan plan; /* large */
    fv_policy policy;
    FV_TRY(fv_policy_parse(text, &policy));
    *out = (planned){.policy = *text ? text : "exact"};
    if (fv_plan_make(&policy, &a->shape, &plan) != FV_OK) {
        out->refusal = fv_last_error();
        return FV_OK;
    }
    out->flops = fv_plan_flops(&plan, &a->net, a->rule);
    out->kv = fv_plan_count(&plan);
    out->first = plan.visual[0];
    out->last = plan.visual[plan.shape.n_layer - 1];
    out->prefix = fv_plan_prefix_layers(&plan);
    out->exact_counts = plan.exact_counts;
    return FV_OK;
}

static void print_row(answer *a, const planned *p) {
    const char *bound = p->exact_counts ? "" : "<= ";
    fv_table_cell(&a->table, "%s", p->policy);
    if (p->refusal) {
        fprintf(stderr, "fovea plan: %s\n", p->refusal);
        for (int32_t i = 1; i < a->table.n_col; i++) fv_table_cell(&a->table, "-");
        return;
    }
    fv_table_cell(&a->table, "%s%.3f", bound, p->flops * 1e-12);
    fv_table_cell(&a->table, "%s%.1f", bound, 100 * p->flops / a->exact.flops);
    fv_table_cell(&a->table, "%s%.2f", bound, (double)p->kv.held / (1 << 20));
    fv_table_cell(&a->table, "%s%.1f", bound, 100 * (double)p->kv.held / (double)p->kv.raw);
    fv_table_cell(&a->table, "%s%d", bound, p->first);
    fv_table_cell(&a->table, "%s%d", bound, p->last);
    fv_table_cell(&a->table, "%d", p->prefix);
}

static json_t *row_json(const planned *p) {
    if (p->refusal) return json_pack("{s:s, s:s}", "policy", p->policy, "refused", p->refusal);
    return json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:b}", "policy", p->policy,
                     "flops", p->flops, "bytes_raw", (json_int_t)p->kv.raw, "bytes_held",
                     (json_int_t)p->kv.held, "bytes_unsent", (json_int_t)p->kv.unsent,
                     "bytes_state", (json_int_t)p->kv.state, "visual_first", p->first,
                     "visual_last", p->last, "layers_kept", p->prefix, "exact_counts",
                     p->exact_counts);
}

static fv_status add(answer *a, const char *text) {
    planned p;
    FV_TRY(plan_one(a, text, &p));
    print_row(a, &p);
    return json_array_append_new(a->rows, row_json(&p))
               ? FV_FAIL(FV_ENOMEM, "out of memory for the list of plans")
               : FV_OK;
}

static fv_status add_all(answer *a, const fv_options *o) {
    static const char *const head[] = {"policy",       "TFLOP",      "%",
                                       "KV MiB",       "%",          "visual, first layer",
                                       "visual, last", "layers kept"};
    const char *const *given;
    int32_t n_given = fv_options_list(o, "policy", &given), n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) fv_table_cell(&a->table, "%s", head[i]);
    FV_TRY(plan_one(a, "", &a->exact));
    for (int32_t i = 0; i < n_given; i++) FV_TRY(add(a, given[i]));
    for (int32_t i = 0; i < n && !n_given; i++) FV_TRY(add(a, preset[i].name));
    return FV_OK;
}

static fv_status show(answer *a, const fv_options *o) {
    FV_TRY(add_all(a, o));
    if (fv_options_flag(o, "json"))
        fv_output_json(a->rows);
    else
        FV_TRY(fv_table_print(stdout, &a->table));
    if (a->exact.kv.state && !fv_options_flag(o, "json"))
        printf("recurrent state: %.2f MiB a sequence in addition, the same for every policy\n",
               (double)a->exact.kv.state / (1 << 20));
    if (a->table_bytes && !fv_options_flag(o, "json"))
        printf("per-layer embeddings: a table of %.2f GiB, which stays a mapping of the file\n",
               (double)a->table_bytes / (1 << 30));
    return fv_output_flush();
}

static fv_status plan(const fv_options *o) {
    const char *const *rest;
    answer a = {.rows = json_array()};
    if (fv_options_positional(o, &rest) > 0)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option; see fovea plan --help", rest[0]);
    fv_status st = read_net(o, &a);
    if (st == FV_OK) st = read_rule(o, &a);
    if (st == FV_OK) {
        fv_table_init(&a.table, 8);
        st = show(&a, o);
        fv_table_fini(&a.table);
    }
    json_decref(a.rows);
    return st;
}

static int run(const fv_options *o) { return fv_cli_end(&fv_cli_plan, plan(o)); }

const fv_command fv_cli_plan = {.program = FV_PROGRAM_PLAN, .run = run};
