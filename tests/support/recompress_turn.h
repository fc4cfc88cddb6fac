#ifndef FOVEA_TESTS_SUPPORT_RECOMPRESS_TURN_H
#define FOVEA_TESTS_SUPPORT_RECOMPRESS_TURN_H

/* The end of a kept turn, by hand. */
#include "decode-worker/conversations/recompress.h"

/* Applies decode-worker/conversations/recompress.h to a request's KV under a policy; aborts when it
 * fails. */
fv_recompress_report recompress_turn(fv_decoder *dec, fv_kv *kv, const char *policy);

#endif
