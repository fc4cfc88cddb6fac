/* handoff/grant.c: which sender may send how much, in which order, until when. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "handoff/grant.h"

static double now;

static double fake_clock(void *user) {
    (void)user;
    return now;
}

static fv_grants *open_table(int32_t capacity, uint32_t credits) {
    fv_grants *t;
    fv_grants_options opt = {.capacity = capacity,
                             .frame_max = 100,
                             .credits = credits,
                             .lease_s = 10,
                             .attach_s = 5,
                             .clock = fake_clock};
    cr_assert_eq(fv_grants_open(&opt, &t), FV_OK);
    return t;
}

static fv_grant issue(fv_grants *t, uint64_t bytes, void *owner) {
    fv_grant g;
    cr_assert_eq(fv_grants_issue(t, bytes, owner, &g), FV_OK);
    return g;
}

static fv_status accept_frame(fv_grants *t, const fv_grant *g, uint64_t seq, uint64_t bytes) {
    void *owner;
    return fv_grants_accept(t, &g->ticket, seq, bytes, &owner);
}

static fv_status commit(fv_grants *t, const fv_grant *g, uint64_t n, uint64_t *surplus) {
    void *owner;
    return fv_grants_commit(t, &g->ticket, n, &owner, surplus);
}

Test(grant, goes_from_open_to_attached) {
    fv_grants *t = open_table(4, 2);
    int mine;
    void *owner = NULL;
    uint64_t surplus;
    fv_grant g = issue(t, 150, &mine);
    cr_assert_eq(g.bytes, 150);
    cr_assert_eq(fv_grants_bytes(t), 150);
    cr_assert_eq(fv_grants_accept(t, &g.ticket, 0, 100, &owner), FV_OK);
    cr_assert_eq(owner, &mine);
    fv_grants_consumed(t, &g.ticket);
    cr_assert_eq(accept_frame(t, &g, 1, 20), FV_OK);
    fv_grants_consumed(t, &g.ticket);
    cr_assert_eq(fv_refusal_of(fv_grants_attach(t, &g.ticket, &owner)), FV_REFUSED_PENDING,
                 "not yet");
    cr_assert_eq(commit(t, &g, 2, &surplus), FV_OK);
    cr_assert_eq(surplus, 30);
    cr_assert_eq(fv_grants_bytes(t), 0);
    cr_assert_eq(fv_grants_attach(t, &g.ticket, &owner), FV_OK);
    cr_assert_eq(owner, &mine);
    cr_assert_eq(fv_grants_live(t), 0);
    cr_assert_eq(fv_refusal_of(fv_grants_attach(t, &g.ticket, &owner)), FV_REFUSED_CLOSED,
                 "once only");
    fv_grants_close(t);
}

Test(grant, frames_come_once_and_in_order) {
    fv_grants *t = open_table(1, 9);
    fv_grant g = issue(t, 1000, NULL);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 1, 5)), FV_REFUSED_OUT_OF_ORDER);
    cr_assert_eq(accept_frame(t, &g, 0, 5), FV_OK);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 0, 5)), FV_REFUSED_DUPLICATE);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 2, 5)), FV_REFUSED_OUT_OF_ORDER);
    cr_assert_eq(accept_frame(t, &g, 1, 5), FV_OK);
    fv_grants_close(t);
}

Test(grant, frames_have_a_size_and_the_stream_a_budget) {
    fv_grants *t = open_table(1, 9);
    fv_grant g = issue(t, 150, NULL);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 0, 0)), FV_REFUSED_FRAME_SIZE);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 0, 101)), FV_REFUSED_FRAME_SIZE);
    cr_assert_eq(accept_frame(t, &g, 0, 100), FV_OK);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 1, 51)), FV_REFUSED_OVER_BUDGET);
    cr_assert_eq(accept_frame(t, &g, 1, 50), FV_OK, "to the byte");
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 2, 1)), FV_REFUSED_OVER_BUDGET);
    fv_grants_close(t);
}

Test(grant, credits_bound_what_is_in_flight) {
    fv_grants *t = open_table(1, 2);
    fv_grant g = issue(t, 1000, NULL);
    uint64_t surplus;
    cr_assert_eq(accept_frame(t, &g, 0, 1), FV_OK);
    cr_assert_eq(accept_frame(t, &g, 1, 1), FV_OK);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 2, 1)), FV_REFUSED_NO_CREDIT);
    fv_grants_consumed(t, &g.ticket);
    cr_assert_eq(accept_frame(t, &g, 2, 1), FV_OK);
    cr_assert_eq(fv_refusal_of(commit(t, &g, 3, &surplus)), FV_REFUSED_TRUNCATED,
                 "two are not consumed yet");
    fv_grants_close(t);
}

Test(grant, commit_wants_every_frame) {
    fv_grants *t = open_table(2, 2);
    uint64_t surplus;
    fv_grant g = issue(t, 1000, NULL);
    cr_assert_eq(accept_frame(t, &g, 0, 1), FV_OK);
    fv_grants_consumed(t, &g.ticket);
    cr_assert_eq(fv_refusal_of(commit(t, &g, 2, &surplus)), FV_REFUSED_TRUNCATED);
    cr_assert_eq(fv_refusal_of(commit(t, &g, 0, &surplus)), FV_REFUSED_TRUNCATED);
    cr_assert_eq(commit(t, &g, 1, &surplus), FV_OK);
    cr_assert_eq(fv_refusal_of(commit(t, &g, 1, &surplus)), FV_REFUSED_CLOSED);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 1, 1)), FV_REFUSED_CLOSED,
                 "a late frame changes nothing");
    cr_assert_eq(fv_grants_live(t), 1, "and the committed one still waits");
    fv_grants_close(t);
}

Test(grant, a_deadline_ends_it_when_the_peer_is_silent) {
    int a, b;
    uint64_t surplus;
    void *owner;
    now = 100;
    fv_grants *t = open_table(3, 2);
    fv_grant ga = issue(t, 10, &a);
    now = 105;
    fv_grant gb = issue(t, 10, &b);
    cr_assert_float_eq(fv_grants_next_deadline(t), 110, 1e-9);
    now = 109.9;
    cr_assert_null(fv_grants_expire(t, now));
    now = 110;
    cr_assert_eq(fv_refusal_of(accept_frame(t, &ga, 0, 1)), FV_REFUSED_EXPIRED,
                 "before anyone reclaimed it");
    cr_assert_eq(fv_refusal_of(fv_grants_renew(t, &ga.ticket)), FV_REFUSED_EXPIRED,
                 "it is too late for that");
    cr_assert_eq(fv_refusal_of(commit(t, &ga, 0, &surplus)), FV_REFUSED_EXPIRED);
    cr_assert_eq(fv_grants_expire(t, now), &a);
    cr_assert_null(fv_grants_expire(t, now));
    cr_assert_eq(fv_grants_live(t), 1);
    cr_assert_eq(fv_grants_bytes(t), 10);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &ga, 0, 1)), FV_REFUSED_EXPIRED, "and after");
    cr_assert_eq(accept_frame(t, &gb, 0, 1), FV_OK);
    fv_grants_consumed(t, &gb.ticket);
    cr_assert_eq(commit(t, &gb, 1, &surplus), FV_OK);
    now = 114.9;
    cr_assert_null(fv_grants_expire(t, now));
    now = 115.1; /* five seconds to attach */
    cr_assert_eq(fv_refusal_of(fv_grants_attach(t, &gb.ticket, &owner)), FV_REFUSED_EXPIRED);
    cr_assert_eq(fv_grants_expire(t, now), &b);
    cr_assert_eq(fv_grants_next_deadline(t), HUGE_VAL);
    fv_grants_close(t);
}

