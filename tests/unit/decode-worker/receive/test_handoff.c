/* From prefilled KV to KV decoded elsewhere: prefill-worker/export/export.c, every transport fault,
 * decode-worker/receive/receive.c. Corrupted streams: test_handoff_streams.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/handoff.h"
#include "tests/support/thorough.h"

static const char *const policies[] = {
    "",
    "prune=vtw,layer=2",
    "prune=random,layer=1,keep=0.4,seed=3",
    "select=streaming,sink=3,recent=0.25,full_heads=0.5",
    "prune=random,layer=2,keep=0.5;select=streaming,sink=2,recent=0.3,full_heads=0",
    "select=csp,heavy=0.5,recent=0.1,dup=official",
    "prune=random,layer=2,keep=0.5;select=h2o,heavy=0.3",
    "pack=svd,rank_k=12,rank_v=9,gain=0;expand=attention",
    "lazy=vla,map=given,blocks=1-2",
    "lazy=gla,map=given,blocks=1-2;select=streaming,sink=2,recent=0.3,full_heads=0",
    "lazy=vla,map=given,blocks=1-2;select=csp,heavy=0.4,recent=0.1,dup=official;evict=vta,layer=1",
    "prune=visipruner,filter=1,l2=0.05;lazy=gla,map=given,blocks=1-2",
    "lazy=vla,map=given,blocks=1-2;pack=svd,rank_k=12,rank_v=9,gain=0;expand=full",
};
enum { N_POLICY = sizeof policies / sizeof policies[0], VISUAL = RIG_VISUAL, STEPS = 3, MORE = 40 };

/* ---- arrival ----------------------------------------------------------------------------- */

Test(handoff, kv_arrives_bit_for_bit_however_it_is_cut) {
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16, FV_F16};
    static const uint32_t frames[] = {1, 7, 1 << 20};
    for (int i = 0; i < N_POLICY * 9; i += thorough() ? 1 : 4) {
        const char *policy = policies[i / 9];
        handoff_rig rig;
        tiny_prompt p;
        uint64_t bytes = 0;
        rig_start(&rig, &(rig_options){.dtype = dtypes[i % 3], .frame_max = frames[i / 3 % 3]}, &p,
                  policy);
        for (int32_t group = 0; group <= 3; group++) { /* of layers; 0: all at once */
            fv_received got;
            fv_export_report sent;
            cr_assert_eq(rig_send(&rig, &p, MORE, group, &got, &sent), FV_OK, "%s: %s", policy,
                         fv_last_error());
            cr_assert(same_store(p.kv, got.kv), "%s, groups of %d", policy, group);
            bytes += sent.bytes;
            cr_assert_eq(fv_receiver_get_counters(rig.receiver)->bytes, bytes);
            cr_assert_geq(sent.frames, (sent.bytes - 1) / frames[i / 3 % 3] + 1);
            fv_received_free(&got);
            rig_assert_baseline(&rig, policy);
        }
        rig_finish(&rig, &p);
    }
}

Test(handoff, everything_that_decoding_needs_arrives) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_start(&rig, &(rig_options){.dtype = FV_BF16}, &p, policies[3]);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK);
    cr_assert_eq(got.n, p.n);
    cr_assert_eq(got.next, p.n);
    cr_assert_eq(got.max_tokens, MORE);
    cr_assert_eq(memcmp(got.ids, p.ids, (size_t)p.n * sizeof *p.ids), 0);
    cr_assert_eq(memcmp(got.seg, p.seg, (size_t)p.n), 0);
    cr_assert(got.first.id == 3 && got.first.logprob == -1.5f && got.first.step == 1);
    cr_assert(got.sampling.repetition_penalty == 1.25f && got.sampling.seed == 99);
    cr_assert(got.sampling.presence_penalty == -0.5f && got.sampling.frequency_penalty == 0.75f &&
              got.sampling.min_p == 0.125f);
    cr_assert_eq(got.sampling.n_bias, 2);
    cr_assert(got.sampling.bias[0].id == 7 && got.sampling.bias[0].bias == -2.5f &&
              got.sampling.bias[1].id == 96 && got.sampling.bias[1].bias == 100);
    fv_policy same;
    char text[FV_POLICY_TEXT_MAX];
    cr_assert_eq(fv_policy_parse(got.policy, &same), FV_OK);
    fv_policy_print(&p.plan.policy, text);
    cr_assert_str_eq(got.policy, text);
    fv_received_free(&got);
    rig_finish(&rig, &p);
}

