/* Prompts that a decode worker has kept: what is sent, and that the KV and the logits are those of prompts that were sent
 * whole, over random histories. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/share.h"
#include "model/net/accum.h"
#include "tests/support/handoff.h"
#include "tests/support/thorough.h"

enum { MORE = 70, KEEP = 64 << 20 };

static uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int32_t below(uint64_t *state, int32_t n) {
    return (int32_t)(next_random(state) % (uint64_t)n);
}

/* A prompt whose segments' contents follow from `seed` of each: prompts with the same first seeds begin alike. */
static void make_prompt(const handoff_rig *rig, tiny_prompt *p, const char *layout,
                        const uint64_t *seed, const char *policy) {
    int32_t at = 0, image = 0, length, read, d = rig->net.cfg.d_model;
    float *embeds;
    char kind;
    tiny_prompt_lay(&rig->net, p, layout, 1, policy);
    embeds = p->embeds;
    for (const char *s = layout; sscanf(s, " %c%d%n", &kind, &length, &read) == 2; s += read) {
        uint64_t state = *seed++;
        for (int32_t i = 0; kind == 't' && i < length; i++)
            p->ids[at + i] = below(&state, rig->net.cfg.vocab);
        for (int32_t i = 0; kind == 'v' && i < length * d; i++)
            *embeds++ = (float)below(&state, 2001) / 1000 - 1;
        image += kind == 'v';
        at += length;
    }
    cr_assert_eq(image, p->n_image);
    cr_assert_eq(tiny_prefill((tiny_net *)&rig->net, p, 1, 0), FV_OK, "%s", fv_last_error());
}

typedef struct sent {
    tiny_prompt p, there; /* the second with the KV that has arrived */
    fv_received got;
    fv_export_report report;
    int32_t steps;
} sent;

static fv_status send(handoff_rig *rig, sent *x) {
    FV_TRY(rig_send(rig, &x->p, MORE, 1, &x->got, &x->report));
    x->there = x->p;
    x->there.kv = x->got.kv;
    x->there.logits = malloc((size_t)rig->net.cfg.vocab * sizeof(float));
    cr_assert(x->there.logits);
    x->steps = 0;
    return FV_OK;
}

static void step(handoff_rig *rig, sent *x, int32_t id) {
    tiny_prompt *one = &x->p, *other = &x->there;
    cr_assert_eq(tiny_step(&rig->net, &one, 1, &id, 1, x->steps), FV_OK, "%s", fv_last_error());
    cr_assert_eq(tiny_step(&rig->net, &other, 1, &id, 1, x->steps), FV_OK, "%s", fv_last_error());
    cr_assert(same_bits(one->logits, other->logits, (size_t)rig->net.cfg.vocab));
    x->steps++;
}

static void forget(sent *x) {
    free(x->there.logits);
    fv_received_free(&x->got);
    tiny_prompt_free(&x->p);
    *x = (sent){.steps = 0};
}

static void open_rig(handoff_rig *rig, size_t pool_bytes, bool grid) {
    rig_open(rig, &(rig_options){.shape = tiny_shape_either(grid),
                                 .dtype = FV_BF16,
                                 .pool_bytes = pool_bytes,
                                 .keep_bytes = KEEP});
}

static void close_rig(handoff_rig *rig) {
    cr_assert_eq(fv_kv_pool_used(rig->pool), fv_kv_pool_idle(rig->pool));
    cr_assert_eq(fv_kv_pool_used(rig->pool), fv_prefixes_count(rig->prefixes).bytes_now);
    cr_assert_eq(fv_receiver_live(rig->receiver), 0);
    fv_prefixes_drop(rig->prefixes, false);
    cr_assert_eq(fv_prefixes_count(rig->prefixes).n_now, 0);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    cr_assert_eq(fv_kv_pool_used(rig->net.pool), 0);
    rig_close(rig);
}

