#ifndef FOVEA_TESTS_E2E_PREFILL_RIG_H
#define FOVEA_TESTS_E2E_PREFILL_RIG_H

/* The prefill worker with a decode worker, both in the test's process on one loop and over
 * loopback; the expected output is that of one process. For programs with Criterion: helpers fail
 * the test on any error. */
#include <criterion/criterion.h>

#include "cli/client/local.h"
#include "decode-worker/service/worker.h"
#include "handoff.pb-c.h"
#include "prefill-worker/service/worker.h"
#include "tests/support/net.h"

enum { N_TOKEN = 6 };
#define QUESTION "USER: <image>\nwhat is in this picture? ASSISTANT:"
#define LONG_QUESTION                                                                              \
    "USER: <image>\nwhat is in this picture, and which of the things that are in it would you "    \
    "say are red, which are green, which are blue, which are large, which are small, and why do "  \
    "you think so? please say it in a few words. ASSISTANT:"

typedef Fovea__Handoff__V1__PrefillRequest prefill_request;
typedef Fovea__Inference__V1__GenerateRequest generate_request;

/* ---- the test's checkpoint and image ---------------------------------------------------- */

extern char checkpoint[512]; /* a directory */
extern char *test_image;
extern size_t n_test_image;
void make_checkpoint(void); /* a suite's init and fini */
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

void open_workers(void);                    /* with the options in workers.p and workers.d */
void open_workers_with_tier(fv_kv_tier *t); /* and these options, after a close */
void close_workers(void);
void wait_for_writes(void); /* until what the prefill worker has kept is in its tier */
Fovea__Inference__V1__Load prefill_load(void);
void wait_for_nothing_held(void); /* by either worker */

/* ---- a request -------------------------------------------------------------------------- */

typedef struct asking {
    prefill_request m;
    generate_request g;
    Fovea__Inference__V1__Prompt prompt;
    Fovea__Inference__V1__Image image, *images[1];
} asking;

void ask_about_image(asking *a, const char *decode_address); /* the demo image, with QUESTION */

/* The responses of either worker's call. */
typedef struct heard {
    fv_rpc_call *call;
    fv_arena arena;
    char order[8]; /* B, F, H in order of arrival */
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

void ask_under(asking *a, const char *policy, fv_arena *arena); /* the message is in the arena */
void begin_within(heard *h, const asking *a, int64_t deadline_ms);
void begin(heard *h, const asking *a);
void run(heard *h, const asking *a); /* and waits for the end */
void run_well(heard *h, const asking *a);
/* Asks with another text; the answer before, in *h, is forgotten. */
const Fovea__Inference__V1__Report *ask_text(heard *h, asking *a, const char *text);
void decode(heard *h, const Fovea__Handoff__V1__Ticket *ticket); /* after the first token */
uint64_t first_digest(const heard *h);

/* ---- the same in one process ------------------------------------------------------------ */

typedef struct truth {
    int32_t n;
    uint32_t id[N_TOKEN];
    fv_report report;
} truth;

void ask_one_process(truth *t, const char *policy);

#endif