/* Logits of a few steps, with the KV that prefill left or with the KV that arrived. */
static void decode(const char *policy, fv_dtype dtype, bool elsewhere, float logits[STEPS][97]) {
    handoff_rig rig;
    tiny_prompt p, *one = &p;
    rig_start(&rig, &(rig_options){.dtype = dtype}, &p, policy);
    if (elsewhere) {
        fv_received got;
        cr_assert_eq(rig_send(&rig, &p, MORE, 1, &got, NULL), FV_OK, "%s", fv_last_error());
        fv_kv_close(p.kv);
        p.kv = got.kv;
        got.kv = NULL;
        fv_received_free(&got);
        cr_assert_eq(fv_kv_pool_used(rig.net.pool), 0, "the prefill side is done with it");
    }
    for (int s = 0; s < STEPS; s++) {
        int32_t id = 13 + s;
        cr_assert_eq(tiny_step(&rig.net, &one, 1, &id, 1, s), FV_OK);
        memcpy(logits[s], p.logits, sizeof logits[s]);
    }
    rig_finish(&rig, &p);
}

Test(handoff, decoding_continues_with_the_same_bits) {
    static float here[STEPS][97], there[STEPS][97];
    for (int i = 0; i < N_POLICY; i++)
        for (int dtype = 0; dtype < FV_N_DTYPE; dtype++) {
            decode(policies[i], (fv_dtype)dtype, false, here);
            decode(policies[i], (fv_dtype)dtype, true, there);
            cr_assert(same_bits(here[0], there[0], STEPS * 97), "%s", policies[i]);
        }
}

/* Logits of a few steps of a model with recurrent layers, here or where its state has arrived. */
static void decode_recurrent(const char *policy, bool elsewhere, float logits[STEPS][97]) {
    handoff_rig rig;
    tiny_prompt p, *one = &p;
    tiny_shape shape = tiny_shape_mrope(true);
    shape.recurrent = 2;
    shape.section[0] = shape.section[1] = shape.section[2] = 2;
    rig_start(&rig, &(rig_options){.shape = shape, .dtype = FV_BF16}, &p, policy);
    if (elsewhere) {
        fv_received got;
        cr_assert_eq(rig_send(&rig, &p, MORE, 1, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv), "%s", policy);
        fv_kv_close(p.kv);
        p.kv = got.kv;
        got.kv = NULL;
        fv_received_free(&got);
    }
    for (int s = 0; s < STEPS; s++) {
        int32_t id = 13 + s;
        cr_assert_eq(tiny_step(&rig.net, &one, 1, &id, 1, s), FV_OK, "%s", fv_last_error());
        memcpy(logits[s], p.logits, sizeof logits[s]);
    }
    rig_finish(&rig, &p);
}

Test(handoff, the_state_of_recurrent_layers_arrives_and_goes_on) {
    static float here[STEPS][97], there[STEPS][97];
    for (int i = 0; i < N_POLICY; i++) {
        decode_recurrent(policies[i], false, here);
        decode_recurrent(policies[i], true, there);
        cr_assert(same_bits(here[0], there[0], STEPS * 97), "%s", policies[i]);
    }
}

Test(handoff, heads_with_equally_many_but_other_tokens_arrive) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_start(&rig, &(rig_options){.dtype = FV_BF16}, &p, "");
    int32_t even[35], odd[35], n[2] = {35, 35};
    const int32_t *idx[2] = {even, odd};
    for (int32_t i = 0; i < 35; i++) {
        even[i] = 2 * i;
        odd[i] = 2 * i + 1;
    }
    cr_assert_eq(fv_kv_keep(p.kv, 2, FV_SEG_VISUAL, idx, n), FV_OK);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    cr_assert(same_store(p.kv, got.kv));
    fv_received_free(&got);
    rig_finish(&rig, &p);
}