Test(prefixes, another_question_about_the_same_images_is_sent_without_them) {
    static const char *const layouts[] = {"t5 v64 t9",         "t5 v70 t9",
                                          "t70 v64 t3 v35 t6", "t130 v20 t2 v44 t2 v64 t1",
                                          "t64 v64 t64",       "v70 t3"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int grid = 0; grid < 2; grid++) {
            const uint64_t first[] = {1, 2, 3, 4, 5, 6, 7}, same[] = {1, 2, 3, 4, 5, 6, 99};
            uint64_t second[7];
            handoff_rig rig;
            sent a = {.steps = 0}, b = {.steps = 0};
            int32_t n_seg = 0;
            for (const char *c = layouts[i]; *c; c++) n_seg += *c == 't' || *c == 'v';
            memcpy(second, same, sizeof second);
            second[n_seg - 1] = 50;
            open_rig(&rig, 0, grid);
            make_prompt(&rig, &a.p, layouts[i], first, "");
            make_prompt(&rig, &b.p, layouts[i], second, "");
            cr_assert_eq(send(&rig, &a), FV_OK, "%s", fv_last_error());
            cr_assert_eq(a.report.tokens_kept, 0);
            cr_assert_eq(send(&rig, &b), FV_OK, "%s", fv_last_error());
            int32_t tail = 0;
            while (b.p.seg[b.p.n - 1 - tail] == FV_SEG_TEXT) tail++;
            cr_assert_eq(b.report.tokens_kept, b.p.n - tail, "%s: all but the question",
                         layouts[i]);
            cr_assert_lt(b.report.bytes, a.report.bytes - b.report.bytes_kept / 2);
            cr_assert(same_store(b.p.kv, b.got.kv), "%s", layouts[i]);
            cr_assert_eq(fv_kv_bytes(b.got.kv, FV_SEG_VISUAL),
                         fv_kv_bytes(a.got.kv, FV_SEG_VISUAL));
            for (int32_t s = 0; s < 5; s++) {
                step(&rig, &a, 3 + s);
                step(&rig, &b, 30 + s);
            }
            fv_kv_check(a.got.kv, -1);
            fv_kv_check(b.got.kv, -1);
            forget(&a);
            cr_assert(same_bits(b.p.logits, b.there.logits, 1));
            step(&rig, &b, 9);
            cr_assert_eq(fv_receiver_get_counters(rig.receiver)->tokens_kept, b.report.tokens_kept);
            forget(&b);
            close_rig(&rig);
        }
}

/* ---- eviction ------------------------------------------------------------------------------ */

/* A step after which both stores evict, as the worker does. */
static void step_and_evict(handoff_rig *rig, sent *x, int32_t id) {
    const fv_accum_rule *rule = &x->p.plan.evict.accum;
    step(rig, x, id);
    if (!rule->kind) return;
    cr_assert_eq(fv_accum_evict(x->p.kv, rule, false), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_accum_evict(x->there.kv, rule, false), FV_OK, "%s", fv_last_error());
    cr_assert(same_store(x->p.kv, x->there.kv), "%lld rows kept, step %d, len %d %d",
              (long long)x->report.tokens_kept, x->steps, fv_kv_len(x->p.kv, 0, 0, FV_SEG_TEXT),
              fv_kv_len(x->there.kv, 0, 0, FV_SEG_TEXT));
    fv_kv_check(x->there.kv, -1);
}

