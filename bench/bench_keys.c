/* KEYS AND ROTATION: how much of the keys each block length and rank keep, and at what cost.
 *
 * Keys are factored as Rot(p_j - a) k_j, where a is the start of their block (packed/lowrank.h). K0
 * has blocks of one row, so keys before rotation; K1 has one block, so keys as cached; K2 is in
 * between. Longer blocks need fewer latent queries but leave more rotation in the matrix.
 *
 *   made up   576 keys with the dimensions of a 7B network (packed_case.h): share of the energy
 *             kept; error of scores q k_j for isotropic queries, relative to the keys' distance
 *             from their mean; bytes of the packed keys; microseconds of one query's attention,
 *             with values of rank 64, for 576 and for 4096 tokens
 *   nano      keys of checkpoints/nano on images of the evaluation: energy, averaged over layers
 *             and items; KL divergence (nats) of the answer's first token from that with unpacked
 *             keys and the same values; bytes of all layers' keys
 *
 * A marked line is on the table's Pareto front: no other line keeps more with at most the same
 * bytes and time. K3, one block per image axis, needs multi-section RoPE and is not measured.
 *
 *     bench_keys --json bench/results/keys.json          in the project's folder */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/packed_case.h"
#include "cli/eval/session.h"
#include "factor/factor.h"

enum { ROWS = 576, LONG = 4096, FAST = 4, ITEMS = 8, SEED = 3 };

static const char CHECKPOINT[] = "checkpoints/nano";

static const int steps[] = {1, 4, 8, 16, 32, 64, 128, 256, 0};
static const int ranks[] = {16, 32, 48, 64, 96, 128};
enum { N_STEP = sizeof steps / sizeof *steps, N_RANK = sizeof ranks / sizeof *ranks };

/* Results for one block length and rank. */
typedef struct line {
    int step, rank;
    double energy, score, bytes, us, us_long, kl;
} line;

typedef struct table {
    const char *name;
    line line[N_STEP * N_RANK];
    int n;
    double raw_us, raw_us_long; /* one query's attention to ROWS and LONG raw rows */
} table;

/* Returns whether x is no worse than y in every measure and better in one. */
static bool beats(const line *x, const line *y) {
    bool as_good = x->energy >= y->energy && x->bytes <= y->bytes && x->us <= y->us &&
                   x->us_long <= y->us_long;
    return as_good && (x->energy > y->energy || x->bytes < y->bytes || x->us < y->us ||
                       x->us_long < y->us_long);
}

static bool on_front(const table *t, const line *x) {
    for (int i = 0; i < t->n; i++)
        if (beats(&t->line[i], x)) return false;
    return true;
}

/* Returns the shortest block, which keeps most, at which attention at CASE_RANK is FAST times as
 * fast as on raw rows for both lengths; -1: none. */
static int shortest_fast(const table *t) {
    for (int i = 0; i < t->n; i++) {
        const line *x = &t->line[i];
        if (x->rank == CASE_RANK && t->raw_us > FAST * x->us && t->raw_us_long > FAST * x->us_long)
            return x->step;
    }
    return -1;
}

/* ---- made-up keys ---------------------------------------------------------------------- */

/* ||M||^2 over ||M - mean of its rows||^2. */
static double spread(const fv_tensor *m) {
    double all = 0, apart = 0;
    for (int32_t d = 0; d < m->cols; d++) {
        double sum = 0, squares = 0;
        for (int32_t j = 0; j < m->rows; j++) {
            double x = (double)((const float *)m->data)[(size_t)j * (size_t)m->ld + (size_t)d];
            sum += x;
            squares += x * x;
        }
        all += squares;
        apart += squares - sum * sum / m->rows;
    }
    return all / apart;
}

/* Returns the median time of one row's attention over the rounds, in microseconds. */
static double attention_us(bench *b, int n, int step, int rank) {
    double us[BENCH_MAX_ROUND];
    int calls = step == 1 ? 1 : n < 1000 ? 8 : 2;
    for (int i = 0; i < b->n_round; i++)
        us[i] = 1e6 * case_packed_s(b, (packed_case){n, step, rank, CASE_RANK, 16}, calls);
    return bench_median(us, b->n_round);
}

static double raw_us(bench *b, int n) {
    double us[BENCH_MAX_ROUND];
    for (int i = 0; i < b->n_round; i++) us[i] = 1e6 * case_raw_s(b, n, n < 1000 ? 8 : 2);
    return bench_median(us, b->n_round);
}

static fv_packed_shape keys_shape(int32_t n, int32_t rank, int32_t n_kv, int32_t d_head) {
    return (fv_packed_shape){.n = n,
                             .lowrank.rank = rank,
                             .lowrank.rank2 = rank,
                             .n_kv = n_kv,
                             .d_head = d_head,
                             .dtype = FV_BF16,
                             .kind = FV_PACKED_K,
                             .lowrank.bits = 16};
}