Test(handoff, a_prompt_without_images_and_one_of_a_single_token_arrive) {
    for (int32_t rows = 1; rows <= 130; rows += 43) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = FV_F32});
        tiny_prompt_make(&rig.net, &p, 0, 0, rows, 5, "");
        cr_assert_eq(tiny_prefill(&rig.net, &p, 1, 0), FV_OK);
        cr_assert_eq(rig_send(&rig, &p, 0, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv));
        fv_received_free(&got);
        rig_finish(&rig, &p);
    }
}

/* ---- memory ---------------------------------------------------------------------------- */

Test(handoff, a_grant_reserves_prompt_and_answer_and_releases_the_rest) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, policies[3]);
    fv_export_request req = rig_request(&rig, &p, 200);
    fv_export *ship;
    size_t row = 2 * 24 * sizeof(float);
    cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
    size_t visual = (size_t)fv_plan_count(&p.plan).visual;
    size_t granted = visual + 4 * 2 * 4 * FV_KV_BLOCK * row; /* 14 + 200 rows: 4 pages */
    cr_assert_lt(visual, 4 * 2 * VISUAL * row, "one of two heads keeps fewer");
    cr_assert_eq(fv_kv_pool_used(rig.pool), granted);
    fv_export_close(ship, true, NULL, NULL);
    rig_assert_baseline(&rig, "giving up");
    cr_assert_eq(fv_receiver_get_counters(rig.receiver)->aborted, 1);

    cr_assert_eq(rig_send(&rig, &p, 200, 1, &got, NULL), FV_OK);
    /* A head keeps all 14 text tokens, the other 12: 4 pages each, as was granted. */
    size_t held = fv_kv_bytes(p.kv, FV_SEG_VISUAL) + 4 * 2 * 4 * FV_KV_BLOCK * row;
    cr_assert_eq(fv_kv_pool_used(rig.pool), held);
    cr_assert_eq(got.bytes_surplus, granted - held);
    for (int32_t l = 0; l < 4; l++) cr_assert_eq(fv_kv_reserve(got.kv, l, 200), FV_OK);
    cr_assert_eq(fv_kv_pool_used(rig.pool), held, "the answer's pages are there already");
    fv_received_free(&got);
    rig_finish(&rig, &p);
}

/* However a stream is cut, the receiver never holds more than was reserved with the grant, and
 * releases the rest at commit. */
Test(handoff, no_frame_makes_the_decode_side_hold_more_than_it_granted) {
    for (int i = 0; i < N_POLICY; i++) {
        handoff_rig rig;
        tiny_prompt p;
        rig_stream s;
        fv_grant grant;
        fv_received got;
        rig_start(&rig, &(rig_options){.dtype = FV_F16}, &p, policies[i]);
        rig_capture(&rig, &p, MORE, &s);
        fv_sink *sink = fv_receiver_sink(rig.receiver);
        cr_assert_eq(sink->ops->offer(sink, &s.hello, &grant), FV_OK);
        size_t granted = fv_kv_pool_used(rig.pool), row = 2 * 24 * sizeof(uint16_t), at = 0;
        size_t slab = 128 * FV_KV_BLOCK * row; /* 256 pages */
        size_t text =
            fv_kv_text_bytes(fv_kv_pool_shape(rig.pool), 14 + p.plan.select.dup_max + MORE,
                             fv_plan_reused_text(&p.plan));
        size_t pages = (text + slab - 1) / slab;
        cr_assert_eq(granted, text + s.hello.bytes_visual + s.hello.bytes_tables);
        for (uint64_t seq = 0; at < s.n; seq++) {
            fv_piece part = {s.bytes + at, s.n - at < 777 ? s.n - at : 777};
            cr_assert_eq(sink->ops->frame(sink, &grant.ticket, seq, &part, 1), FV_OK);
            cr_assert_eq(fv_kv_pool_used(rig.pool), granted);
            cr_assert_leq(fv_kv_pool_memory(rig.pool),
                          pages * slab + s.hello.bytes_visual + s.hello.bytes_tables);
            at += part.bytes;
        }
        cr_assert_eq(sink->ops->commit(sink, &grant.ticket, (s.n + 776) / 777), FV_OK);
        cr_assert_eq(fv_receiver_attach(rig.receiver, &grant.ticket, &got), FV_OK);
        size_t held = fv_kv_bytes(got.kv, FV_SEG_VISUAL) + fv_kv_packed_tables(got.kv);
        for (int32_t l = 0; l < 4; l++)
            for (int32_t g = 0; g < 2; g++)
                held += (size_t)(fv_kv_len(got.kv, l, g, FV_SEG_TEXT) + MORE + FV_KV_BLOCK - 1) /
                        FV_KV_BLOCK * FV_KV_BLOCK * row /
                        (fv_kv_borrows(got.kv, l, FV_SEG_TEXT) ? 2 : 1);
        cr_assert_eq(fv_kv_pool_used(rig.pool), held, "%s", policies[i]);
        cr_assert_eq(got.bytes_surplus, granted - held);
        fv_received_free(&got);
        free(s.bytes);
        rig_finish(&rig, &p);
    }
}

