/* Runs the worker's own tiny request: one text token in, one out, on the path of every task except the
 * call and the decode worker. The computing thread creates, runs and frees it, and counts it only in the
 * vital signs. */
#include <math.h>

#include "common/clock.h"
#include "common/log.h"
#include "prefill-worker/service/internal.h"

/* Returns the id of a text token. */
static int32_t an_id(const fv_model_config *cfg) {
    int32_t id = cfg->text.bos >= 0 ? cfg->text.bos : 0;
    return id != cfg->image_token ? id : id + 1;
}

fv_status fv_prefill_probe_open(fv_prefill_worker *w) {
    fv_prefill_probe *p = &w->line.probe;
    fv_kv_shape shape = fv_engine_kv_shape(w->opt.engine, w->opt.kv_dtype);
    fv_probe_clock_init(&p->clock, w->opt.probe_s);
    p->id = an_id(fv_checkpoint_config(w->opt.engine->ck));
    return fv_kv_pool_open(w->opt.engine->be.device, &shape, 0, &p->pool);
}

void fv_prefill_probe_close(fv_prefill_worker *w) {
    fv_task_release(&w->line.probe.task, false); /* the thread may have ended during a probe */
    fv_task_fini(&w->line.probe.task);
    fv_kv_pool_close(w->line.probe.pool);
}

bool fv_prefill_probe_due(const fv_prefill_worker *w) {
    return !w->line.probe.under_way && fv_probe_due_in(&w->line.probe.clock, fv_clock_s()) == 0;
}

double fv_prefill_probe_pause(const fv_prefill_worker *w) {
    double s = fv_probe_due_in(&w->line.probe.clock, fv_clock_s());
    return s == HUGE_VAL ? -1 : fmax(s, 1e-3);
}

void fv_prefill_probe_begin(fv_prefill_worker *w) {
    fv_prefill_probe *p = &w->line.probe;
    p->under_way = true;
    fv_probe_clock_reset(&p->clock, fv_clock_s());
    p->task = (fv_task){.worker = w, .probe = true, .arrived_s = fv_clock_s()};
    p->task.prefill =
        (fv_prefill_job){.engine = w->opt.engine,
                         .cache = w->line.cache,
                         .pool = p->pool,
                         .form = {.kind = FV_PROMPT_IDS, .n_id = 1, .id = &p->id},
                         .generation = fv_engine_generation_options(w->opt.engine, true)};
    p->task.prefill.generation.max_tokens = 1;
    p->task.job = (fv_job){.run = fv_task_enqueue, .owner = &p->task};
    fv_task_enqueue(&p->task.job);
}

void fv_prefill_probe_over(fv_task *t) {
    fv_prefill_probe *p = &t->worker->line.probe;
    if (t->fault.status == FV_OK)
        FV_LOG(DEBUG, PREFILL, "event=probe seconds=%.4f", fv_clock_s() - t->arrived_s);
    else
        FV_LOG(WARN, PREFILL, "event=probe-failed reason=\"%s\"", t->fault.text);
    if (t->fault.status != FV_OK) atomic_fetch_add(&t->worker->n_bad, 1);
    fv_task_fini(t);
    p->under_way = false;
}

void fv_prefill_count_good(fv_prefill_worker *w) {
    atomic_fetch_add(&w->n_good, 1);
    fv_probe_clock_reset(&w->line.probe.clock, fv_clock_s());
}
