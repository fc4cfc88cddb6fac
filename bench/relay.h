#ifndef FOVEA_BENCH_RELAY_H
#define FOVEA_BENCH_RELAY_H

/* A BARE RELAY: the calls of the router and nothing else, on gRPC core alone. It is what the router
 * is measured against.
 *
 * Each Generate call makes a Prefill call; when that has said its first word, a Decode call; every
 * message of theirs goes to the client as it is (but for the prefill worker's report, which is the
 * router's own business). One thread, one completion queue. Nothing is parsed, checked, chosen,
 * counted or logged; the Decode request is the same for every call. */
#include <stddef.h>

/* Serves at a free port of 127.0.0.1, says "listening on HOST:PORT" on stdout, and does not
 * return. `decode_request` is a packed DecodeRequest, borrowed. */
void relay_run(const char *prefill, const char *decode, const void *decode_request, size_t n);

#endif
