/* Any bytes as a policy, which is then planned. The first byte: bit 0 chooses the text form or
 * the protobuf message, the others choose checkpoint and prompt. Both forms read back as the same
 * policy, bit for bit, and no plan needs more tokens than `exact`. */
#include <stdlib.h>
#include <string.h>

#include "policy/plan/plan.h"
#include "rpc/message.h"
#include "serving/policy_message.h"
#include "tests/support/random_policy.h"
#include "tests/support/sliced.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static fv_status read_text(const uint8_t *p, size_t n, fv_policy *out) {
    char *text = malloc(n + 1);
    expect(text != NULL);
    memcpy(text, p, n);
    text[n] = '\0';
    fv_status st = fv_policy_parse(text, out);
    free(text);
    return st;
}

static fv_status read_message(const uint8_t *p, size_t n, fv_policy *out) {
    fv_arena arena = {0};
    ProtobufCMessage *m;
    grpc_byte_buffer *b = sliced(p, n, 0);
    fv_status st = fv_rpc_unpack(&fovea__inference__v1__policy__descriptor, b, &arena, &m);
    if (st == FV_OK) st = fv_policy_from_message((const Fovea__Inference__V1__Policy *)m, out);
    grpc_byte_buffer_destroy(b);
    fv_arena_fini(&arena);
    return st;
}

static void check_forms(const fv_policy *p) {
    fv_arena arena = {0};
    fv_policy again;
    Fovea__Inference__V1__Policy *m;
    char text[FV_POLICY_TEXT_MAX], other[FV_POLICY_TEXT_MAX];
    fv_policy_print(p, text);
    expect(fv_policy_parse(text, &again) == FV_OK && same_policy(p, &again));
    expect(fv_policy_to_message(p, &arena, &m) == FV_OK);
    expect(fv_policy_from_message(m, &again) == FV_OK && same_policy(p, &again));
    fv_policy_print(&again, other);
    expect(strcmp(text, other) == 0);
    fv_arena_fini(&arena);
}

static bool edits(const fv_plan *plan, int32_t layer) {
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        if (plan->prune.edit[e].layer == layer) return true;
    return false;
}

static void check_plan(const fv_policy *p, unsigned choice) {
    static const int32_t layers[] = {1, 4, 32, FV_PLAN_MAX_LAYERS}, heads[] = {1, 2, 5, 32};
    static const int32_t visual[] = {0, 1, 577, 1 << 20}, text[] = {0, 1, 50, 1 << 20};
    fv_plan_shape shape = {.n_layer = layers[choice & 3],
                           .n_kv = heads[choice >> 2 & 3],
                           .d_head = 64,
                           .bytes_value = 2,
                           .n_visual = visual[choice >> 4 & 3],
                           .n_text = text[choice >> 3 & 3]};
    fv_plan plan;
    if (fv_plan_make(p, &shape, &plan) != FV_OK) {
        expect(*fv_last_error());
        return;
    }
    for (int32_t i = 0; i < plan.prune.n_edit; i++) {
        expect(plan.prune.edit[i].layer < shape.n_layer && plan.prune.edit[i].keep >= 0);
        expect(plan.prune.edit[i].layer >= (i ? plan.prune.edit[i - 1].layer : 0));
    }
    for (int32_t l = 0; l < shape.n_layer; l++)
        expect(!plan.capture[l] || plan.pack.observed || edits(&plan, l + 1));
    for (int32_t l = 0; l < shape.n_layer; l++)
        expect(plan.visual[l] >= 0 && plan.visual[l] <= shape.n_visual);
    fv_plan_bytes bytes = fv_plan_count(&plan);
    expect(bytes.visual <= bytes.held && (bytes.held <= bytes.raw || fv_plan_packs_any(&plan)));
    expect(bytes.held == bytes.raw || !fv_policy_is_exact(p));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fv_policy p;
    if (n < 1) return 0;
    fv_status st = data[0] & 1 ? read_message(data + 1, n - 1, &p) : read_text(data + 1, n - 1, &p);
    if (st != FV_OK) {
        expect(*fv_last_error());
        return 0;
    }
    check_forms(&p);
    check_plan(&p, data[0] >> 1);
    return 0;
}
