/* Chats that are sent whole each time: what the decode worker keeps of answers, and that every row and every logit is that
 * of a prompt that was computed and sent whole. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/keep/answer.h"
#include "tests/support/handoff.h"

enum { TURNS = 12, IDS = 2000, ANSWER = 90, VISUAL = 70 };

/* A chat: an image after a few tokens of text, or none, and text. */
typedef struct chat {
    handoff_rig rig;
    int32_t n, ids[IDS]; /* so far; those of the image are not read */
    int32_t image;       /* rows before the image; -1: there is none */
    int32_t look;        /* of the image */
    int32_t n_kept;      /* rows of the last turn that were there */
    uint64_t state;
} chat;

static int32_t draw(chat *c, int32_t n) {
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((c->state >> 33) % (uint64_t)n);
}

static void add_text(chat *c, int32_t n) {
    cr_assert_leq(c->n + n, IDS);
    for (int32_t i = 0; i < n; i++) c->ids[c->n++] = draw(c, c->rig.net.cfg.vocab);
}

static void open_chat(chat *c, int32_t before, bool image, bool grid, size_t keep_bytes) {
    *c = (chat){.image = image ? before : -1, .state = (uint64_t)before};
    rig_open(&c->rig, &(rig_options){.shape = tiny_shape_either(grid),
                                     .dtype = FV_BF16,
                                     .keep_bytes = keep_bytes});
    add_text(c, before);
    if (image) c->n += VISUAL;
}

/* Nothing is left but what is kept. */
static void close_chat(chat *c) {
    handoff_rig *rig = &c->rig;
    cr_assert_eq(fv_kv_pool_used(rig->pool), fv_kv_pool_idle(rig->pool));
    cr_assert_eq(fv_kv_pool_used(rig->pool), fv_prefixes_count(rig->prefixes).bytes_now);
    fv_prefixes_drop(rig->prefixes, false);
    cr_assert_eq(fv_prefixes_count(rig->prefixes).n_now, 0);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    cr_assert_eq(fv_kv_pool_used(rig->net.pool), 0);
    rig_close(rig);
}

/* The chat so far, computed whole. */
static void compute(chat *c, tiny_prompt *p) {
    char layout[64];
    int32_t behind = c->image < 0 ? 0 : c->image + VISUAL;
    if (c->image < 0)
        snprintf(layout, sizeof layout, "t%d", c->n);
    else
        snprintf(layout, sizeof layout, "t%d v%d t%d", c->image, VISUAL, c->n - behind);
    tiny_prompt_lay(&c->rig.net, p, layout, 1, "");
    for (int32_t i = 0; i < c->n; i++)
        if (p->seg[i] == FV_SEG_TEXT) p->ids[i] = c->ids[i];
    for (int32_t i = 0; c->image >= 0 && i < VISUAL * c->rig.net.cfg.d_model; i++)
        p->embeds[i] = (float)((i + c->look) % 37) / 37 - 0.5f;
    cr_assert_eq(tiny_prefill(&c->rig.net, p, 1, 0), FV_OK, "%s", fv_last_error());
}

static fv_wire_link *links_of(const fv_export_request *req, uint32_t *n) {
    fv_wire_link *link = calloc((size_t)req->n_chain, sizeof *link);
    cr_assert(link);
    for (int32_t i = 0; i < req->n_chain; i++) {
        memcpy(link[i].key, req->chain[i].key.bytes, sizeof link[i].key);
        link[i].n_text = (uint32_t)req->chain[i].n_text;
        link[i].n_visual = (uint32_t)req->chain[i].n_visual;
    }
    *n = (uint32_t)req->n_chain;
    return link;
}

