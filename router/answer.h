#ifndef FOVEA_ROUTER_ANSWER_H
#define FOVEA_ROUTER_ANSWER_H

/* ANSWER: the events for a client: Accepted once, each token once, and the end. A function that cannot send,
 * for lack of memory or because the client reads too slowly, ends the request. Loop thread. */
#include "router/life.h"

/* Sends Accepted; later calls do nothing. */
void fv_answer_begin(fv_request *r);

/* Sends event `number` (0, 1, ...) of the prompt's tokens, unless the client has it from another attempt. */
void fv_answer_prompt(fv_request *r, uint32_t number, fv_prompt_message *t);

/* Sends the next tokens of the answer, after Accepted. */
void fv_answer_tokens(fv_request *r, fv_tokens_message *t);

/* Sends the last message and ends the request if its attempt is complete; a slow client gets it later. */
void fv_answer_finish_if_complete(fv_request *r);

#endif
