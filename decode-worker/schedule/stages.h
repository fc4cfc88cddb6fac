#ifndef FOVEA_DECODE_WORKER_SCHEDULE_STAGES_H
#define FOVEA_DECODE_WORKER_SCHEDULE_STAGES_H

/* COMPACT KV -> TOKENS. The decode worker's stages, in the order in which a request meets them. */
/* clang-format off */
#include "decode-worker/schedule/opens.h"    /* who gets room first, when there is not enough for all */
#include "decode-worker/receive/receive.h"  /* what a prefill worker sends -> KV store and ticket */
#include "decode-worker/schedule/scheduler.h"  /* tickets and follow-ups -> answers in the batch */
#include "decode-worker/conversations/conversations.h" /* what is held, and kept between turns */
#include "decode-worker/conversations/follow_up.h"        /*   the next turn -> ids behind those */
#include "decode-worker/schedule/batch.h"    /* answers that run together, joining and leaving */
#include "decode-worker/evict/evict.h"    /*   before a step: visual tokens that are let go */
#include "model/net/step.h"         /*   new tokens and KV stores -> decoder layers -> logits */
#include "text/generation.h"         /*   one answer: logits -> token -> text -> its end */
#include "text/sample.h"           /*     logits -> the next token */
#include "text/stop.h"             /*     text that may be shown, up to a stop string */
#include "decode-worker/conversations/recompress.h" /* behind the last token: text keys factored anew, if kept */
/* clang-format on */

#endif