/* Prompts that evict read what others have left and leave what others read, and change none of it. */
Test(prefixes, eviction_changes_no_row_of_others) {
    static const char *const policies[] = {"evict=h2o,heavy=0.3,recent=0.2", "evict=tova,keep=0.5",
                                           "evict=scissorhands,keep=0.6,drop=0.3"};
    static const char *const layouts[] = {"t5 v64 t9", "t70 v70 t3 v35 t6"};
    enum { N = 5 };
    for (size_t i = 0; i < 3; i++)
        for (int order = 0; order < 4; order++) { /* who comes first, and who is followed */
            const char *layout = layouts[order / 2];
            handoff_rig rig;
            sent x[N] = {{.steps = 0}};
            uint64_t evicted = 0;
            open_rig(&rig, 0, false);
            for (int k = 0; k < N; k++) {
                const bool evicts = (k + order) % 2;
                uint64_t seed[5] = {1, 2, 3, 4, 5};
                seed[order / 2 ? 4 : 2] = 10 + (uint64_t)k; /* the question */
                if (k == 3 && order / 2) seed[3] = 77;      /* another second image */
                make_prompt(&rig, &x[k].p, layout, seed, evicts ? policies[i] : "");
                cr_assert_eq(send(&rig, &x[k]), FV_OK, "%s", fv_last_error());
                cr_assert_eq(x[k].report.tokens_kept > 0, k > 0, "%s: %d", policies[i], k);
                cr_assert(same_store(x[k].p.kv, x[k].got.kv), "%s: %d", policies[i], k);
                for (int32_t s = 0; s < 6; s++)
                    for (int j = 0; j <= k; j++) step_and_evict(&rig, &x[j], 3 + s + j);
            }
            for (int k = 0; k < N; k++) evicted += fv_kv_get_sequence(x[k].got.kv)->n_evicted;
            cr_assert_gt(evicted, 0, "%s", policies[i]);
            for (int k = 0; k < N; k++) forget(&x[(k + order) % N]);
            close_rig(&rig);
        }
}

/* ---- pressure ---------------------------------------------------------------------------- */

Test(prefixes, a_grant_takes_the_memory_of_what_nobody_uses) {
    handoff_rig rig;
    sent a = {.steps = 0};
    uint64_t seed[3] = {1, 2, 3};
    open_rig(&rig, 0, false);
    make_prompt(&rig, &a.p, "t5 v64 t9", seed, "");
    rig_stream stream;
    rig_capture(&rig, &a.p, MORE, &stream);
    size_t room = rig_room(&rig, &stream);
    free(stream.bytes);
    forget(&a);
    rig_close(&rig);

    open_rig(&rig, room + room / 4, false); /* room for one */
    for (uint64_t i = 0; i < 5; i++) {
        seed[1] = 100 + i;
        make_prompt(&rig, &a.p, "t5 v64 t9", seed, "");
        cr_assert_eq(send(&rig, &a), FV_OK, "%s", fv_last_error());
        cr_assert_eq(a.report.tokens_kept, 0, "the text before the image alone would not fit");
        cr_assert(same_store(a.p.kv, a.got.kv));
        forget(&a);
        cr_assert_gt(fv_kv_pool_idle(rig.pool), 0);
    }
    cr_assert_geq(fv_prefixes_count(rig.prefixes).n_given_up, 1);
    close_rig(&rig);
}

Test(prefixes, what_a_grant_names_stays_until_it_ends) {
    handoff_rig rig;
    sent a = {.steps = 0}, b = {.steps = 0};
    const uint64_t seed[2][3] = {{1, 2, 3}, {1, 2, 4}};
    open_rig(&rig, 0, false);
    make_prompt(&rig, &a.p, "t5 v64 t9", seed[0], "");
    make_prompt(&rig, &b.p, "t5 v64 t9", seed[1], "");
    cr_assert_eq(send(&rig, &a), FV_OK);
    forget(&a);
    fv_export_request req = rig_request(&rig, &b.p, MORE);
    for (int end = 0; end < 3; end++) { /* given up; expired; the connection is lost halfway */
        fv_export *ship;
        cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
        fv_prefixes_drop(rig.prefixes, false);
        cr_assert_eq(fv_prefixes_count(rig.prefixes).n_now, 1, "the grant uses it");
        cr_assert_eq(fv_kv_pool_idle(rig.pool), 0);
        if (end == 2) cr_assert_eq(fv_export_layers(ship, 2), FV_OK, "%s", fv_last_error());
        if (end == 1) rig.now += 1e6;
        if (end == 1) cr_assert_eq(fv_receiver_expire(rig.receiver), 1);
        fv_export_close(ship, false, NULL, NULL);
        cr_assert_gt(fv_kv_pool_idle(rig.pool), 0);
        cr_assert_eq(fv_kv_pool_idle(rig.pool), fv_kv_pool_used(rig.pool));
    }
    cr_assert_eq(send(&rig, &b), FV_OK, "%s", fv_last_error());
    cr_assert_eq(b.report.tokens_kept, 69);
    cr_assert(same_store(b.p.kv, b.got.kv));
    forget(&b);
    close_rig(&rig);
}

