#ifndef FOVEA_TESTS_SUPPORT_TOKENS_H
#define FOVEA_TESTS_SUPPORT_TOKENS_H

/* Call tokens, made as a fleet's router makes them (auth/call_token.h): for tests that call workers
 * directly. The fleet is that of fake_fleet_key. Any error aborts. */
#include "rpc/client.h"
#include "serving/caller.h"

/* The verifier of a worker of this name; fv_callers_close. */
fv_callers *test_callers(const char *name);

/* A token for one call of the worker `name`, whose verifier this is; valid until eight more are
 * made. request_id and address may be NULL. */
const char *test_token(const fv_callers *x, const char *name, const char *method,
                       const char *request_id, const char *address);

/* The same as metadata of a call. */
fv_rpc_metadata test_metadata(const fv_callers *x, const char *name, const char *method,
                              const char *request_id, const char *address);

#endif