Test(handoff, a_full_decode_side_says_so_before_anything_is_sent) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got, second;
    rig_start(&rig, &(rig_options){.dtype = FV_F32, .pool_bytes = 400000}, &p, "");
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    size_t used = fv_kv_pool_used(rig.pool);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &second, NULL), FV_EBUSY);
    cr_assert(strstr(fv_last_error(), "KV pool is full"), "%s", fv_last_error());
    cr_assert_eq(fv_receiver_get_counters(rig.receiver)->refused[FV_REFUSED_NO_ROOM], 1);
    cr_assert_eq(fv_kv_pool_used(rig.pool), used);
    fv_received_free(&got);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "and has room again");
    fv_received_free(&got);
    rig_finish(&rig, &p);
}

Test(handoff, without_a_free_grant_the_reservation_is_released) {
    handoff_rig rig;
    tiny_prompt p;
    fv_export *first, *second;
    rig_start(&rig, &(rig_options){.dtype = FV_F32, .capacity = 1}, &p, "");
    fv_export_request req = rig_request(&rig, &p, MORE);
    cr_assert_eq(fv_export_begin(rig.transport, &req, &first), FV_OK);
    size_t used = fv_kv_pool_used(rig.pool);
    cr_assert_eq(fv_export_begin(rig.transport, &req, &second), FV_EBUSY);
    cr_assert_eq(fv_kv_pool_used(rig.pool), used);
    fv_export_close(first, true, NULL, NULL);
    rig_assert_baseline(&rig, "the first");
    rig_finish(&rig, &p);
}

Test(handoff, tokens_beyond_the_grant_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    p.plan.visual[2]--; /* the plan promised a token less than there is */
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_EDATA);
    cr_assert_eq(fv_receiver_get_counters(rig.receiver)->refused[FV_REFUSED_OVER_BUDGET], 1);
    rig_assert_baseline(&rig, "too many rows");
    rig_finish(&rig, &p);
}

Test(handoff, bytes_beyond_the_grant_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_stream s;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    rig_capture(&rig, &p, MORE, &s);
    fv_hello small = s.hello;
    small.n_visual = 1; /* a grant for a small image, and the frames of a large one */
    small.bytes_visual = 8 * 2 * 24 * sizeof(float);
    cr_assert_neq(rig_deliver(rig.receiver, &small, s.bytes, s.n, 4096, &got), FV_OK);
    rig_assert_baseline(&rig, "another stream");
    fv_grant grant;
    fv_sink *sink = fv_receiver_sink(rig.receiver);
    cr_assert_eq(sink->ops->offer(sink, &s.hello, &grant), FV_OK);
    cr_assert_geq(grant.bytes, s.n);
    cr_assert_lt(grant.bytes, s.n + s.n / 2 + 70000, "a bound, and not a far one");
    sink->ops->abort(sink, &grant.ticket);
    free(s.bytes);
    rig_finish(&rig, &p);
}

/* ---- senders ----------------------------------------------------------------------------- */

