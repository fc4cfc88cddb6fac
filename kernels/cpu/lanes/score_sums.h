#ifndef FOVEA_KERNELS_CPU_LANES_SCORE_SUMS_H
#define FOVEA_KERNELS_CPU_LANES_SCORE_SUMS_H

/* Sums of attention scores over rows, in the order of kernels/ops.h, over 16-lane vectors.
 *
 * An item is one block of keys of one KV head and one sum (with head_max an item of the first KV head
 * sums for all of them). Only that item adds to those columns, so rows are added in order however many
 * threads run. Rows are scored in the blocks of lanes/attention.h. */
#include "kernels/cpu/lanes/attention_bf16.h"

/* An item: the block of keys at row j0 of segment s, and the sum it adds to. */
typedef struct sum_item {
    const fv_score_sum *q;
    int s;
    int32_t j0;
} sum_item;

static int32_t blocks_of_table(const fv_block_table *table) {
    return (int32_t)div_up(table->len, FV_KV_BLOCK);
}

static int64_t blocks_of_head(const fv_attn_seq *seq, int32_t g) {
    int64_t n = 0;
    for (int s = 0; s < seq->n_seg; s++) n += blocks_of_table(&seq->tables[g * seq->n_seg + s]);
    return n;
}

/* The products that score keys: those that hold registers open belong to attention. */
static const attn_products *const *sum_choices(const fv_cpu_attention *c) {
    const attn_products *const *choices = choices_of(c);
    while ((*choices)->close) choices++;
    return choices;
}

static fv_cpu_plan score_sums_plan(const void *args) {
    const fv_cpu_attention *c = args;
    const fv_score_sums_args *a = c->a;
    const attn_products *products = general(sum_choices(c));
    fv_cpu_plan plan = plan_with(a->attn, products);
    plan.n_item = 0;
    for (int32_t i = 0; i < a->n_sum; i++)
        for (int32_t g = 0; g < a->attn->n_kv; g++)
            plan.n_item += blocks_of_head(&a->attn->seqs[a->sums[i].seq], g);
    plan.scratch_bytes += sizeof(float) * (size_t)rows_per_item(a->attn, products) * FV_KV_BLOCK;
    return plan;
}

/* Keys that the item's query row i sees, in all segments. */
static int32_t visible_in_all(const attn_item *t, int32_t i) {
    int32_t n = 0;
    for (int s = 0; s < t->seq->n_seg; s++) n += n_in_window(t, s, i, 0, visible(t, s, i));
    return n;
}

static void add_low(const attn_item *t, const sum_item *b, int32_t v, float *sum) {
    const float *p = t->s + (size_t)v * FV_KV_BLOCK;
    float even = 1.0f / (float)visible_in_all(t, v / t->group);
    for (int32_t j = 0; j < t->n_seen[v]; j++)
        if (in_window(t, b->s, v / t->group, b->j0 + j)) sum[j] += p[j] < even ? 1.0f : 0.0f;
}

/* Clears p of keys ahead of the window, even where other scores are not finite. */
static void clear_outside(const attn_item *t, const sum_item *b, int32_t v, float *p) {
    for (int32_t j = 0; t->position && j < t->n_seen[v]; j++)
        if (!in_window(t, b->s, v / t->group, b->j0 + j)) p[j] = 0;
}

/* Adds the probabilities of the item's keys for the rows of t, which are scored. */
static void add_rows(const attn_item *t, const sum_item *b) {
    int32_t first = t->seq->n_rows - b->q->n_row;
    for (int32_t v = 0; v < t->R; v++) {
        int32_t row = t->row0 + v / t->group, head = t->head0 + v % t->group;
        float *s = t->s + (size_t)v * FV_KV_BLOCK;
        float lse = row_f32(&t->a->lse, (int64_t)t->seq->row0 + row)[head];
        int32_t line = head * b->q->n_kind + (b->q->kind ? b->q->kind[row - first] : 0);
        float *sum = b->q->sum + (size_t)line * (size_t)b->q->ld + b->q->column[b->s] + b->j0;
        if (t->n_seen[v] == 0) continue;
        lse = lse_with(lse, b->q->n);
        for (int j = 0; j < FV_KV_BLOCK; j++) s[j] = exp_f32(s[j] * t->a->scale - lse);
        clear_outside(t, b, v, s);
        if (b->q->low) {
            add_low(t, b, v, sum);
            continue;
        }
        if (!b->q->weight) {
            for (int32_t j = 0; j < t->n_seen[v]; j++) sum[j] += s[j];
            continue;
        }
        const float *w =
            b->q->weight + (size_t)(row - first) * (size_t)b->q->ld + b->q->column[b->s] + b->j0;
        for (int32_t j = 0; j < t->n_seen[v]; j++) sum[j] += w[j] * s[j];
    }
}