Test(grant, a_frame_and_a_keep_alive_renew_the_lease) {
    uint64_t surplus;
    now = 100;
    fv_grants *t = open_table(3, 2);
    fv_grant g = issue(t, 10, &now);
    for (int i = 0; i < 5; i++) { /* fifty seconds with nothing to send */
        now += 9.9;
        cr_assert_eq(fv_grants_renew(t, &g.ticket), FV_OK);
        cr_assert_float_eq(fv_grants_next_deadline(t), now + 10, 1e-9);
    }
    for (uint64_t i = 0; i < 3; i++) {
        now += 9.9;
        cr_assert_eq(accept_frame(t, &g, i, 1), FV_OK);
        fv_grants_consumed(t, &g.ticket);
        cr_assert_float_eq(fv_grants_next_deadline(t), now + 10, 1e-9);
    }
    cr_assert_eq(fv_refusal_of(accept_frame(t, &g, 7, 1)), FV_REFUSED_OUT_OF_ORDER);
    cr_assert_eq(commit(t, &g, 3, &surplus), FV_OK);
    cr_assert_eq(surplus, 7);
    cr_assert_eq(fv_refusal_of(fv_grants_renew(t, &g.ticket)), FV_REFUSED_CLOSED,
                 "now it is to be claimed");
    cr_assert_float_eq(fv_grants_next_deadline(t), now + 5, 1e-9);
    cr_assert_eq(fv_grants_drop(t, &g.ticket), &now, "and can be given back until then");
    fv_grants_close(t);
}

