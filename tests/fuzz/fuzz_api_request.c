/* Any bytes as the body of an HTTP request. The first byte chooses the endpoint and whether a header has a
 * policy. What is accepted has a prompt, and its pointers are good; a refusal is the client's and has a
 * sentence. */
#include <stdlib.h>
#include <string.h>

#include "gateway/api/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

static void put_frames(fv_api_request *q, fv_arena *arena) {
    static const fv_api_frame frames[2] = {{.time = "<0.0 seconds>"}, {.time = "<1.0 seconds>"}};
    const size_t n = q->message.n_images + 2 * (size_t)q->n_video;
    while (q->n_video > 0)
        if (fv_api_put_frames(q, frames, 2, arena) != FV_OK) return;
    expect(q->message.n_images == n && protobuf_c_message_check(&q->message.base));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const fv_api_kind kinds[] = {FV_API_CHAT, FV_API_TEXT, FV_API_TOKENS};
    fv_arena arena = {0};
    fv_api_request q;
    char param[FV_API_PARAM_MAX];
    if (n < 1) return 0;
    const char *body = (const char *)data + 1;
    if (data[0] % 4 == 3) {
        Fovea__Inference__V1__DetokenizeRequest ids;
        if (fv_api_read_ids(body, n - 1, &arena, &ids, param) == FV_OK)
            expect(protobuf_c_message_get_packed_size(&ids.base) <= 6 * n + 16);
    } else {
        fv_status st = fv_api_read(kinds[data[0] % 4], body, n - 1,
                                   data[0] & 128 ? "quality" : NULL, &arena, &q, param);
        if (st == FV_OK)
            expect(q.message.prompt && q.n >= 1 && q.n <= FV_API_CHOICES_MAX &&
                   protobuf_c_message_get_packed_size(&q.message.base) < 64 * n + 4096);
        if (st == FV_OK)
            put_frames(&q, &arena);
        else
            expect(st == FV_EINVAL && *fv_last_error());
        expect(strlen(param) < FV_API_PARAM_MAX);
    }
    fv_arena_fini(&arena);
    return 0;
}