/* ---- senders that err ------------------------------------------------------------------------ */

static fv_wire_link make_link(uint8_t key, uint32_t n_text, uint32_t n_visual) {
    return (fv_wire_link){.key = {key}, .n_text = n_text, .n_visual = n_visual};
}

/* A store of 80 text rows, the first 64 of them those of a share if there is one. */
static fv_kv *open_text(fv_kv_pool *pool, fv_kv_share *share) {
    const fv_kv_prefix p = {.n_text = 64};
    fv_kv *kv;
    cr_assert_eq(fv_kv_open(pool, &kv), FV_OK);
    if (share) cr_assert_eq(fv_kv_adopt(kv, share, &p), FV_OK);
    for (int32_t l = 0; l < fv_kv_pool_shape(pool)->n_layer; l++) {
        cr_assert_eq(fv_kv_reserve(kv, l, 80), FV_OK);
        for (int32_t i = share ? 64 : 0; i < 80; i++)
            cr_assert_eq(fv_kv_append(kv, l, FV_SEG_TEXT, &i, 1), FV_OK);
    }
    return kv;
}

/* Keys come from other machines: two prompts that are not alike may come with one key. */
Test(prefixes, a_prefix_extends_only_the_one_whose_rows_its_store_uses) {
    fv_wire_link a = make_link(1, 64, 0), shadow = make_link(1, 5, 0),
                 both[] = {make_link(1, 64, 0), make_link(2, 70, 0)};
    handoff_rig rig;
    fv_kv_share *share, *found;
    fv_kv *kv[4];
    open_rig(&rig, 0, false);
    fv_prefixes *p = rig.prefixes;
    kv[0] = open_text(rig.pool, NULL);
    fv_prefixes_keep(p, "", &a, 1, 0, 80, kv[0]);
    cr_assert_eq(fv_prefixes_find(p, "", both, 2, 80, &share), 1);
    fv_kv_share_use(share);
    kv[1] = open_text(rig.pool, NULL);
    fv_prefixes_keep(p, "", &shadow, 1, 0, 80, kv[1]);
    kv[2] = open_text(rig.pool, NULL);
    fv_prefixes_keep(p, "", &a, 1, 0, 80, kv[2]);
    cr_assert_eq(fv_prefixes_count(p).n_now, 3);
    kv[3] = open_text(rig.pool, share);
    fv_kv_share_unuse(share);
    fv_prefixes_keep(p, "", both, 2, 1, 80, kv[3]);
    fv_kv_close(kv[2]);
    fv_prefixes_drop(p, false);
    if (fv_prefixes_find(p, "", both, 2, 80, &found)) fv_prefixes_drop(p, false);
    cr_assert_eq(fv_prefixes_count(p).n_now, 2, "of the stores that are open");
    fv_kv_close(kv[0]);
    fv_kv_close(kv[1]);
    fv_kv_close(kv[3]);
    close_rig(&rig);
}

/* ---- routers --------------------------------------------------------------------------------- */

/* Reads the next change; its tokens, or -1: there is none. */
static int32_t next_change(fv_kept_log *log, uint64_t *cursor, uint64_t *name) {
    fv_kept_change change = {0};
    if (fv_kept_log_read(log, cursor, &change, 1) == 0) return -1;
    *name = change.digest;
    return (int32_t)change.tokens;
}

