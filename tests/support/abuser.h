#ifndef FOVEA_TESTS_SUPPORT_ABUSER_H
#define FOVEA_TESTS_SUPPORT_ABUSER_H

/* A client that hardly ever lets a request come to its end. Requests are random (images, prompts,
 * lengths, policies, sampling, conversations), and so is what becomes of each: cancelled after a
 * time or at a token, ended by its id or by a short deadline, or cut off with the connection,
 * because the client's process goes away in the middle of what it does. */
#include <stdint.h>

typedef struct abuse {
    int32_t begun;
    int32_t done; /* ended well, in spite of everything */
    int32_t cancelled, deadline, aborted, dropped;
    int32_t busy;  /* there was no room */
    int32_t other; /* any other end: none is expected */
} abuse;

/* Runs n requests, n_parallel at a time, in a process of its own, which leaves without a word when
 * the last one was begun. The caller must not have used gRPC yet. Adds to *sum; `other` ends are
 * printed. */
void abuse_run(const char *address, const char *image, uint64_t seed, int32_t n, int32_t n_parallel,
               abuse *sum);

#endif
