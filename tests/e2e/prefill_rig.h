#ifndef FOVEA_TESTS_E2E_PREFILL_RIG_H
#define FOVEA_TESTS_E2E_PREFILL_RIG_H

/* The prefill worker against a decode worker, both in the process of the test on one loop and over
 * loopback, and what one process answers as the measure. For programs with Criterion: what cannot
 * be fails the test. */
#include <criterion/criterion.h>

#include "cli/local.h"
#include "decode-worker/service/worker.h"
#include "handoff.pb-c.h"
#include "prefill-worker/service/worker.h"
#include "tests/support/net.h"

enum { N_TOKEN = 6 };
#define QUESTION "USER: <image>\nwhat is in this picture? ASSISTANT:"

typedef Fovea__Handoff__V1__PrefillRequest prefill_request;
typedef Fovea__Inference__V1__GenerateRequest generate_request;

/* ---- a checkpoint and an image of the test's own ---------------------------------------- */

extern char checkpoint[512]; /* a directory */
extern char *test_image;
extern size_t n_test_image;
void make_checkpoint(void); /* begin and end of a suite */
void drop_checkpoint(void);

/* ---- two workers ------------------------------------------------------------------------ */

typedef struct prefill_rig {
    net net; /* loop and bridge; its own service is not used */
    fv_engine engine, decode_engine;
    fv_prefill_worker *prefill;
    fv_decode_worker *decode;
    fv_rpc_service services[1 + FV_DECODE_SERVICES];
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    char target[64];
    bool server_done, prefill_done, decode_done;
    fv_callers *prefill_callers, *decode_callers;
    fv_prefill_worker_options p;
    fv_decode_options d;
} prefill_rig;
extern prefill_rig workers;

void open_workers(void); /* with the options that a test has put into workers.p and workers.d */
void close_workers(void);
Fovea__Inference__V1__Load prefill_load(void);
void wait_for_nothing_held(void); /* by either worker, for anybody */

/* ---- a request -------------------------------------------------------------------------- */

typedef struct asking {
    prefill_request m;
    generate_request g;
    Fovea__Inference__V1__Prompt prompt;
    Fovea__Inference__V1__Image image, *images[1];
} asking;

void ask_about_image(asking *a, const char *decode_address); /* the demo's, with QUESTION */

/* What a call of either worker said. */
typedef struct heard {
    fv_rpc_call *call;
    fv_arena arena;
    char order[8]; /* B, F, H as they came */
    int32_t n_event;
    const Fovea__Handoff__V1__Begun *begun;
    const Fovea__Handoff__V1__FirstToken *first;
    const Fovea__Inference__V1__Report *report;
    int32_t n_id;
    uint32_t id[N_TOKEN]; /* of Decode */
    uint64_t digest[N_TOKEN];
    bool over;
    fv_rpc_end end;
    char why[FV_RPC_TEXT_MAX], refusal[64];
} heard;

void begin_within(heard *h, const asking *a, int64_t deadline_ms);
void begin(heard *h, const asking *a);
void run(heard *h, const asking *a); /* and waits for the end */
void run_well(heard *h, const asking *a);
void decode(heard *h,
            const Fovea__Handoff__V1__Ticket *ticket); /* what is behind the first token */
uint64_t first_digest(const heard *h);

/* ---- the same in one process ------------------------------------------------------------ */

typedef struct truth {
    int32_t n;
    uint32_t id[N_TOKEN];
    fv_report report;
} truth;

void ask_one_process(truth *t, const char *policy);

#endif
