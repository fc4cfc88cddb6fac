/* A request (prefill, hand-off in process, decode) whose n-th allocation fails, for every n: it
 * ends with FV_ENOMEM, or normally if the memory was optional, and nothing of it is left. Under
 * AddressSanitizer nothing leaks. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "decode-worker/schedule/batch.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/handoff.h"
#include "tests/support/llama_tokenizer.h"
#include "tests/support/thorough.h"

enum { TOKENS = 4, LONG = 20 };

/* A request's resources and its result. */
typedef struct job {
    handoff_rig *rig;
    const tiny_prompt *prompt;
    const char *policy;
    int32_t tokens; /* of its answer */
    fv_kv *kv;
    fv_pack_report packed;
    fv_export *transfer;
    fv_received got;
    fv_evict evict;
    fv_batch *batch;
    fv_generation *seq;
    fv_status failed; /* of its tokens */
    float *logits;    /* [vocab] */
} job;

static fv_status prefill(job *j) {
    const tiny_prompt *p = j->prompt;
    tiny_net *net = &j->rig->net;
    FV_TRY(fv_kv_open(net->pool, &j->kv));
    fv_prefill_request req = {.n = p->n,
                              .ids = p->ids,
                              .seg = p->seg,
                              .embeds =
                                  fv_tensor_of(p->embeds, FV_F32, p->n_visual, net->cfg.d_model),
                              .plan = &p->plan,
                              .kv = j->kv,
                              .packed = &j->packed};
    FV_TRY(fv_prefill_run(net->dec, &req, 1, &(fv_prefill_options){.chunk = 32}, j->logits));
    return j->packed.status;
}

static fv_status hand_off(job *j) {
    tiny_prompt sent = *j->prompt;
    bool done;
    sent.kv = j->kv;
    fv_export_request req = rig_request(j->rig, &sent, j->tokens);
    FV_TRY(fv_export_begin(j->rig->transport, &req, &j->transfer));
    FV_TRY(fv_export_layers(j->transfer, j->rig->net.cfg.n_layer));
    FV_TRY(fv_export_end(j->transfer, &(fv_first_token){.id = 3, .logprob = -1, .step = 1}));
    FV_TRY(fv_export_done(j->transfer, &done));
    return fv_receiver_attach(j->rig->receiver, fv_export_ticket(j->transfer), &j->got);
}

static void on_event(void *ctx, const fv_batch_event *e) {
    if (e->status != FV_OK) ((job *)ctx)->failed = e->status;
}

static fv_status decode(job *j) {
    fv_generation_options opt = {.sampling = fv_sampling_default(),
                                 .max_tokens = j->tokens,
                                 .context = 4096,
                                 .n_vocab = j->rig->net.cfg.vocab};
    int32_t *ids = malloc(((size_t)j->got.n + 1) * sizeof *ids);
    if (!ids) return FV_FAIL(FV_ENOMEM, "out of memory for the test's ids");
    for (int32_t i = 0; i < j->got.n; i++) ids[i] = j->got.ids[i];
    ids[j->got.n] = j->got.first.id;
    fv_status st = fv_generation_open(&opt, tok, ids, j->got.n + 1, j->got.n, &j->seq);
    free(ids);
    FV_TRY(st);
    fv_evict_init(&j->evict, &j->got.plan, j->got.n);
    FV_TRY(fv_batch_open(j->rig->net.dec, 1, 64, &j->batch));
    FV_TRY(fv_batch_join(j->batch, j->seq, j->got.kv, &j->evict, &j->got.text, j->got.n, j));
    while (j->failed == FV_OK && fv_batch_count(j->batch) > 0)
        FV_TRY(fv_batch_step(j->batch, on_event, j));
    return j->failed;
}

static fv_status run(job *j) {
    FV_TRY(prefill(j));
    FV_TRY(hand_off(j));
    return decode(j);
}