Test(grant, the_first_lease_is_short_until_the_sender_sends) {
    fv_grants *t;
    fv_grants_options opt = {.capacity = 2,
                             .frame_max = 100,
                             .credits = 2,
                             .lease_s = 10,
                             .attach_s = 5,
                             .first_s = 2,
                             .clock = fake_clock};
    int a, b;
    now = 100;
    cr_assert_eq(fv_grants_open(&opt, &t), FV_OK);
    fv_grant heard = issue(t, 10, &a), unheard = issue(t, 10, &b);
    cr_assert_float_eq(fv_grants_next_deadline(t), 102, 1e-9);
    cr_assert_eq(fv_grants_renew(t, &heard.ticket), FV_OK);
    now = 102;
    cr_assert_eq(fv_grants_expire(t, now), &b, "nobody has spoken of it");
    cr_assert_null(fv_grants_expire(t, now));
    cr_assert_eq(fv_refusal_of(accept_frame(t, &unheard, 0, 1)), FV_REFUSED_EXPIRED);
    cr_assert_float_eq(fv_grants_next_deadline(t), 110, 1e-9);
    fv_grants_close(t);
}

Test(grant, a_late_frame_is_not_taken_for_a_reused_slot) {
    fv_grants *t = open_table(1, 2);
    int a, b;
    void *owner;
    fv_grant old = issue(t, 10, &a);
    cr_assert_eq(fv_grants_drop(t, &old.ticket), &a);
    cr_assert_eq(fv_refusal_of(accept_frame(t, &old, 0, 1)), FV_REFUSED_CLOSED);
    fv_grant new = issue(t, 10, &b);
    cr_assert_gt(new.ticket.epoch, old.ticket.epoch);
    cr_assert_eq(fv_refusal_of(fv_grants_accept(t, &old.ticket, 0, 1, &owner)),
                 FV_REFUSED_STALE_EPOCH);
    cr_assert_null(owner, "it belongs to nobody");
    cr_assert_null(fv_grants_drop(t, &old.ticket), "nor can it end what is there now");
    fv_grants_consumed(t, &old.ticket);
    cr_assert_eq(accept_frame(t, &new, 0, 1), FV_OK);
    fv_grants_close(t);
}

Test(grant, a_guessed_ticket_names_no_grant) {
    fv_grants *t = open_table(3, 2);
    fv_grant g = issue(t, 10, NULL), forged;
    for (int byte = 0; byte < 16; byte++) {
        forged = g;
        forged.ticket.id[byte] ^= 1;
        cr_assert_eq(fv_refusal_of(accept_frame(t, &forged, 0, 1)), FV_REFUSED_UNKNOWN_GRANT);
    }
    forged = g;
    forged.ticket.epoch += 3; /* the same slot, later */
    cr_assert_eq(fv_refusal_of(accept_frame(t, &forged, 0, 1)), FV_REFUSED_UNKNOWN_GRANT);
    forged.ticket.epoch = g.ticket.epoch + 1; /* a slot never granted */
    cr_assert_eq(fv_refusal_of(accept_frame(t, &forged, 0, 1)), FV_REFUSED_UNKNOWN_GRANT);
    forged.ticket.epoch = UINT64_MAX;
    cr_assert_eq(fv_refusal_of(accept_frame(t, &forged, 0, 1)), FV_REFUSED_UNKNOWN_GRANT);
    fv_grants_close(t);
}

Test(grant, tickets_differ) {
    fv_grants *t = open_table(64, 2);
    fv_ticket seen[64];
    for (int i = 0; i < 64; i++) {
        seen[i] = issue(t, 1, NULL).ticket;
        for (int j = 0; j < i; j++) {
            cr_assert_neq(memcmp(seen[i].id, seen[j].id, 16), 0);
            cr_assert_neq(seen[i].epoch, seen[j].epoch);
        }
    }
    fv_grants_close(t);
}

Test(grant, a_full_table_says_so_and_takes_more_when_one_ends) {
    fv_grants *t = open_table(2, 2);
    fv_grant a = issue(t, 1, NULL), more;
    issue(t, 1, NULL);
    cr_assert_eq(fv_refusal_of(fv_grants_issue(t, 1, NULL, &more)), FV_REFUSED_NO_ROOM);
    cr_assert_eq(fv_refusal_status(FV_REFUSED_NO_ROOM), FV_EBUSY);
    fv_grants_drop(t, &a.ticket);
    cr_assert_eq(fv_grants_issue(t, 1, NULL, &more), FV_OK);
    fv_grants_close(t);
}

Test(grant, every_refusal_has_a_name_of_its_own_and_a_status) {
    for (int i = 0; i < FV_N_REFUSAL; i++) {
        cr_assert_gt(strlen(fv_refusal_text((fv_refusal)i)), 0);
        cr_assert_eq(fv_refusal_status((fv_refusal)i) == FV_OK, i == FV_REFUSED_NONE);
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(fv_refusal_name((fv_refusal)i), fv_refusal_name((fv_refusal)j));
    }
}
