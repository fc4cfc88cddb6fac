/* Any bytes as a client's request to the router. The first byte chooses the served model. An
 * admitted request has a bound on its bytes; a refused one has an error message. */
#include <stdlib.h>
#include <string.h>

#include "router/admit.h"
#include "rpc/message.h"
#include "tests/support/sliced.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Model model_message;

static void expect(bool holds) {
    if (!holds) abort();
}

/* Models as workers introduce them: from one that fits into a test to the largest that a router
 * accepts, with and without limits. */
static model_message model_of(unsigned choice, Fovea__Inference__V1__Limits *limits,
                              Fovea__Inference__V1__ImageLayout *layout) {
    static char name[] = "tiny", fingerprint[] = "f00d", f32[] = "f32", bf16[] = "bf16";
    static char llava[] = "llava", qwen_vl[] = "qwen_vl";
    model_message m = FOVEA__INFERENCE__V1__MODEL__INIT;
    fovea__inference__v1__limits__init(limits);
    m.name = name;
    m.fingerprint = fingerprint;
    m.kv_dtype = choice & 1 ? f32 : bf16;
    m.n_layer = choice & 2 ? 256 : 4;
    m.n_kv = choice & 2 ? 64 : 2;
    m.d_head = choice & 2 ? 65536 : 16;
    m.n_vocab = choice & 4 ? 0 : 1000;
    m.image_token = choice & 8 ? 0 : 999;
    fovea__inference__v1__image_layout__init(layout);
    layout->family = llava;
    layout->tile = layout->shortest_edge = choice & 16 ? 4200 : 56;
    layout->patch = 14;
    layout->merge = 1;
    m.n_image_tokens = choice & 16 ? 90000 : 16;
    m.image_layout = layout;
    if (choice &
        128) { /* videos too; frames have the limits of images, so as many tokens at most */
        layout->family = qwen_vl;
        layout->merge = 2;
        layout->pixels_min = layout->video_pixels_min = 784;
        layout->pixels_max = layout->video_pixels_max = 9 * 784;
        layout->tokens_per_second = 2;
        m.n_image_tokens = 43;
        m.video_token = 998;
    }
    if (choice & 32) return m;
    limits->n_images = 8;
    limits->bytes_image = 1 << 20;
    limits->side_max = choice & 64 ? UINT32_MAX : 16384;
    limits->pixels_max = choice & 64 ? UINT64_MAX : 1 << 20;
    limits->pixels_request = 2 << 20;
    limits->max_positions = choice & 64 ? UINT32_MAX : 512;
    limits->max_tokens_default = choice & 64 ? UINT32_MAX : 32;
    m.limits = limits;
    return m;
}

/* An upper bound: a policy that drops nothing, and as many tokens as the message has bytes. */
static double bytes_most(const model_message *m, const request_message *r, size_t n,
                         uint32_t max_tokens) {
    double rows = (double)r->n_images * m->n_image_tokens + 64.0 * (double)(n + 1) + max_tokens;
    return rows * m->n_layer * m->n_kv * m->d_head * 2 * 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    fv_arena arena = {0};
    ProtobufCMessage *p;
    Fovea__Inference__V1__Limits limits;
    Fovea__Inference__V1__ImageLayout layout;
    model_message model = model_of(data[0], &limits, &layout);
    grpc_byte_buffer *b = sliced(data + 1, n - 1, 0);
    if (fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, b, &arena, &p) ==
        FV_OK) {
        const request_message *r = (const request_message *)p;
        fv_request_bounds need = {0};
        fv_status st = fv_admit(r, &model, 60000, data[0] & 64 ? UINT32_MAX : 32, &need);
        if (st == FV_OK)
            expect(need.max_tokens > 0 && need.bytes > 0 &&
                   (double)need.bytes <= bytes_most(&model, r, n, need.max_tokens));
        else
            expect((st == FV_EINVAL || st == FV_ENOTFOUND || st == FV_EUNSUPPORTED) &&
                   *fv_last_error() && need.bytes == 0);
    }
    grpc_byte_buffer_destroy(b);
    fv_arena_fini(&arena);
    return 0;
}