Test(handoff, another_model_is_refused_by_the_field_that_differs) {
    handoff_rig rig;
    tiny_prompt p;
    fv_export *ship;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    fv_export_request req = rig_request(&rig, &p, MORE);
    req.model = "huge";
    cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "model is huge, and must be tiny"), "%s", fv_last_error());
    cr_assert_eq(fv_receiver_get_counters(rig.receiver)->refused[FV_REFUSED_INCOMPATIBLE], 1);
    rig_assert_baseline(&rig, "another model");
    rig_finish(&rig, &p);
}

Test(handoff, invalid_offers_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    rig_capture(&rig, &p, MORE, &s);
    char longer[FV_POLICY_TEXT_MAX + 1];
    memset(longer, 'x', sizeof longer);
    longer[FV_POLICY_TEXT_MAX] = '\0';
    for (int i = 0; i < 6; i++) {
        fv_hello h = s.hello;
        fv_grant grant;
        if (i == 0) h.n_text = h.n_visual = 0;
        if (i == 1) h.max_tokens = RIG_POSITIONS - h.n_text - h.n_visual + 1;
        if (i == 2) h.n_text = h.max_tokens = UINT32_MAX;
        if (i == 3) h.bytes_visual = 4 * (3 * h.n_visual * 2 * 2 * 24 * sizeof(float) + 4096) + 1;
        if (i == 4) h.bytes_visual = UINT64_MAX;
        if (i == 5) h.policy = longer;
        fv_sink *sink = fv_receiver_sink(rig.receiver);
        cr_assert_eq(fv_refusal_of(sink->ops->offer(sink, &h, &grant)), FV_REFUSED_INVALID, "%d",
                     i);
        rig_assert_baseline(&rig, "an offer");
    }
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff, tokens_and_sampling_that_would_harm_the_decoder_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    fv_export *ship;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    int32_t id = p.ids[1];
    static const int32_t bad[] = {-1, 97, INT32_MAX};
    for (int i = 0; i < 3; i++) {
        p.ids[1] = bad[i];
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_EDATA);
        rig_assert_baseline(&rig, "an id");
    }
    p.ids[1] = id;
    p.ids[20] = 1 << 20; /* an image token: its id is never read as a text token's */
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    fv_received_free(&got);
    fv_export_request req = rig_request(&rig, &p, MORE);
    req.sampling.temperature = NAN;
    cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
    cr_assert_eq(fv_export_layers(ship, 4), FV_EINVAL);
    fv_export_close(ship, true, NULL, NULL);
    rig_assert_baseline(&rig, "a temperature");
    rig_finish(&rig, &p);
}

/* ---- faults ---------------------------------------------------------------------------- */

/* Sends one hand-off over a transport with this fault. */
static void with_fault(fv_fault fault, uint64_t seed, const char *policy) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    fv_export_report clean;
    rig_options opt = {.dtype = FV_BF16, .frame_max = 4096};
    rig_start(&rig, &opt, &p, policy);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, &clean), FV_OK);
    fv_received_free(&got);
    rig_finish(&rig, &p);

    opt.fault = &(fv_fault_options){.fault = fault, .seed = seed, .n_frame = clean.frames};
    rig_start(&rig, &opt, &p, policy);
    fv_status st = rig_send(&rig, &p, MORE, 0, &got, NULL);
    const fv_receiver_counters *count = fv_receiver_get_counters(rig.receiver);
    cr_assert_eq(rig.fired, 1, "%s, seed %d", fv_fault_name(fault), (int)seed);
    cr_assert_neq(st, FV_OK, "%s, seed %d", fv_fault_name(fault), (int)seed);
    if (fault == FV_FAULT_SILENCE) { /* no response, until the deadline */
        cr_assert_eq(fv_receiver_live(rig.receiver), 1);
        cr_assert_gt(fv_kv_pool_used(rig.pool), 0);
        rig.now += 1000;
        cr_assert_eq(fv_receiver_expire(rig.receiver), 1);
    } else {
        cr_assert_geq(rig_refused(&rig), 1, "%s, seed %d", fv_fault_name(fault), (int)seed);
    }
    cr_assert_eq(count->committed, 0);
    rig_assert_baseline(&rig, fv_fault_name(fault));
    rig_finish(&rig, &p);
}