/* Raises most [rows, block] to the probabilities of the item's keys for the rows of t, which are scored. */
static void raise_head_max(const attn_item *t, const sum_item *b, float *most) {
    for (int32_t v = 0; v < t->R; v++) {
        int32_t row = t->row0 + v / t->group, head = t->head0 + v % t->group;
        float *s = t->s + (size_t)v * FV_KV_BLOCK;
        float *peak = most + (size_t)(v / t->group) * FV_KV_BLOCK;
        float lse = row_f32(&t->a->lse, (int64_t)t->seq->row0 + row)[head];
        if (t->n_seen[v] == 0) continue;
        lse = lse_with(lse, b->q->n);
        for (int j = 0; j < FV_KV_BLOCK; j++) s[j] = exp_f32(s[j] * t->a->scale - lse);
        for (int32_t j = 0; j < t->n_seen[v]; j++) peak[j] = s[j] > peak[j] ? s[j] : peak[j];
    }
}

/* Adds the largest probability over all KV heads, which hold the same keys, for the rows of t. */
static void add_head_max(attn_item *t, const sum_item *b, float *most) {
    int32_t first = t->seq->n_rows - b->q->n_row, n = 0;
    memset(most, 0, (size_t)t->n_row * FV_KV_BLOCK * sizeof *most);
    for (int32_t g = 0; g < t->a->n_kv; g++) {
        take_head(t, g);
        n = min_int(FV_KV_BLOCK, longest_visible(t, b->s) - b->j0);
        if (n <= 0) continue;
        t->products->copy_queries(t);
        scores(t, b->s, b->j0, t->tables[b->s].block[b->j0 / FV_KV_BLOCK].k, NULL, n);
        raise_head_max(t, b, most);
    }
    for (int32_t i = 0; i < t->n_row; i++) {
        int32_t line = b->q->kind ? b->q->kind[t->row0 + i - first] : 0;
        float *sum = b->q->sum + (size_t)line * (size_t)b->q->ld + b->q->column[b->s] + b->j0;
        for (int32_t j = 0; j < n; j++) sum[j] += most[(size_t)i * FV_KV_BLOCK + (size_t)j];
    }
    take_head(t, 0);
}

static void sum_block(attn_item *t, const attn_products *products, const sum_item *b) {
    int32_t rows = rows_per_item(t->a, products), n_rows = t->seq->n_rows;
    const void *k = t->tables[b->s].block[b->j0 / FV_KV_BLOCK].k;
    for (int32_t row0 = n_rows - b->q->n_row; row0 < n_rows; row0 += rows) {
        take_rows(t, row0, min_int(rows, n_rows - row0));
        if (b->q->head_max) {
            add_head_max(t, b, (float *)(t->n_seen + vectors_per_item(t->a, products)));
            continue;
        }
        int32_t n = min_int(FV_KV_BLOCK, longest_visible(t, b->s) - b->j0);
        if (n <= 0) continue;
        t->products->copy_queries(t);
        scores(t, b->s, b->j0, k, NULL, n);
        add_rows(t, b);
    }
}

/* Computes items [begin, end) of one head, counted over its segments. */
static void sum_head(attn_item *t, const attn_products *products, const fv_score_sum *q,
                     int64_t begin, int64_t end) {
    for (int s = 0; s < t->seq->n_seg; s++) {
        int32_t n = blocks_of_table(&t->tables[s]);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            sum_block(t, products, &(sum_item){q, s, (int32_t)i * FV_KV_BLOCK});
        begin -= n;
        end -= n;
    }
}

static void score_sums(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_attention *c = args;
    const fv_score_sums_args *a = c->a;
    const attn_products *products = general(sum_choices(c));
    attn_item t = item_of(c, a->attn, sum_choices(c), scratch);
    for (int32_t i = 0; i < a->n_sum; i++)
        for (int32_t g = 0; g < a->attn->n_kv; g++) {
            t.seq = &a->attn->seqs[a->sums[i].seq];
            take_head(&t, g);
            int64_t n = blocks_of_head(t.seq, g);
            if (g == 0 || !a->sums[i].head_max) sum_head(&t, products, &a->sums[i], begin, end);
            begin -= n;
            end -= n;
        }
}

#endif
