/* The pictures of a task: read, unless the cache has their rows; encoded; condensed, where the plan
 * says so. The computing thread. */
#include <string.h>

#include "prefill-worker/worker_internal.h"

static fv_image_key key_of(const fv_task *t, size_t i) {
    const ProtobufCBinaryData *data = &t->msg->request->images[i]->data;
    return (fv_image_key){data->data, data->len, t->condense};
}

/* What is done to the rows of this task's pictures, as the cache knows it. */
static fv_status name_condense(fv_task *t) {
    char text[FV_POLICY_TEXT_MAX] = "";
    fv_policy only = {0};
    only.stage[FV_STAGE_CONDENSE] = t->policy.stage[FV_STAGE_CONDENSE];
    if (t->plan.condenses) fv_policy_print(&only, text);
    return fv_arena_strndup(&t->arena, text, strlen(text), &t->condense);
}

fv_status fv_task_read_images(fv_task *t) {
    const fv_generate_message *r = t->msg->request;
    FV_TRY(name_condense(t));
    FV_TRY(FV_ARENA_NEW(&t->arena, r->n_images, t->images));
    for (size_t i = 0; i < r->n_images; i++) {
        fv_image_key key = key_of(t, i);
        if (fv_image_cache_get(t->worker->line.cache, &key)) continue;
        fv_status st = fv_image_decode(key.image, key.n, NULL, &t->images[i]);
        /* A broken picture is the client's, and would be as broken the next time. */
        if (st == FV_EDATA || st == FV_EUNSUPPORTED) st = FV_EINVAL;
        if (st != FV_OK) return fv_fail_prefix(st, "image %zu", i);
    }
    return FV_OK;
}

static fv_status encode_next(fv_task *t, size_t i) {
    const fv_engine *e = t->worker->line.engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    fv_image_cache *cache = t->worker->line.cache;
    fv_image_key key = key_of(t, i);
    const fv_image_rows *known = fv_image_cache_get(cache, &key);
    if (known) {
        t->encoded.n_cached++;
        return fv_encoded_add(&t->encoded, cfg, known);
    }
    if (!t->images[i].rgb) /* the cache had it, and let it go since */
        FV_TRY(fv_image_decode(key.image, key.n, NULL, &t->images[i]));
    fv_encode_job job = {.n = 1,
                         .images = &t->images[i],
                         .condense =
                             t->plan.condenses ? &t->policy.stage[FV_STAGE_CONDENSE] : NULL};
    fv_status st =
        fv_encode_keep(e->vision, cfg, fv_checkpoint_image(e->ck), &job, cache, &key, &t->encoded);
    fv_image_free(&t->images[i]);
    return st;
}

fv_status fv_task_encode(fv_task *t) {
    const fv_engine *e = t->worker->line.engine;
    size_t n = t->msg->request->n_images;
    if (n == 0 || t->encoded.n_image > 0) return FV_OK;
    FV_TRY(fv_encoded_open(fv_checkpoint_config(e->ck), (int32_t)n, e->be.device, &t->encoded));
    for (size_t i = 0; i < n; i++) FV_TRY(encode_next(t, i));
    t->s_preprocess = t->encoded.s_preprocess;
    t->s_vision = t->encoded.s_vision;
    t->n_cached = t->encoded.n_cached;
    return FV_OK;
}
