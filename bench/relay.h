#ifndef FOVEA_BENCH_RELAY_H
#define FOVEA_BENCH_RELAY_H

/* A BARE RELAY: the router's calls and nothing else, on gRPC core; the baseline for the router.
 *
 * Each Generate call starts a Prefill call and, after its first message, a Decode call. All their
 * messages except the prefill worker's report go to the client unchanged. One thread, one
 * completion queue. Nothing is parsed, checked, chosen, counted or logged; the Decode request is
 * the same for every call. */
#include <stddef.h>

/* Serves on a free port of 127.0.0.1, prints "listening on HOST:PORT" and does not return.
 * `decode_request` is a packed DecodeRequest, borrowed. */
void relay_run(const char *prefill, const char *decode, const void *decode_request, size_t n);

#endif
