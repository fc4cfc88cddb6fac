#ifndef FOVEA_TESTS_E2E_DECODE_RIG_H
#define FOVEA_TESTS_E2E_DECODE_RIG_H

/* A decode worker over a real connection, inside the test's process. The test plays the prefill
 * side, with the stages of prefill-worker/ and the gRPC transport; the expected output is that of
 * one process. For programs with Criterion: helpers fail the test on any error. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "common/jobs.h"
#include "decode-worker/schedule/scheduler.h"
#include "decode-worker/service/worker.h"
#include "handoff.pb-c.h"
#include "prefill-worker/job/job.h"
#include "tests/support/net.h"
#include "tests/support/tokens.h"
#include "tests/support/transport_fault.h"

enum {
    TEXT = 9,
    VISUAL = 20,
    ROWS = TEXT + VISUAL,
    TOKENS = 12,
    MANY = 400,
    LONG = 980,
    MORE = 256
};

typedef enum stage { LAYERS = 0, LAST, COMMIT, STOPPED } stage;

typedef struct handoff {
    fv_job job;
    struct handoff *next;
    /* the prompt, prefilled */
    int32_t n, ids[ROWS + MORE];
    uint8_t seg[ROWS + MORE];
    fv_plan plan;
    fv_kv *kv;
    fv_evict evict;     /* when generation continues here */
    fv_text_codes text; /* likewise */
    int32_t n_link;     /* of the prompt's chain, if it is `chained` */
    fv_chain_link link[16];
    bool chained;
    int32_t max_tokens;
    fv_first_token first;
    uint64_t first_digest;
    /* under way; owned by the computing thread, except `state` and what is set before it changes */
    fv_export *ship;
    uint32_t age_ms, wait_ms; /* of the request, for queueing */
    const char *tenant;       /* and whose it is */
    uint64_t tenant_bytes;
    bool open_ended;
    uint64_t bytes_replay;
    bool hold; /* once granted, sends nothing */
    bool abandon;
    stage at;
    fv_status status;
    char why[512];
    char open_token[FV_CALL_TOKEN_MAX];
    fv_ticket ticket;
    uint64_t n_frame;
    fv_export_report sent;
    atomic_int state; /* 1: granted, 2: over */
} handoff;

typedef struct decode_rig {
    char dir[512]; /* this test's own checkpoint */
    uv_loop_t loop;
    fv_decode_worker *worker;
    fv_rpc_channel *channel;
    fv_callers *callers; /* of the worker, which is "d1" */
    fv_engine p_engine;  /* the prefill side's */
    fv_transport *transport;
    handoff *exporting;
} decode_rig;
extern decode_rig rig;

/* Runs the loop until the condition holds, at most twenty seconds. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t until_ = uv_now(&rig.loop) + 20000;                                               \
        while (!(condition) && uv_now(&rig.loop) < until_) uv_run(&rig.loop, UV_RUN_ONCE);         \
        cr_assert(condition);                                                                      \
    } while (0)

void need(fv_status st); /* FV_OK */
void run_loop_ms(uint64_t ms);

void write_checkpoint(void);                  /* the suite's init and fini */
void write_checkpoint_of(const char *family); /* of another family than LLaVA: again, after init */
void remove_checkpoint(void);

void open_all(const fv_decode_options *with); /* NULL: the defaults */
void close_all(void);                         /* once the worker holds no request */
bool worker_is_empty(void);
void stop_server(int32_t grace_ms); /* operations that were started may still be running */
void close_rest(void);              /* after stop_server */

/* The transport from the prefill side to the worker, which open_all opens without faults. */
void open_transport(const fv_fault_options *fault);
void close_transport(void);

void release(const fv_ticket *ticket); /* Handoff.Release, and its response */

/* The router's token for one call to the worker. */
fv_rpc_metadata token_for(const char *method, const char *request_id);

/* ---- a request on the prefill side -------------------------------------------------------- */

/* Prompt of TEXT text tokens around VISUAL image tokens, followed by n_more ids; prefilled here, on
 * the loop's thread, before any of it is sent. */
void prefill(handoff *h, const char *policy, int32_t max_tokens, int32_t n_more,
             const int32_t *more);
void send_all(handoff *h);
void prefill_and_send(handoff *h, const char *policy, int32_t max_tokens);
/* Gets a grant and sends nothing until told to. */
void prefill_and_hold(handoff *h);
void handoff_free(handoff *h);

/* Runs it on the prefill side's thread. */
void tell(handoff *h, void (*what)(fv_job *));
void run_ship(fv_job *job);
void run_let_go(fv_job *job);
void run_abandon(fv_job *job);

/* ---- a generation ------------------------------------------------------------------------- */

typedef struct answer {
    fv_rpc_call *call;
    int32_t n; /* tokens */
    uint32_t ids[LONG], index0;
    uint64_t digest[LONG];
    char text[32768];
    int32_t n_alternatives;
    bool finished, over;
    int reason;
    uint32_t n_generated;
    uint64_t bytes_end;
    struct {
        uint8_t name[16];
        size_t n_name;
        uint32_t keep_ms;
    } kept;
    struct {
        uint32_t n_prompt, n_text, n_images;
        uint64_t bytes_raw, bytes;
        bool transfer;
        char policy[64];
        uint64_t entries_evicted;
        struct {
            uint64_t rows, bytes_freed;
            uint32_t n_layer;
            float error;
        } recompressed;
    } report;
    fv_status status;
    grpc_status_code code;
    char why[FV_RPC_TEXT_MAX], refusal[32];
} answer;

typedef Fovea__Handoff__V1__DecodeRequest request;

request request_for(const fv_ticket *t, int32_t max_tokens); /* valid until the next one */
void ask_with(answer *a, const request *m, int64_t deadline_ms);
void ask(answer *a, const handoff *h, int32_t max_tokens);

/* The expected generation: one process continues from the same KV. */
void expect(handoff *h, int32_t max_tokens, answer *out);
/* The same after any ids [n]; the first n_prompt are the prompt, the first n_held are in the KV. */
void expect_after(handoff *h, const int32_t *ids, int32_t n, int32_t n_prompt, int32_t n_held,
                  int32_t max_tokens, answer *out);
void assert_same(const answer *got, const answer *want);

#endif