/* Sends a turn, without the rest of its prompt if that may be left to the decode side, which then runs it in pieces. */
static void hand_over(chat *c, tiny_prompt *p, bool may_leave, fv_received *got, bool *left) {
    fv_export_request req = rig_request(&c->rig, p, ANSWER);
    fv_export *ship;
    int32_t rest;
    bool done;
    req.may_leave_rest = may_leave;
    cr_assert_eq(fv_export_begin(c->rig.transport, &req, &ship), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_export_rest(ship, &c->n_kept, &rest), FV_OK, "%s", fv_last_error());
    *left = rest > 0;
    if (*left) {
        cr_assert_eq(rest, p->n - c->n_kept);
        cr_assert_eq(fv_export_leave_rest(ship), FV_OK, "%s", fv_last_error());
    } else {
        cr_assert_eq(fv_export_layers(ship, c->rig.net.cfg.n_layer), FV_OK, "%s", fv_last_error());
        cr_assert_eq(fv_export_end(ship, &(fv_first_token){.id = 3, .step = 1}), FV_OK);
    }
    cr_assert_eq(fv_export_done(ship, &done), FV_OK, "%s", fv_last_error());
    cr_assert(done);
    cr_assert_eq(fv_receiver_attach(c->rig.receiver, fv_export_ticket(ship), got), FV_OK, "%s",
                 fv_last_error());
    cr_assert_eq(fv_export_get_report(ship).tokens_kept, c->n_kept);
    if (*left) cr_assert_lt(fv_export_get_report(ship).bytes, 20000);
    fv_export_close(ship, true, NULL, NULL);
    cr_assert_eq(got->n_held, *left ? c->n_kept : p->n);
}

static void run_rest(chat *c, tiny_prompt *there, int32_t from, int32_t piece) {
    for (int32_t at = from, n; at < there->n; at += n) {
        n = there->n - at < piece ? there->n - at : piece;
        cr_assert_eq(tiny_step(&c->rig.net, &there, 1, there->ids + at, n, at - there->n), FV_OK,
                     "%s", fv_last_error());
    }
}

/* Sends the chat so far and a question, and runs and keeps the answer. */
static void turn(chat *c, int32_t question, int32_t answer, bool may_leave, int32_t piece) {
    tiny_prompt p, there, *both[2] = {&p, &there};
    size_t vocab = (size_t)c->rig.net.cfg.vocab;
    fv_received got;
    bool left;
    uint32_t n_link;
    add_text(c, question);
    compute(c, &p);
    fv_export_request req = rig_request(&c->rig, &p, ANSWER);
    fv_wire_link *link = links_of(&req, &n_link);
    hand_over(c, &p, may_leave, &got, &left);
    there = p;
    there.kv = got.kv;
    there.logits = malloc(vocab * sizeof(float));
    cr_assert(there.logits);
    if (left) {
        run_rest(c, &there, c->n_kept, piece);
        cr_assert(same_bits(p.logits, there.logits, vocab));
    }
    cr_assert(same_store(p.kv, got.kv));
    int32_t n_prompt = c->n;
    add_text(c, answer);
    for (int32_t i = 0; i + 1 < answer; i++) { /* the last token is chosen and does not run */
        for (int side = 0; side < 2; side++)
            cr_assert_eq(tiny_step(&c->rig.net, &both[side], 1, &c->ids[n_prompt + i], 1, i),
                         FV_OK);
        cr_assert(same_bits(p.logits, there.logits, vocab));
    }
    fv_prefixes_keep_answer(c->rig.prefixes, link, n_link, c->ids, c->n, got.kv);
    fv_kv_check(got.kv, -1);
    free(link);
    free(there.logits);
    fv_received_free(&got);
    tiny_prompt_free(&p);
}

static const struct {
    int32_t before;
    bool image, grid;
} chats[] = {{64, false, false}, {70, false, false}, {5, true, false}, {70, true, true}};

enum { CHATS = sizeof chats / sizeof *chats };

Test(answers, each_turn_of_a_chat_finds_all_that_has_run) {
    for (int may_leave = 0; may_leave < 2; may_leave++)
        for (int i = 0; i < CHATS; i++) {
            chat c;
            int32_t ran = 0;
            open_chat(&c, chats[i].before, chats[i].image, chats[i].grid, 64 << 20);
            for (int32_t t = 0; t < TURNS; t++) {
                turn(&c, 5 + 7 * (t % 3), 3 + draw(&c, ANSWER), may_leave, 1 + draw(&c, 9));
                cr_assert_eq(c.n_kept, ran, "chat %d, turn %d: %d of %d", i, t, c.n_kept, ran);
                ran = c.n - 1;
            }
            close_chat(&c);
        }
}

