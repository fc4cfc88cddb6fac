/* The state machine of a hand-off: any sequence of grants, frames, keep-alives, commits, aborts,
 * attaches and elapsed hours, by several senders at once, who may use each other's tickets. Every
 * three bytes of the input are one event. A model of the contract runs alongside: it says what is
 * accepted, what is refused, and which hand-offs hold memory afterwards. A correct stream arrives
 * whatever the others do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "decode-worker/receive/receive.h"
#include "decode-worker/service/push_take.h"
#include "handoff/crc32c.h"
#include "tests/support/fuzzed_handoff.h"
#include "tests/support/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { CAPACITY = 2, PUSHES = 3, TICKETS = 4, EVENTS_MAX = 400, LEASE_S = 30, ATTACH_S = 20 };

typedef enum state { NEVER, LIVE, COMMITTED, OVER } state;

/* A grant, in the model. */
typedef struct granted {
    fv_ticket ticket;
    state state;
    size_t sent;  /* bytes of the stream */
    uint64_t seq; /* of the next frame */
    bool spoiled; /* a byte of the stream was changed */
    double until;
} granted;

typedef struct world {
    fv_kv_pool *pool;
    fv_prefixes *prefixes;
    fv_receiver *receiver;
    fv_sink *sink;
    double now;
    granted grant[TICKETS];
    fv_push_state push[PUSHES];
} world;

static uint8_t *stream; /* a correct stream */
static size_t stream_n;

static void expect(bool holds) {
    if (!holds) abort();
}

static double clock_of(void *user) { return ((world *)user)->now; }

static void read_stream(void) {
    char *bytes;
    if (stream) return;
    if (fv_file_read(FOVEA_TEST_DATA "/fuzz/corpus/kv_packet/exact", 1 << 16, &bytes, &stream_n) !=
        FV_OK) {
        fprintf(stderr, "%s\n", fv_last_error());
        abort();
    }
    stream_n--; /* its first byte is for fuzz_kv_packet */
    stream = (uint8_t *)bytes + 1;
    rig_put_right(stream, stream_n, fuzzed_hello().compat.hash);
}

static void open_world(world *w) {
    fv_kv_shape shape = fuzzed_shape();
    expect(fv_kv_pool_open(fv_device_host(), &shape, 1 << 20, &w->pool) == FV_OK);
    fv_prefixes_options keep = {.pool = w->pool, .bytes_max = 1 << 20};
    expect(fv_prefixes_open(&keep, &w->prefixes) == FV_OK);
    fv_receiver_options opt = {.pool = w->pool,
                               .prefixes = w->prefixes,
                               .model = "fuzz",
                               .n_vocab = 50,
                               .n_group = 2,
                               .max_position = 64,
                               .grants = fv_grants_options_default()};
    opt.grants.capacity = CAPACITY;
    opt.grants.lease_s = LEASE_S;
    opt.grants.attach_s = ATTACH_S;
    opt.grants.clock = clock_of;
    opt.grants.clock_user = w;
    expect(fv_receiver_open(&opt, &w->receiver) == FV_OK);
    w->sink = fv_receiver_sink(w->receiver);
}

/* ---- the model -------------------------------------------------------------------------- */

static bool holds_memory(const granted *g) { return g->state == LIVE || g->state == COMMITTED; }

static int32_t n_live(const world *w) {
    int32_t n = 0;
    for (int i = 0; i < TICKETS; i++) n += holds_memory(&w->grant[i]);
    return n;
}

static void pass_time(world *w) {
    for (int i = 0; i < TICKETS; i++)
        if (holds_memory(&w->grant[i]) && w->grant[i].until <= w->now) w->grant[i].state = OVER;
    fv_receiver_expire(w->receiver);
}

static void end_grant(granted *g) {
    if (g->state != NEVER) g->state = OVER;
}

static granted *grant_of(world *w, const fv_ticket *t) {
    for (int i = 0; i < TICKETS; i++)
        if (w->grant[i].state != NEVER && w->grant[i].ticket.epoch == t->epoch &&
            memcmp(w->grant[i].ticket.id, t->id, sizeof t->id) == 0)
            return &w->grant[i];
    return NULL;
}

/* ---- messages --------------------------------------------------------------------------- */

static void nothing(void *user) { (void)user; }

typedef enum frame_kind { DATA, OOB, ALIVE, COMMIT } frame_kind;