/* Measures one block length. The factors of the largest rank contain those of all smaller ranks. */
static void made_up_step(bench *b, fv_tensor keys, double apart, int step, table *t) {
    fv_tensor m = case_rotated(b, keys, step);
    fv_arena arena = {0};
    fv_factor_goal goal = {.rank = ranks[N_RANK - 1], .seed = 1};
    fv_factor f;
    bench_must(fv_factorise(&b->be, &arena, &m, &goal, &f));
    double kept = 0, all = 0;
    for (int32_t i = 0; i < ROWS * f.rank; i++) all += (double)f.u[i] * (double)f.u[i];
    all /= 1 - f.error * f.error;
    for (int i = 0, r = 0; i < N_RANK; i++) {
        for (; r < ranks[i] && r < f.rank; r++)
            for (int32_t j = 0; j < ROWS; j++) {
                double u = (double)f.u[j * f.rank + r];
                kept += u * u;
            }
        fv_packed_shape s = keys_shape(ROWS, ranks[i], CASE_HEADS, CASE_D);
        t->line[t->n++] = (line){.step = step,
                                 .rank = ranks[i],
                                 .energy = kept / all,
                                 .score = sqrt((1 - kept / all) * apart),
                                 .bytes = (double)fv_packed_bytes(&s),
                                 .us = attention_us(b, ROWS, step, ranks[i]),
                                 .us_long = attention_us(b, LONG, step, ranks[i])};
    }
    fv_arena_fini(&arena);
    free(m.data);
}

static void made_up(bench *b, table *t) {
    fv_tensor keys = case_keys(b, ROWS), cached = case_rotated(b, keys, 0);
    double apart = spread(&cached);
    t->raw_us = raw_us(b, ROWS);
    t->raw_us_long = raw_us(b, LONG);
    for (int i = 0; i < N_STEP; i++) made_up_step(b, keys, apart, steps[i], t);
    free(cached.data);
    free(keys.data);
}

/* ---- keys of a checkpoint --------------------------------------------------------------- */

typedef struct real {
    fv_local *local;
    fv_suite suite;
    int32_t side;
    float *logits; /* owned; [n_vocab] of the running request */
} real;

static fv_status on_logits(void *user, const float *logits, int32_t n_vocab) {
    memcpy(((real *)user)->logits, logits, (size_t)n_vocab * sizeof *logits);
    return FV_OK;
}

/* Computes the logits of an item's first answer token under a policy; fills the packing report. */
static void real_ask(real *r, int32_t item, const char *policy, fv_report *report) {
    fv_eval_session session;
    bench_must(fv_eval_session_take(&r->suite, r->side, 0, item, &session));
    fv_ask ask = {.n_image = session.n_image,
                  .images = session.image,
                  .n_turn = session.n_chat,
                  .turns = session.chat,
                  .sampling = fv_sampling_default(),
                  .max_tokens = 1};
    bench_must(fv_policy_parse(policy, &ask.policy));
    fv_ask_hooks hooks = {.user = r, .logits = on_logits};
    bench_must(fv_local_ask(r->local, &ask, &hooks, report));
    fv_eval_session_leave(&session);
}

/* KL(p || q) of softmaxes, in nats. */
static double divergence(const float *p, const float *q, int n) {
    double top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, kl = 0;
    for (int i = 0; i < n; i++) {
        top[0] = fmax(top[0], (double)p[i]);
        top[1] = fmax(top[1], (double)q[i]);
    }
    for (int i = 0; i < n; i++) {
        sum[0] += exp((double)p[i] - top[0]);
        sum[1] += exp((double)q[i] - top[1]);
    }
    for (int i = 0; i < n; i++) {
        double a = (double)p[i] - top[0] - log(sum[0]), b = (double)q[i] - top[1] - log(sum[1]);
        kl += exp(a) * (a - b);
    }
    return kl;
}

#define VALUES "pack=svd,gain=0,first=packed,rank_v=64"

/* Adds one item's results to a line; `whole`: logits with unpacked keys. */
static void real_line(real *r, int32_t item, const float *whole, line *x) {
    const fv_text_config *text = &fv_local_config(r->local)->text;
    char policy[128];
    fv_report report = {0};
    snprintf(policy, sizeof policy, VALUES ",rank_k=%d,block=%d", x->rank, x->step);
    real_ask(r, item, policy, &report);
    double energy = 0;
    for (int32_t l = 0; l < text->n_layer; l++) {
        double error = (double)report.packed.layer[l].error[FV_PACKED_K];
        fv_packed_shape s = keys_shape(report.n_visual, x->rank, text->n_kv, text->d_head);
        energy += 1 - error * error;
        x->bytes += (double)fv_packed_bytes(&s) / ITEMS;
    }
    x->energy += energy / text->n_layer / ITEMS;
    x->kl += divergence(whole, r->logits, text->vocab) / ITEMS;
    fv_report_free(&report);
}