/* Retokenising, or a template that drops the reasoning of an answer, changes ids in its middle. */
Test(answers, a_hit_ends_where_an_answer_comes_back_as_other_ids) {
    for (int i = 0; i < CHATS; i++)
        for (int32_t at = 1; at < 140; at += 23) {
            chat c;
            open_chat(&c, chats[i].before, chats[i].image, chats[i].grid, 64 << 20);
            turn(&c, 10, 140, false, 1);
            int32_t changed = c.n - 140 + at, page = changed;
            c.ids[changed] = (c.ids[changed] + 1) % c.rig.net.cfg.vocab;
            turn(&c, 10, 5, false, 1);
            /* By ids within the last page, by pages before that. */
            int32_t visual = c.image < 0 || changed < c.image ? 0 : VISUAL;
            while (page > 0 && (page - visual) % FV_KV_BLOCK) page--;
            cr_assert_leq(c.n_kept, changed);
            cr_assert_geq(c.n_kept, page < c.image + VISUAL ? 0 : page);
            close_chat(&c);
        }
}

Test(answers, another_answer_to_a_question_takes_the_place_of_the_first) {
    chat c;
    open_chat(&c, 64, true, false, 64 << 20);
    turn(&c, 10, 20, true, 3);
    for (int32_t again = 0; again < 5; again++) {
        int32_t n = c.n;
        c.n -= 20; /* the question is asked again, and the answer is another one */
        turn(&c, 0, 20, true, 3);
        cr_assert_geq(c.n_kept, 64 + VISUAL + 9);
        cr_assert_eq(c.n, n);
        turn(&c, 10, 20, true, 3);
        cr_assert_eq(c.n_kept, n - 1);
        c.n = n;
    }
    close_chat(&c);
}

/* The second prompt shares the first one's text, but not all of its last page, which goes on differently there. */
Test(answers, one_that_leaves_another_within_a_page_has_rows_of_its_own_from_there_on) {
    for (int32_t before = 60; before < 200; before += 20) {
        chat c;
        open_chat(&c, before, true, false, 64 << 20);
        turn(&c, 80, 20, false, 1);
        for (int32_t look = 1; look < 4; look++) {
            c.look = look;
            c.n = before + VISUAL;
            turn(&c, 80, 20, true, 3);
            cr_assert_leq(c.n_kept, before);
            for (int32_t more = 0, ran; more < 3; more++) {
                ran = c.n - 1;
                turn(&c, 10, 20, true, 3);
                cr_assert_eq(c.n_kept, ran);
            }
        }
        close_chat(&c);
    }
}

Test(answers, little_memory_keeps_less_and_changes_no_bit) {
    for (size_t bytes = 20000; bytes < 400000; bytes = bytes * 3 / 2)
        for (int i = 0; i < CHATS; i++) {
            chat c;
            open_chat(&c, chats[i].before, chats[i].image, chats[i].grid, bytes);
            for (int32_t t = 0; t < 6; t++) turn(&c, 9, 3 + draw(&c, ANSWER), t % 2, 4);
            cr_assert_leq(fv_prefixes_count(c.rig.prefixes).bytes_now, bytes);
            close_chat(&c);
        }
}

/* ---- senders that err ------------------------------------------------------------------------ */

Test(answers, a_stream_without_a_first_token_that_nobody_has_allowed_is_refused) {
    chat c;
    tiny_prompt p;
    fv_export *ship;
    bool done;
    open_chat(&c, 64, false, false, 64 << 20);
    turn(&c, 10, 5, false, 1);
    for (int32_t more = 1; more < 200; more += 66) { /* within RIG_REST, and beyond it */
        int32_t n = c.n, kept, rest;
        add_text(&c, more);
        compute(&c, &p);
        fv_export_request req = rig_request(&c.rig, &p, ANSWER);
        cr_assert_eq(fv_export_begin(c.rig.transport, &req, &ship), FV_OK);
        cr_assert_eq(fv_export_rest(ship, &kept, &rest), FV_OK);
        cr_assert_gt(kept, 0);
        cr_assert_eq(rest, 0, "the sender has not said that it may");
        fv_status st = fv_export_leave_rest(ship);
        if (st == FV_OK) st = fv_export_done(ship, &done);
        cr_assert_neq(st, FV_OK);
        cr_assert(strstr(fv_last_error(), "none of the prompt's last"), "%s", fv_last_error());
        fv_export_close(ship, false, NULL, NULL);
        tiny_prompt_free(&p);
        c.n = n;
    }
    cr_assert_eq(fv_receiver_live(c.rig.receiver), 0);
    close_chat(&c);
}