Test(handoff, every_fault_is_refused_and_counted_and_leaves_nothing) {
    for (int fault = FV_FAULT_NONE + 1; fault < FV_N_FAULT; fault++)
        for (uint64_t seed = 0; seed < 25; seed++)
            if (fault != FV_FAULT_REPLAY)
                with_fault((fv_fault)fault, seed, policies[seed % N_POLICY]);
}

Test(handoff, a_frame_of_an_earlier_hand_off_is_refused_and_disturbs_nobody) {
    for (uint64_t seed = 0; seed < 25; seed++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        fv_fault_options fault = {.fault = FV_FAULT_REPLAY, .seed = seed, .n_frame = 4};
        int32_t capacity = seed % 2 ? 1 : 0; /* in the old slot, or in another */
        rig_start(&rig,
                  &(rig_options){
                      .dtype = FV_F32, .frame_max = 8192, .capacity = capacity, .fault = &fault},
                  &p, policies[seed % N_POLICY]);
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
            cr_assert(same_store(p.kv, got.kv));
            fv_received_free(&got);
        }
        cr_assert_eq(rig.fired, 1);
        const fv_receiver_counters *count = fv_receiver_get_counters(rig.receiver);
        fv_refusal why = capacity ? FV_REFUSED_STALE_EPOCH : FV_REFUSED_CLOSED;
        cr_assert_eq(count->refused[why], 1);
        cr_assert_eq(count->attached, 2);
        rig_assert_baseline(&rig, "a replay");
        rig_finish(&rig, &p);
    }
}

Test(handoff, a_refused_frame_ends_the_hand_off_without_the_sender_giving_up) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    fv_grant grant;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    rig_capture(&rig, &p, MORE, &s);
    fv_sink *sink = fv_receiver_sink(rig.receiver);
    cr_assert_eq(sink->ops->offer(sink, &s.hello, &grant), FV_OK);
    fv_piece piece = {s.bytes, s.n / 2};
    cr_assert_eq(sink->ops->frame(sink, &grant.ticket, 0, &piece, 1), FV_OK);
    s.bytes[s.n / 2 + 1] ^= 4;
    piece = (fv_piece){s.bytes + s.n / 2, s.n - s.n / 2};
    cr_assert_eq(fv_refusal_of(sink->ops->frame(sink, &grant.ticket, 1, &piece, 1)),
                 FV_REFUSED_CHECKSUM);
    rig_assert_baseline(&rig, "a bad frame");
    cr_assert_eq(fv_refusal_of(sink->ops->frame(sink, &grant.ticket, 1, &piece, 1)),
                 FV_REFUSED_CLOSED);
    cr_assert_eq(fv_refusal_of(sink->ops->commit(sink, &grant.ticket, 2)), FV_REFUSED_CLOSED);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff, an_expired_lease_releases_everything) {
    handoff_rig rig;
    tiny_prompt p;
    fv_export *ship;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    fv_export_request req = rig_request(&rig, &p, MORE);
    cr_assert_eq(fv_receiver_next_deadline(rig.receiver), HUGE_VAL);
    cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
    cr_assert_eq(fv_export_layers(ship, 2), FV_OK);
    cr_assert_float_eq(fv_receiver_next_deadline(rig.receiver), 31, 1e-9);
    rig.now = 30.9;
    cr_assert_eq(fv_receiver_expire(rig.receiver), 0);
    rig.now = 31;
    cr_assert_eq(fv_receiver_expire(rig.receiver), 1);
    rig_assert_baseline(&rig, "the lease");
    cr_assert_eq(fv_export_layers(ship, 4), FV_ECANCELLED);
    cr_assert_eq(fv_receiver_get_counters(rig.receiver)->refused[FV_REFUSED_EXPIRED], 1);
    fv_export_close(ship, true, NULL, NULL);
    rig_finish(&rig, &p);
}