typedef struct message {
    frame_kind kind;
    fv_ticket ticket;
    uint64_t seq, n_frame;
    const uint8_t *bytes; /* of data */
    size_t n;
    bool arrived; /* the bytes of a frame beside the stream */
} message;

static grpc_byte_buffer *write_message(const message *m) {
    grpc_byte_buffer *b = NULL;
    fv_piece piece = {m->bytes, m->n};
    fv_status st = FV_OK;
    switch (m->kind) {
    case DATA: st = fv_rpc_frame_lend(&m->ticket, m->seq, &piece, 1, nothing, NULL, &b); break;
    case OOB: st = fv_rpc_frame_oob(&m->ticket, m->seq, 7, m->seq, &b); break;
    case ALIVE: st = fv_rpc_frame_alive(&m->ticket, &b); break;
    default: st = fv_rpc_frame_commit(&m->ticket, m->n_frame, &b);
    }
    expect(st == FV_OK);
    return b;
}

/* Expected outcome of a message to a grant: 1 accepted, 0 refused, -1 either, where the format
 * decides (wrong bytes; bytes out of band, which must be tokens' data). */
static int outcome(const granted *g, const message *m) {
    if (!g || g->state != LIVE) return 0;
    if (m->kind == ALIVE) return 1;
    if (m->kind == COMMIT) {
        if (m->n_frame != g->seq || m->n_frame == 0 || g->sent != stream_n) return 0;
        return g->spoiled ? -1 : 1;
    }
    if (m->seq != g->seq || (m->kind == OOB && !m->arrived)) return 0;
    return g->spoiled || m->kind == OOB ? -1 : 1;
}

static void take(world *w, granted *g, const message *m) {
    g->until = w->now + (m->kind == COMMIT ? ATTACH_S : LEASE_S);
    if (m->kind == COMMIT) g->state = COMMITTED;
    if (m->kind == DATA || m->kind == OOB) {
        g->seq++;
        g->sent += m->n;
    }
}

static void deliver(world *w, fv_push_state *p, const message *m) {
    fv_push_state before = *p;
    fv_push_came came = {m->bytes, m->n, fv_crc32c(0, m->bytes, m->n)};
    granted *g = grant_of(w, &m->ticket);
    uint64_t committed;
    grpc_byte_buffer *b = write_message(m);
    fv_refusal why = fv_refusal_of(
        fv_push_take(w->sink, p, b, m->kind == OOB && m->arrived ? &came : NULL, &committed));
    grpc_byte_buffer_destroy(b);
    if (before.over) {
        expect(why == FV_REFUSED_NONE && committed == 0);
        return;
    }
    bool others = before.known && (before.ticket.epoch != m->ticket.epoch ||
                                   memcmp(before.ticket.id, m->ticket.id, 16) != 0);
    int want = others ? 0 : outcome(g, m);
    expect(want < 0 || (why == FV_REFUSED_NONE) == (want == 1));
    if (why == FV_REFUSED_NONE) {
        take(w, g, m);
        expect(committed == (m->kind == COMMIT ? m->n_frame : 0));
        return;
    }
    expect(p->over && *fv_last_error());
    granted *mine = grant_of(w, &p->ticket);
    if (mine) end_grant(mine);
}

/* ---- events ----------------------------------------------------------------------------- */

/* With `how` the offer names the beginnings of its prompt, 1: wrongly. What is granted without them is a prompt of
 * which nothing was kept, so the correct stream may be refused. */
static void offer(world *w, int i, unsigned how) {
    static const fv_wire_link right[] = {{.key = {1}, .n_text = 1},
                                         {.key = {2}, .n_text = 1, .n_visual = FUZZED_VISUAL}},
                              wrong[] = {{.key = {1}, .n_text = 2}, {.key = {2}, .n_text = 1}};
    fv_hello hello = fuzzed_hello();
    fv_grant grant;
    hello.link = how == 1 ? wrong : right;
    hello.n_link = how ? 2 : 0;
    fv_refusal why = fv_refusal_of(w->sink->ops->offer(w->sink, &hello, &grant));
    expect(why == (how == 1                ? FV_REFUSED_INVALID
                   : n_live(w) == CAPACITY ? FV_REFUSED_NO_ROOM
                                           : FV_REFUSED_NONE));
    expect(why != FV_REFUSED_NONE || how || grant.n_kept == 0);
    if (why != FV_REFUSED_NONE) return;
    if (w->grant[i].state != NEVER) w->sink->ops->abort(w->sink, &w->grant[i].ticket);
    w->grant[i] = (granted){.ticket = grant.ticket,
                            .state = LIVE,
                            .spoiled = grant.n_kept > 0,
                            .until = w->now + LEASE_S};
}

