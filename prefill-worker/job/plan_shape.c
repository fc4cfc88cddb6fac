/* Fills a plan's shape from a network, a checkpoint and a prompt, here only. */
#include "prefill-worker/job/job.h"

fv_plan_shape fv_plan_shape_of_net(const fv_text_config *net, fv_dtype kv_dtype,
                                   const fv_prompt *prompt) {
    return (fv_plan_shape){.n_layer = net->n_layer,
                           .n_kv = net->n_kv,
                           .d_head = net->d_head,
                           .bytes_value = (int32_t)fv_dtype_bytes(kv_dtype),
                           .n_visual = prompt->n_visual,
                           .n_text = prompt->n_text,
                           .n_span = prompt->n_span,
                           .span = prompt->span,
                           .state_bytes =
                               (uint64_t)net->n_layer * fv_recurrent_state_bytes(&net->recurrent)};
}

fv_plan_shape fv_plan_shape_of(const fv_engine *engine, fv_dtype kv_dtype,
                               const fv_prompt *prompt) {
    const fv_checkpoint *ck = engine->ck;
    fv_plan_shape s = fv_plan_shape_of_net(&fv_checkpoint_config(ck)->text, kv_dtype, prompt);
    s.uncondensable = fv_layout_uncondensable(&fv_checkpoint_config(ck)->layout);
    s.tiled = fv_layout_tiled(&fv_checkpoint_config(ck)->layout);
    s.calibrated = fv_checkpoint_blocks(ck);
    s.thresholds = fv_checkpoint_thresholds(ck);
    s.withdraw = fv_checkpoint_withdraw(ck);
    s.uncalibrated = fv_checkpoint_uncalibrated(ck);
    s.fitted = fv_checkpoint_schedules(ck, &s.n_fitted);
    const fv_latent *latent = fv_engine_latent(engine, kv_dtype, &s.no_latent);
    s.latent_layers = latent ? latent->info.n_group_layer : 0;
    s.n_latent_steps = latent ? (size_t)(latent->n_group * FV_LATENT_STEPS) : 0;
    s.latent_steps = latent ? latent->steps : NULL;
    s.latent_rank = latent ? latent->info.n_dir : 0;
    return s;
}