Test(prefixes, routers_are_told_of_links_with_names_that_are_kept_and_given_up) {
    fv_wire_link link[] = {make_link(1, 64, 0), make_link(2, 70, 0)};
    fv_kv_pool *pool;
    fv_kv_shape shape = {.n_layer = 1, .n_kv = 1, .d_head = 4, .dtype = FV_F32};
    fv_kept_log *log;
    fv_prefixes *p;
    uint64_t cursor = 0, name = 0;
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool), FV_OK);
    cr_assert_eq(fv_kept_log_open(16, &log), FV_OK);
    fv_prefixes_options opt = {.pool = pool, .bytes_max = 1 << 20, .log = log};
    cr_assert_eq(fv_prefixes_open(&opt, &p), FV_OK);
    link[1].name = 11;
    fv_kv *kv = open_text(pool, NULL);
    fv_prefixes_keep(p, "", link, 2, 0, 80, kv);
    cr_assert(next_change(log, &cursor, &name) == 70 && name == 11);
    cr_assert_eq(next_change(log, &cursor, &name), -1, "the other link has no name");
    fv_kv_close(kv);
    fv_prefixes_drop(p, false);
    cr_assert(next_change(log, &cursor, &name) == 0 && name == 11);
    fv_prefixes_close(p);
    fv_kept_log_close(log);
    fv_kv_pool_close(pool);
}

/* ---- owners ---------------------------------------------------------------------------------- */

Test(prefixes, what_one_gives_up_for_another_is_what_was_used_longest_ago) {
    handoff_rig rig;
    fv_kv_share *share;
    fv_prefixes *p;
    open_rig(&rig, 0, false);
    fv_kv *kv = open_text(rig.pool, NULL);
    size_t cost = fv_kv_share_cost(kv, 64);
    fv_kv_close(kv);
    fv_prefixes_options opt = {
        .pool = rig.pool, .bytes_max = 4 * cost + cost / 2, .owner_max = 3 * cost};
    cr_assert_eq(fv_prefixes_open(&opt, &p), FV_OK);
    for (uint8_t i = 0; i < 12; i++) {
        const char *owner = i % 3 == 2 ? "b" : "a";
        fv_wire_link link = make_link(i, 64, 0);
        kv = open_text(rig.pool, NULL);
        fv_prefixes_keep(p, owner, &link, 1, 0, 80, kv);
        cr_assert_eq(fv_prefixes_find(p, owner, &link, 1, 80, &share), 1);
        cr_assert_eq(fv_prefixes_find(p, *owner == 'a' ? "b" : "a", &link, 1, 80, &share), 0);
        fv_kv_close(kv);
        cr_assert_leq(fv_prefixes_count(p).n_now, 4);
        cr_assert_eq(fv_prefixes_count(p).bytes_now, fv_kv_pool_idle(rig.pool));
    }
    for (uint8_t i = 0; i < 12; i++) {
        fv_wire_link link = make_link(i, 64, 0);
        uint32_t n = fv_prefixes_find(p, i % 3 == 2 ? "b" : "a", &link, 1, 80, &share);
        cr_assert_eq(n, i >= 12 - fv_prefixes_count(p).n_now, "prefix %d", i);
    }
    fv_prefixes_close(p);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    rig_close(&rig);
}

/* ---- random histories ---------------------------------------------------------------------- */

enum { LIVE = 5, EVENTS = 60 };

static const char *const policies[] = {"",
                                       "",
                                       "",
                                       "",
                                       "prune=random,layer=2,keep=0.5,seed=3",
                                       "evict=h2o",
                                       "pack=svd,rank_k=12,rank_v=9,gain=0"};