Test(handoff, unattached_kv_is_released_and_attached_kv_is_moved) {
    handoff_rig rig;
    tiny_prompt p;
    fv_export *ship;
    fv_received got;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    fv_export_request req = rig_request(&rig, &p, MORE);
    for (int claim = 0; claim < 2; claim++) {
        bool done = false;
        cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
        cr_assert_eq(fv_export_layers(ship, 4), FV_OK);
        fv_ticket ticket = *fv_export_ticket(ship), forged = ticket;
        cr_assert_eq(fv_refusal_of(fv_receiver_attach(rig.receiver, &ticket, &got)),
                     FV_REFUSED_PENDING);
        cr_assert_eq(fv_export_end(ship, &(fv_first_token){.id = 1}), FV_OK);
        cr_assert_eq(fv_export_done(ship, &done), FV_OK);
        cr_assert(done);
        fv_export_close(ship, true, NULL, NULL);
        cr_assert_eq(fv_receiver_live(rig.receiver), 1, "the sender may go");
        forged.id[3] ^= 8;
        cr_assert_eq(fv_refusal_of(fv_receiver_attach(rig.receiver, &forged, &got)),
                     FV_REFUSED_UNKNOWN_GRANT);
        if (claim) {
            cr_assert_eq(fv_receiver_attach(rig.receiver, &ticket, &got), FV_OK);
            fv_received again;
            cr_assert_eq(fv_refusal_of(fv_receiver_attach(rig.receiver, &ticket, &again)),
                         FV_REFUSED_CLOSED);
            fv_received_free(&got);
        } else {
            rig.now += 31;
            cr_assert_eq(fv_refusal_of(fv_receiver_attach(rig.receiver, &ticket, &got)),
                         FV_REFUSED_EXPIRED);
        }
        rig_assert_baseline(&rig, "the claim");
    }
    rig_finish(&rig, &p);
}

Test(handoff, ten_thousand_random_aborts_leak_nothing) {
    handoff_rig rig;
    tiny_prompt p;
    fv_export *ship;
    tiny_shape small = {
        .n_layer = 3, .n_head = 2, .n_kv = 2, .d_head = 8, .d_ffn = 16, .vocab = 97};
    rig_open(&rig, &(rig_options){.shape = small, .dtype = FV_F16, .frame_max = 1000});
    tiny_prompt_make(&rig.net, &p, 3, 20, 4, 1, "select=streaming,sink=2,recent=0.5");
    cr_assert_eq(tiny_prefill(&rig.net, &p, 1, 0), FV_OK);
    fv_export_request req = rig_request(&rig, &p, 4);
    uint32_t random = 12345;
    uint64_t committed = 0, granted = 0;
    for (int i = 0; i < 10000; i++) {
        random = random * 1664525u + 1013904223u;
        int32_t layers = (int32_t)(random >> 28) % 4;
        cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
        granted++;
        for (int32_t l = 0; l < layers; l++) cr_assert_eq(fv_export_layers(ship, l + 1), FV_OK);
        if (layers == 3 && (random >> 20 & 1)) {
            fv_received got;
            cr_assert_eq(fv_export_end(ship, &(fv_first_token){.id = 1}), FV_OK);
            committed++;
            if (random >> 21 & 1) {
                cr_assert_eq(fv_receiver_attach(rig.receiver, fv_export_ticket(ship), &got), FV_OK);
                fv_received_free(&got);
            } else {
                rig.now += 31; /* and never attached */
                fv_receiver_expire(rig.receiver);
            }
        }
        fv_export_close(ship, true, NULL, NULL);
        rig_assert_baseline(&rig, "an abort");
    }
    const fv_receiver_counters *count = fv_receiver_get_counters(rig.receiver);
    cr_assert_eq(count->granted, granted);
    cr_assert_eq(count->committed, committed);
    cr_assert_eq(count->granted, count->attached + count->aborted + count->expired);
    rig_finish(&rig, &p);
}

/* ---- layers sent while others are computed ---------------------------------------------- */

static fv_status ship_final(void *user, int32_t n_layer) {
    return fv_export_layers(*(fv_export **)user, n_layer);
}