static void real_lines(real *r, table *t) {
    const fv_text_config *text = &fv_local_config(r->local)->text;
    size_t bytes = (size_t)text->vocab * sizeof(float);
    float *whole = case_alloc(bytes);
    r->logits = case_alloc(bytes);
    for (int i = 0; i < N_STEP; i++)
        for (int k = 0; k < N_RANK && ranks[k] <= 64 && steps[i] <= 128; k++)
            t->line[t->n++] = (line){.step = steps[i], .rank = ranks[k]};
    for (int32_t item = 0; item < ITEMS; item++) {
        fv_report report = {0};
        real_ask(r, item, VALUES ",rank_k=4096,block=1", &report);
        fv_report_free(&report);
        memcpy(whole, r->logits, bytes);
        for (int i = 0; i < t->n; i++) real_line(r, item, whole, &t->line[i]);
    }
    free(whole);
    free(r->logits);
}

static void real_keys(const bench *b, table *t) {
    fv_local_options opt = {.checkpoint = CHECKPOINT,
                            .backend = "cpu",
                            .isa = b->be.isa,
                            .threads = fv_threads_count(b->threads),
                            .compute = "f32"};
    real r = {0};
    bench_must(fv_local_open(&opt, &r.local));
    bench_must(fv_suite_make(NULL, 0, 4 * FV_N_TASK, SEED, false, &r.suite));
    r.side = fv_eval_session_side(fv_local_config(r.local));
    real_lines(&r, t);
    fv_local_close(r.local);
}

/* ---- output ---------------------------------------------------------------------------- */

static const char *step_name(int step, char buffer[16]) {
    snprintf(buffer, 16, step == 0 ? "one (K1)" : step == 1 ? "1 row (K0)" : "%d rows", step);
    return buffer;
}

static void print_table(const table *t) {
    char name[16];
    bool scored = t->line[0].score > 0;
    printf("\n%s\n%-12s %5s %8s %9s %9s %9s %9s\n", t->name, "block", "rank", "energy",
           scored ? "score err" : "KL, nats", "bytes", "us, 576", "us, 4096");
    for (int i = 0; i < t->n; i++) {
        const line *x = &t->line[i];
        printf("%-12s %5d %8.4f %9.5f %9.0f %9.0f %9.0f%s\n", step_name(x->step, name), x->rank,
               x->energy, scored ? x->score : x->kl, x->bytes, x->us, x->us_long,
               on_front(t, x) ? "  *" : "");
    }
}

/* Copies the times measured for the same block length and rank. */
static void take_times(table *t, const table *from) {
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < from->n; k++)
            if (from->line[k].step == t->line[i].step && from->line[k].rank == t->line[i].rank) {
                t->line[i].us = from->line[k].us;
                t->line[i].us_long = from->line[k].us_long;
            }
}

static json_t *table_json(const table *t) {
    json_t *lines = json_array();
    for (int i = 0; i < t->n; i++) {
        const line *x = &t->line[i];
        json_array_append_new(lines,
                              json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "block",
                                        x->step, "rank", x->rank, "energy", x->energy, "bytes",
                                        x->bytes, "score", x->score, "us_576", x->us, "us_4096",
                                        x->us_long, "kl", x->kl, "front", on_front(t, x)));
    }
    return lines;
}

static json_t *to_json(const table *made, const table *of) {
    return json_pack("{s:i, s:i, s:f, s:f, s:o, s:o}", "default_block", case_default_step(),
                     "shortest_fast_block", shortest_fast(made), "raw_us_576", made->raw_us,
                     "raw_us_4096", made->raw_us_long, "made_up", table_json(made), "nano",
                     table_json(of));
}

int main(int argc, char **argv) {
    static bench b;
    static table made = {.name = "made-up keys, 576 x 4096"}, nano = {.name = CHECKPOINT};
    bench_open(&b, argc, argv, "bench_keys [options]     only: made, nano",
               "What block lengths and ranks keep of keys, and what they cost.");
    if (bench_wants(&b, "made")) made_up(&b, &made);
    if (bench_wants(&b, "nano")) real_keys(&b, &nano);
    printf("isa=%s threads=%d; the default block: %d\n", b.be.isa, fv_threads_count(b.threads),
           case_default_step());
    if (made.n > 0) {
        int step = shortest_fast(&made);
        printf("raw rows: %.0f us, 576 of them; %.0f us, 4096\n", made.raw_us, made.raw_us_long);
        printf("the shortest block at which attention at rank %d is %d times as fast, at both: ",
               CASE_RANK, FAST);
        if (step < 0)
            puts("none");
        else
            printf("%d rows\n", step);
        print_table(&made);
    }
    take_times(&nano, &made);
    if (nano.n > 0) print_table(&nano);
    bench_write_json(b.options, to_json(&made, &nano));
    bench_close(&b);
    return 0;
}
