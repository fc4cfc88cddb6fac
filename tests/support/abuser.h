#ifndef FOVEA_TESTS_SUPPORT_ABUSER_H
#define FOVEA_TESTS_SUPPORT_ABUSER_H

/* A client that hardly ever lets a request finish. Requests are random (images, prompts, lengths,
 * policies, sampling, conversations), and so is how each ends: cancelled after a time or at a
 * token, aborted by its id, by a short deadline, or with the connection, because the client's
 * process exits in the middle. */
#include <stdint.h>

typedef struct abuse {
    int32_t begun;
    int32_t done; /* finished all the same */
    int32_t cancelled, deadline, aborted, dropped;
    int32_t busy;  /* rejected: no memory */
    int32_t other; /* any other end: none is expected */
} abuse;

/* Runs n requests, n_parallel at a time, in a process of its own, which exits without warning when
 * the last one was started. The caller must not have used gRPC yet. Adds to *sum; `other` endings
 * are printed. */
void abuse_run(const char *address, const char *image, uint64_t seed, int32_t n, int32_t n_parallel,
               abuse *sum);

#endif