static void claim(world *w, granted *g) {
    fv_received got;
    fv_refusal why = fv_refusal_of(fv_receiver_attach(w->receiver, &g->ticket, &got));
    expect((why == FV_REFUSED_NONE) == (g->state == COMMITTED));
    expect((why == FV_REFUSED_PENDING) == (g->state == LIVE));
    if (why != FV_REFUSED_NONE) return;
    expect(got.n == FUZZED_TEXT + FUZZED_VISUAL && got.kv);
    fv_received_free(&got);
    end_grant(g);
}

/* The next frame of a grant's stream, correct except for what `how` says. */
static void next_frame(world *w, fv_push_state *p, granted *g, frame_kind kind, unsigned how,
                       size_t most) {
    uint8_t own[256];
    size_t n = stream_n - g->sent;
    if (n > most) n = most;
    if (n > sizeof own) n = sizeof own;
    if (n == 0) return;
    memcpy(own, stream + g->sent, n);
    message m = {.kind = kind, .ticket = g->ticket, .seq = g->seq, .bytes = own, .n = n};
    m.arrived = how != 1;
    if (how == 2) m.seq++;
    if (how == 3 && m.seq > 0) m.seq--;
    if (how == 4) m.ticket.id[5] ^= 1;
    if (how == 5) m.ticket.epoch++;
    if (how == 6 && !p->over && g->state == LIVE && m.seq == g->seq) {
        own[n / 2] ^= 0x10;
        g->spoiled = true;
    }
    deliver(w, p, &m);
}

static void end_stream(world *w, fv_push_state *p, bool broken) {
    bool over = p->over;
    granted *mine = p->known ? grant_of(w, &p->ticket) : NULL;
    fv_refusal why = fv_refusal_of(fv_push_end(w->sink, p, broken));
    expect(why == (broken || over ? FV_REFUSED_NONE : FV_REFUSED_TRUNCATED) && p->over);
    if (mine && (broken || !over)) end_grant(mine);
}

static void event(world *w, const uint8_t *e) {
    static const double hours[] = {0, 0.5, 5, 19, 20, 29, 30, 1000};
    fv_push_state *p = &w->push[e[1] % PUSHES];
    granted *g = &w->grant[e[1] / PUSHES % TICKETS];
    unsigned how = e[0] >> 4;
    message m = {.ticket = g->ticket, .n_frame = g->seq + (how == 1)};
    switch (e[0] & 15) {
    case 0: offer(w, (int)(g - w->grant), how % 3); break;
    case 1: w->now += hours[e[2] % 8]; break;
    case 2: claim(w, g); break;
    case 3: /* Release */
        w->sink->ops->abort(w->sink, &g->ticket);
        end_grant(g);
        break;
    case 4: *p = (fv_push_state){0}; break; /* another stream; the old one's state remains */
    case 5: end_stream(w, p, how & 1); break;
    case 6:
        m.kind = ALIVE;
        deliver(w, p, &m);
        break;
    case 7:
        m.kind = COMMIT;
        deliver(w, p, &m);
        break;
    case 8: next_frame(w, p, g, OOB, how, 1 + (size_t)e[2]); break;
    default: next_frame(w, p, g, DATA, how, 1 + (size_t)e[2]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    world w = {.now = 1};
    read_stream();
    open_world(&w);
    for (size_t i = 0; i + 3 <= n && i < 3 * EVENTS_MAX; i += 3) {
        pass_time(&w);
        event(&w, data + i);
        pass_time(&w);
        expect(fv_receiver_live(w.receiver) == n_live(&w));
    }
    for (int i = 0; i < TICKETS; i++) w.sink->ops->abort(w.sink, &w.grant[i].ticket);
    expect(fv_receiver_live(w.receiver) == 0);
    expect(fv_kv_pool_used(w.pool) == fv_kv_pool_idle(w.pool));
    fv_receiver_close(w.receiver);
    fv_prefixes_close(w.prefixes);
    expect(fv_kv_pool_used(w.pool) == 0);
    fv_kv_pool_close(w.pool);
    return 0;
}
