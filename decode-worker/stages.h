#ifndef FOVEA_DECODE_WORKER_STAGES_H
#define FOVEA_DECODE_WORKER_STAGES_H

/* COMPACT KV -> TOKENS. The decode worker's stages, in the order in which a token meets them. */
#include "decode-worker/receive.h" /* transport -> sections -> KV store */
#include "decode-worker/sample.h"  /* logits -> the next token */
#include "decode-worker/step.h"    /* new tokens and KV stores -> decoder layers -> logits */
#include "decode-worker/stop.h"    /* text that may be shown, up to a stop string */

#endif