Test(handoff, layers_are_sent_while_later_ones_are_computed) {
    for (int i = 0; i < N_POLICY; i++) {
        handoff_rig rig;
        tiny_prompt whole, p;
        fv_export *ship = NULL;
        fv_received got;
        bool done = false;
        rig_start(&rig, &(rig_options){.dtype = FV_BF16}, &whole, policies[i]);
        tiny_prompt_make(&rig.net, &p, 5, 70, 9, 11, policies[i]);
        cr_assert_eq(fv_kv_open(rig.net.pool, &p.kv), FV_OK);
        fv_export_request req = rig_request(&rig, &p, MORE);
        cr_assert_eq(fv_export_begin(rig.transport, &req, &ship), FV_OK);
        rig.net.prefill = (fv_prefill_options){.group = 1, .final = ship_final, .user = &ship};
        cr_assert_eq(tiny_prefill(&rig.net, &p, 1, 16), FV_OK);
        cr_assert_eq(fv_export_layers(ship, 4), FV_OK);
        cr_assert_eq(fv_export_end(ship, &(fv_first_token){.id = 1}), FV_OK);
        cr_assert_eq(fv_export_done(ship, &done), FV_OK);
        cr_assert(done);
        cr_assert_eq(fv_receiver_attach(rig.receiver, fv_export_ticket(ship), &got), FV_OK);
        cr_assert(same_store(p.kv, got.kv), "'%s'", policies[i]);
        cr_assert(same_store(whole.kv, got.kv), "'%s'", policies[i]);
        cr_assert_geq(fv_export_get_report(ship).frames, 4, "each group leaves when it is there");
        fv_export_close(ship, true, NULL, NULL);
        fv_received_free(&got);
        tiny_prompt_free(&whole);
        rig_finish(&rig, &p);
    }
}

/* ---- a slow transport ------------------------------------------------------------------ */

typedef struct slow {
    fv_transport base;
    fv_transport *inner;
    fv_on_reply done;
    void *user;
    fv_reply reply;
} slow;

static slow slow_way;

static void slow_reply(void *user, const fv_reply *reply) { ((slow *)user)->reply = *reply; }

static fv_status slow_open(fv_transport *t, const fv_hello *hello, const fv_grant_request *asking,
                           fv_on_reply done, void *user, fv_transfer **out) {
    slow *s = (slow *)t;
    s->done = done;
    s->user = user;
    return s->inner->ops->open(s->inner, hello, asking, slow_reply, s, out);
}

Test(handoff, a_grant_may_come_later) {
    static const fv_transport_ops ops = {.name = "slow", .open = slow_open};
    handoff_rig rig;
    tiny_prompt p;
    fv_export *ship;
    fv_received got;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    slow_way = (slow){.base.ops = &ops, .inner = rig.transport};
    fv_export_request req = rig_request(&rig, &p, MORE);
    bool done = true;
    cr_assert_eq(fv_export_begin(&slow_way.base, &req, &ship), FV_OK);
    cr_assert_eq(fv_export_layers(ship, 2), FV_EBUSY, "not yet, and nothing is lost");
    cr_assert_eq(fv_export_done(ship, &done), FV_OK);
    cr_assert_not(done);
    slow_way.done(slow_way.user, &slow_way.reply);
    cr_assert_eq(fv_export_layers(ship, 2), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_export_layers(ship, 4), FV_OK);
    cr_assert_eq(fv_export_end(ship, &(fv_first_token){.id = 1}), FV_OK);
    cr_assert_eq(fv_receiver_attach(rig.receiver, fv_export_ticket(ship), &got), FV_OK);
    cr_assert(same_store(p.kv, got.kv));
    fv_export_close(ship, true, NULL, NULL);
    fv_received_free(&got);
    rig_finish(&rig, &p);
}

Test(handoff, a_receiver_that_closes_ends_what_is_in_flight) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    fv_grant grant;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, "");
    rig_capture(&rig, &p, MORE, &s);
    fv_sink *sink = fv_receiver_sink(rig.receiver);
    for (int i = 0; i < 3; i++) {
        fv_piece part = {s.bytes, s.n / 2};
        cr_assert_eq(sink->ops->offer(sink, &s.hello, &grant), FV_OK);
        cr_assert_eq(sink->ops->frame(sink, &grant.ticket, 0, &part, 1), FV_OK);
    }
    cr_assert_eq(fv_receiver_live(rig.receiver), 3);
    free(s.bytes);
    rig_finish(&rig, &p); /* the pool asserts that nothing is held when it closes */
}
