#ifndef FOVEA_TESTS_SUPPORT_FAKE_WORKER_H
#define FOVEA_TESTS_SUPPORT_FAKE_WORKER_H

/* A worker that joins a router and speaks its services without a model: tokens are numbers, and it
 * fails as it is told. Shares the loop of the router under test. Any error aborts. */
#include "fleet.pb-c.h"
#include "handoff.pb-c.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "serving/caller.h"

#define FAKE_SECRET "a fleet's secret that everybody may read here"
fv_key fake_fleet_key(void); /* of FAKE_SECRET */

enum { FAKE_BYTES = 5000 }; /* bytes that a request takes, by a prefill worker's report */
enum { FAKE_ENDS = 32, FAKE_KEPT = 2048 };

/* How far a request goes at most. */
typedef enum fake_step {
    FAKE_END = 0,    /* to its end */
    FAKE_NOTHING,    /* it is accepted, and nothing is sent */
    FAKE_BEGUN,      /* prefill: Begun */
    FAKE_FIRST,      /* prefill: and the first token */
    FAKE_HANDED_OFF, /* prefill: everything except the call's end */
    FAKE_TOKENS,     /* decode: n_say tokens, and no Finished */
} fake_step;

typedef struct fake_worker {
    /* Set before fake_open. */
    const char *name;
    Fovea__Inference__V1__Role role;
    const char *compat;              /* NULL: the default */
    const char *model, *fingerprint; /* likewise */
    const char *says_address;        /* NULL: where it listens */
    uint64_t capacity;
    uint32_t keep_ms_max;
    bool draining;
    const char *secret; /* NULL: FAKE_SECRET */
    fv_tls *tls;        /* with a certificate of its role; borrowed; NULL: plain text */
    bool no_tokens;     /* of callers; as with TLS */
    const char *tool_parser, *reasoning_parser; /* of its model; NULL: none */
    /* Changes its introduction; NULL: leaves the valid proof. */
    void (*forge)(void *user, Fovea__Fleet__V1__Introduction *in);

    /* May be changed at any time. */
    fake_step step;      /* where it stops: it stalls, or fails if `fail` is set */
    fv_status fail;      /* with this status */
    fv_origin origin;    /* of that failure */
    const char *refusal; /* prefill: and this refusal of a decode worker; NULL: none */
    int32_t n_times;     /* for this many requests, then works normally; 0: always */
    uint32_t n_say;      /* decode: tokens before it stops */
    bool ends_at_first;  /* the first token is an EOS */
    bool had_ended;      /* the replayed tokens have ended the answer */
    bool unhealthy;
    uint64_t pixels_capacity, pixels_held; /* as it reports */
    uint32_t slots, n_unread;              /* likewise */
    uint32_t tokens_expected;              /* likewise */
    /* Set: its reports say that it works on its last request, with this progress; likewise for
     * `foreign`. */
    bool works;
    uint64_t work, work_foreign;
    const char *foreign;
    int32_t skips;   /* decode: how many times it omits its first token */
    int32_t n_flood; /* decode: this many tokens in large messages, whatever was asked for */
    /* The texts of an answer's tokens, NULL behind the last, which an EOS follows; both workers. NULL:
     * words, as many as max_tokens. */
    const char *const *script;
    bool thinks; /* prefill: prompts end inside the reasoning */
    bool
        caches; /* prefill: it looks for prompts among those that it keeps, and has so many tokens of each */
    uint32_t n_cached;
    const Fovea__Fleet__V1__KeptPrompt *kept; /* [n_kept] for its next report */
    size_t n_kept;
    /* Decode: takes the call over after its first token and continues with fake_send_token. */
    void (*take)(void *user, fv_rpc_call *c);
    void *user;

    /* Results. */
    int32_t calls, cancelled, running, ended;
    int32_t follow_ups; /* calls of Decode that continue a conversation */
    bool welcome, join_over, challenged;
    Fovea__Fleet__V1__Challenge challenge; /* its bytes are the next two */
    uint8_t nonce[32], proof[32];
    bool router_proved, welcome_proved; /* the router's proofs were valid */
    fv_rpc_end join_end;
    char join_text[FV_RPC_TEXT_MAX];
    char request_id[160], decode_address[64];
    char open_token[FV_CALL_TOKEN_MAX], pair_token[FV_CALL_TOKEN_MAX];
    uint32_t keep_ms;     /* of the last call of Decode */
    bool followed;        /* it continues a conversation */
    char prompt[64];      /* its text then */
    uint32_t age_ms;      /* prefill: of the last request */
    char variables[1024]; /* prefill: of its chat; likewise */
    char turns[8192];     /* and its turns, "ROLE: TEXT [MEMBERS]\n" */
    char schema[2048];    /* of the answer, or its structural tags; likewise; "": none */
    char reasoning[16];   /* its form, behind which the answer's begins */
    bool inside;          /* decode: the prompt ended in it */
    uint32_t n_images;
    bool special_tokens;
    uint64_t tenant_kv_bytes; /* prefill: likewise */
    char share[128];          /* decode: of the last request, with its weight and tenant */
    char tenant[64];
    double tenant_weight;
    uint32_t max_tokens, n_replay; /* of the last request; replayed ids are checked */

    /* Prefill: of the last request. */
    bool reserve_all, open_ended;
    uint64_t ends[FAKE_ENDS]; /* the names of its prompt's beginnings */
    size_t n_ends;

    /* Private. */
    fv_bridge *bridge;
    fv_rpc_server *server;
    fv_rpc_channel *router;
    fv_rpc_call *join;
    char address[64];
    fv_join_transcript said;
    fv_key key;
    fv_callers *callers;    /* checks the router's tokens; invalid ones abort */
    uint32_t flooded, next; /* next token to send */
    fv_rpc_call *last;      /* its last call, while it runs */
    bool dead, stopped, alone;
} fake_worker;

/* The 16 bytes that name a conversation kept by a decode worker. */
#define FAKE_CONVERSATION "sixteen bytes..."

/* Serves, and joins the router whose workers join at `target`. */
void fake_open(fake_worker *w, fv_bridge *bridge, const char *target);
/* A decode worker that stalls at FAKE_TOKENS, or a prefill worker that stalls at FAKE_NOTHING,
 * sends the rest of its last request. */
void fake_go_on(fake_worker *w);
/* Fails the last request, which stalls; with this refusal, unless NULL. */
void fake_fail(fake_worker *w, fv_status st, const char *refusal);
void fake_report(fake_worker *w); /* another report, with the current values */
void fake_leave(fake_worker *w);  /* ends the membership; its calls go on */
void fake_die(fake_worker *w);    /* and breaks them, as a killed process does */
/* A decode worker sends token `index`, from 1; and that it was the last, which ends the call. */
void fake_send_token(fv_rpc_call *c, uint32_t index, const char *text);
void fake_send_finished(fv_rpc_call *c);
/* Starts closing; w->stopped says when it is done. */
void fake_close(fake_worker *w);

#endif