/* Text and images of a document, as far as a random point, and a question of its own. */
static void draw_prompt(const handoff_rig *rig, uint64_t *state, tiny_prompt *p) {
    static const char *const parts[4][5] = {{"t40", "v64", "t30", "v35", "t70"},
                                            {"t64", "v70", "t2", "v64", "t5"},
                                            {"t130", "t3", "v20", "t9", "v64"},
                                            {"v36", "t1", "v92", "t130", "v1"}};
    char layout[64] = "";
    uint64_t seed[8];
    int32_t doc = below(state, 4), n = 1 + below(state, 5);
    for (int32_t i = 0; i < n; i++) {
        strcat(strcat(layout, parts[doc][i]), " ");
        seed[i] = (uint64_t)(1000 * doc + i);
    }
    snprintf(layout + strlen(layout), 16, "t%d", 1 + below(state, 80));
    seed[n] = next_random(state) % 3; /* questions are repeated, too */
    make_prompt(rig, p, layout, seed, policies[below(state, 7)]);
}

/* Evicts the same random rows on both sides. */
static void evict(sent *x, uint64_t *state) {
    if (strncmp(x->got.policy, "evict", 5) != 0) return;
    int32_t g = below(state, 2), l = below(state, 4);
    int32_t n = fv_kv_len(x->p.kv, l, g, FV_SEG_TEXT), idx = below(state, n);
    for (int side = 0; side < 2 && n > 1; side++)
        cr_assert_eq(fv_kv_remove(side ? x->got.kv : x->p.kv, l, g, FV_SEG_TEXT, &idx, 1), FV_OK);
}

static void give_grant_up(handoff_rig *rig, sent *x, uint64_t *state) {
    fv_export_request req = rig_request(rig, &x->p, MORE);
    fv_export *ship;
    if (fv_export_begin(rig->transport, &req, &ship) != FV_OK) return;
    if (below(state, 2)) (void)fv_export_layers(ship, below(state, 5));
    if (below(state, 2)) rig->now += 1e6;
    fv_export_close(ship, false, NULL, NULL);
}

static void event(handoff_rig *rig, sent *live, uint64_t *state) {
    sent *x = &live[below(state, LIVE)];
    if (!x->got.kv) {
        draw_prompt(rig, state, &x->p);
        if (below(state, 5) == 0) give_grant_up(rig, x, state);
        fv_status st = send(rig, x);
        if (st != FV_OK) {
            cr_assert_eq(st, FV_EBUSY, "%s", fv_last_error());
            forget(x);
            return;
        }
        cr_assert(same_store(x->p.kv, x->got.kv));
        return;
    }
    switch (below(state, 8)) {
    case 0: forget(x); break;
    case 1: evict(x, state); break;
    case 2:
        if (below(state, 4) == 0) fv_prefixes_drop(rig->prefixes, false);
        break;
    default:
        if (x->steps < MORE) step(rig, x, below(state, rig->net.cfg.vocab));
    }
    if (x->got.kv) fv_kv_check(x->got.kv, -1);
}

Test(prefixes, no_history_changes_a_bit) {
    uint64_t found = 0, given_up = 0;
    for (uint64_t seed = 0; seed < (thorough() ? 400u : 12u / (unsigned)sanitized_step(3));
         seed++) {
        handoff_rig rig;
        sent live[LIVE] = {{.steps = 0}};
        uint64_t state = seed;
        open_rig(&rig, seed % 3 == 0 ? 0 : (size_t)(1 + seed % 3) * 130000, seed % 2);
        for (int i = 0; i < EVENTS; i++) event(&rig, live, &state);
        found += fv_receiver_get_counters(rig.receiver)->prompts_found;
        given_up += fv_prefixes_count(rig.prefixes).n_given_up;
        for (int i = 0; i < LIVE; i++) {
            if (live[i].got.kv) {
                if (live[i].steps < MORE) step(&rig, &live[i], 5);
                forget(&live[i]);
            }
        }
        close_rig(&rig);
    }
    cr_assert_gt(found, 20 / (unsigned)sanitized_step(3));
    cr_assert_gt(given_up, 0);
}