static void end(job *j) {
    if (j->batch && j->seq) fv_batch_leave(j->batch, j->seq);
    fv_batch_close(j->batch);
    fv_generation_close(j->seq);
    fv_received_free(&j->got);
    fv_export_close(j->transfer, true, NULL, NULL);
    fv_kv_close(j->kv);
}

/* The request in a newly started fleet, so that no buffer exists yet. Returns whether its n-th
 * allocation was reached. */
static bool attempt(const char *policy, int32_t n_tokens, int64_t n, fv_status *st,
                    int32_t tokens[LONG]) {
    handoff_rig rig;
    tiny_prompt prompt;
    int32_t n_ids, n_prompt;
    int64_t live = alloc_live();
    rig_open(&rig, &(rig_options){.dtype = FV_F32});
    tiny_prompt_make(&rig.net, &prompt, 3, 20, 4, 11, policy);
    job j = {.rig = &rig, .prompt = &prompt, .tokens = n_tokens, .logits = prompt.logits};
    alloc_fail_begin(n);
    *st = run(&j);
    bool came = alloc_fail_end();
    if (*st == FV_OK) {
        const int32_t *ids = fv_generation_ids(j.seq, &n_ids, &n_prompt);
        cr_assert_eq(n_ids - n_prompt, n_tokens);
        for (int i = 0; i < n_tokens; i++) tokens[i] = ids[n_prompt + i];
    }
    end(&j);
    rig_assert_baseline(&rig, policy);
    rig_finish(&rig, &prompt);
    cr_assert_eq(alloc_live(), live, "%s, allocation %lld: %lld are left", policy, (long long)n,
                 (long long)(alloc_live() - live));
    return came;
}

static void each_allocation_of(const char *policy, int32_t tokens) {
    int32_t want[LONG], got[LONG];
    int64_t n_failed = 0;
    fv_status st;
    attempt(policy, tokens, INT64_MAX, &st, want);
    cr_assert_eq(st, FV_OK, "%s: %s", policy, fv_last_error());
    for (int64_t n = 1; attempt(policy, tokens, n, &st, got); n += sanitized_step(3)) {
        n_failed += st != FV_OK;
        cr_assert(st == FV_OK || st == FV_ENOMEM, "%s, allocation %lld: %s, %s", policy,
                  (long long)n, fv_status_name(st), fv_last_error());
        for (int i = 0; st == FV_OK && i < tokens; i++)
            cr_assert_eq(got[i], want[i], "%s, allocation %lld: another answer", policy,
                         (long long)n);
    }
    cr_assert_gt(n_failed, 20, "%s: the request allocates", policy);
}

static void each_allocation(const char *policy) { each_allocation_of(policy, TOKENS); }

TestSuite(out_of_memory, .init = open_tokenizer, .fini = close_tokenizer);

Test(out_of_memory, exact) { each_allocation(""); }

Test(out_of_memory, tokens_that_are_pruned_selected_and_evicted) {
    each_allocation("prune=fastv,layer=1,keep=0.5;evict=h2o,heavy=0.3,recent=0.3");
    each_allocation("prune=pvtp,layer=1,stride=1,first=0.3,ratio=0.1;evict=vta,tau=9");
    each_allocation("prune=visipruner,filter=1,l2=0.3");
    each_allocation("select=csp,heavy=0.3,recent=0.2");
    each_allocation("select=snapkv,heavy=0.3");
    each_allocation("lazy=vla,map=given,blocks=1-2");
}

Test(out_of_memory, compressed_layers) {
    each_allocation("pack=svd,rank_k=4,rank_v=4,gain=0;expand=attention;evict=importance");
    each_allocation("pack=svd,rank_k=4,rank_v=4,gain=0,compress_text=keys,rank_text=4");
    each_allocation("pack=quant");
    each_allocation("pack=minicache,start=0");
}

/* Text becomes codes after the prompt, and again after 16 tokens of the answer. */
Test(out_of_memory, text_in_codes) {
    each_allocation_of("pack=quant,compress_text=all,recompress=16", LONG);
    each_allocation("pack=latent,compress_text=keys");
}
