#include "tests/support/fake_worker.h"

#include <stdio.h>
#include <string.h>

#include "auth/fleet_secret.h"
#include "common/random.h"
#include "tests/support/net.h"

typedef Fovea__Inference__V1__Tokens tokens_message;
typedef Fovea__Inference__V1__Token token_message;
typedef Fovea__Inference__V1__Report report_message;
typedef Fovea__Handoff__V1__PrefillEvent prefill_event;
typedef Fovea__Inference__V1__GenerateEvent generate_event;

static uint8_t ticket_id[16] = "the ticket's id";

/* The router presents a token made for this call. */
static void check_caller(fake_worker *w, const fv_rpc_call *c, const char *request_id,
                         const char *address) {
    fv_caller who;
    NET_CHECK(fv_caller_identify(w->callers, c, &who) == FV_OK);
    NET_CHECK(fv_caller_check_request(&who, request_id, address) == FV_OK);
}

static fv_status on_start(fv_rpc_call *c) {
    fake_worker *w = fv_rpc_call_service(c);
    w->last = c;
    w->running++;
    return FV_OK;
}

static void on_cancel(fv_rpc_call *c) { ((fake_worker *)fv_rpc_call_service(c))->cancelled++; }

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fake_worker *w = fv_rpc_call_service(c);
    (void)end;
    if (w->last == c) w->last = NULL;
    w->running--;
    w->ended++;
}

/* Tells whether a request stops here. If so, *st is what its handler returns. */
static bool stops(fake_worker *w, fv_rpc_call *c, fake_step here, fv_status *st) {
    if (w->step != here) return false;
    if (w->n_times > 0 && --w->n_times == 0) w->step = FAKE_END;
    *st = FV_OK;
    if (w->fail == FV_OK) return true;
    fv_rpc_call_retry_after(c, 20);
    if (w->refusal) fv_rpc_call_trailer(c, "fovea-refusal", w->refusal);
    *st = fv_fail_origin(
        FV_FAIL(w->fail, here == FAKE_NOTHING ? "it cannot begin" : "it cannot go on"), w->origin);
    return true;
}

/* Checks that replayed tokens are those that fake workers send. */
static void check_replay(fake_worker *w, const uint32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) NET_CHECK(ids[i] == 100 + i);
    w->n_replay = (uint32_t)n;
}

/* NULL: the script is over. */
static const char *text_of(const fake_worker *w, uint32_t index) {
    if (w->script) return w->script[index];
    return index == 0 ? "zero" : index == 1 ? " one" : " more";
}

/* ---- prefill ---------------------------------------------------------------------------- */

static void send_event(fv_rpc_call *c, Fovea__Handoff__V1__PrefillEvent__EventCase which,
                       ProtobufCMessage *m) {
    prefill_event e = FOVEA__HANDOFF__V1__PREFILL_EVENT__INIT;
    e.event_case = which;
    if (which == FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN)
        e.begun = (Fovea__Handoff__V1__Begun *)m;
    else if (which == FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_FIRST_TOKEN)
        e.first_token = (Fovea__Handoff__V1__FirstToken *)m;
    else
        e.handed_off = (Fovea__Handoff__V1__HandedOff *)m;
    NET_CHECK(fv_rpc_call_send(c, &e.base) == FV_OK);
}

static void send_begun(fv_rpc_call *c) {
    Fovea__Handoff__V1__Ticket ticket = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__Begun begun = FOVEA__HANDOFF__V1__BEGUN__INIT;
    ticket.id = (ProtobufCBinaryData){sizeof ticket_id, ticket_id};
    ticket.epoch = 7;
    begun.ticket = &ticket;
    begun.n_prompt = 5;
    begun.bytes_bound = FAKE_BYTES;
    const fake_worker *w = fv_rpc_call_service(c);
    begun.thinks = w->thinks;
    begun.caches = w->caches;
    begun.n_prompt_cached = w->n_cached;
    send_event(c, FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN, &begun.base);
}

static void send_first(fv_rpc_call *c, uint32_t index, bool last, bool had_ended) {
    const fake_worker *w = fv_rpc_call_service(c);
    Fovea__Handoff__V1__FirstToken first = FOVEA__HANDOFF__V1__FIRST_TOKEN__INIT;
    tokens_message tokens = FOVEA__INFERENCE__V1__TOKENS__INIT;
    token_message token = FOVEA__INFERENCE__V1__TOKEN__INIT, *list = &token;
    token.id = 100 + index;
    token.digest = 1000 + index;
    token.logprob = -(float)index;
    tokens.index = index;
    tokens.n_tokens = 1;
    tokens.tokens = &list;
    tokens.text = (char *)(uintptr_t)text_of(w, index);
    if (!had_ended) first.tokens = &tokens;
    if (last) first.finish = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS;
    send_event(c, FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_FIRST_TOKEN, &first.base);
}

static void send_handed_off(fv_rpc_call *c) {
    Fovea__Handoff__V1__HandedOff off = FOVEA__HANDOFF__V1__HANDED_OFF__INIT;
    report_message report = FOVEA__INFERENCE__V1__REPORT__INIT;
    report.n_prompt = 5;
    report.bytes_raw = 640;
    off.report = &report;
    send_event(c, FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_HANDED_OFF, &off.base);
}

static void note_chat(fake_worker *w, const Fovea__Inference__V1__GenerateRequest *q) {
    w->n_images = (uint32_t)q->n_images;
    w->special_tokens = q->special_tokens;
    const Fovea__Inference__V1__Constraint *form = q->rules ? q->rules->constraint : NULL;
    const bool has = form && form->kind_case == FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_SCHEMA,
               tags =
                   form && form->kind_case == FOVEA__INFERENCE__V1__CONSTRAINT__KIND_STRUCTURAL_TAG;
    snprintf(w->schema, sizeof w->schema, "%s",
             has    ? form->json_schema
             : tags ? form->structural_tag
                    : "");
    if (!q->prompt || q->prompt->form_case != FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT) return;
    const Fovea__Inference__V1__Chat *chat = q->prompt->chat;
    size_t n = 0;
    snprintf(w->variables, sizeof w->variables, "%s", chat->variables);
    w->turns[0] = '\0';
    for (size_t i = 0; i < chat->n_turns && n < sizeof w->turns; i++) {
        const Fovea__Inference__V1__Turn *t = chat->turns[i];
        n += (size_t)snprintf(w->turns + n, sizeof w->turns - n, "%s: %s", t->role, t->text);
        for (size_t k = 0; k < t->n_parts && n < sizeof w->turns; k++)
            n += (size_t)snprintf(w->turns + n, sizeof w->turns - n, "{%s}",
                                  t->parts[k]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_TEXT
                                      ? t->parts[k]->text
                                      : "<image>");
        if (n < sizeof w->turns)
            n += (size_t)snprintf(w->turns + n, sizeof w->turns - n, "%s%s\n",
                                  *t->members ? " " : "", t->members);
    }
}

static fv_status on_prefill(fv_rpc_call *c, grpc_byte_buffer *message) {
    fake_worker *w = fv_rpc_call_service(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__prefill_request__descriptor, message, &m));
    w->calls++;
    const Fovea__Handoff__V1__PrefillRequest *req = (const Fovea__Handoff__V1__PrefillRequest *)m;
    check_caller(w, c, req->request->request_id, req->decode_address);
    snprintf(w->open_token, sizeof w->open_token, "%s", req->open_token);
    snprintf(w->pair_token, sizeof w->pair_token, "%s", req->pair_token);
    snprintf(w->request_id, sizeof w->request_id, "%s", req->request->request_id);
    snprintf(w->decode_address, sizeof w->decode_address, "%s", req->decode_address);
    note_chat(w, req->request);
    snprintf(w->reasoning, sizeof w->reasoning, "%s", req->reasoning);
    w->max_tokens = req->request->max_tokens;
    w->age_ms = req->age_ms;
    w->reserve_all = req->reserve_all;
    w->n_ends = req->n_ends < FAKE_ENDS ? req->n_ends : FAKE_ENDS;
    for (size_t i = 0; i < w->n_ends; i++) w->ends[i] = req->ends[i]->digest;
    w->open_ended = req->open_ended;
    w->tenant_kv_bytes = req->tenant_kv_bytes;
    check_replay(w, req->replay, req->n_replay);
    bool alone = !req->decode_address[0],
         ended = req->n_replay > 0 && (w->had_ended || req->n_replay >= w->max_tokens);
    w->alone = alone;
    fv_status st;
    if (stops(w, c, FAKE_NOTHING, &st)) return st;
    if (!alone && !ended) send_begun(c);
    if (stops(w, c, FAKE_BEGUN, &st)) return st;
    send_first(c, w->n_replay, alone || ended || w->ends_at_first, ended);
    if (stops(w, c, FAKE_FIRST, &st)) return st;
    send_handed_off(c);
    if (stops(w, c, FAKE_HANDED_OFF, &st)) return st;
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

/* ---- decode ----------------------------------------------------------------------------- */

void fake_send_token(fv_rpc_call *c, uint32_t index, const char *text) {
    generate_event e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    tokens_message tokens = FOVEA__INFERENCE__V1__TOKENS__INIT;
    token_message token = FOVEA__INFERENCE__V1__TOKEN__INIT, *list = &token;
    token.id = 100 + index;
    token.digest = 1000 + index;
    token.logprob = -(float)index;
    tokens.index = index;
    tokens.n_tokens = 1;
    tokens.tokens = &list;
    tokens.text = (char *)text;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS;
    e.tokens = &tokens;
    NET_CHECK(fv_rpc_call_send(c, &e.base) == FV_OK);
}

void fake_send_finished(fv_rpc_call *c) {
    generate_event e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Finished f = FOVEA__INFERENCE__V1__FINISHED__INIT;
    const fake_worker *w = fv_rpc_call_service(c);
    report_message report = FOVEA__INFERENCE__V1__REPORT__INIT;
    report.bytes_text_end = 99;
    f.reason = w->script ? FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS
                         : FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH;
    f.report = &report;
    if (w->keep_ms) {
        f.conversation = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)FAKE_CONVERSATION};
        f.keep_ms = w->keep_ms;
    }
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED;
    e.finished = &f;
    NET_CHECK(fv_rpc_call_send(c, &e.base) == FV_OK);
    fv_rpc_call_finish(c, FV_OK);
}

/* Sends large tokens while the buffer has space. */
static void flood(fv_rpc_call *c) {
    static char text[4096];
    fake_worker *w = fv_rpc_call_service(c);
    memset(text, 'x', sizeof text - 1);
    while (w->n_flood > 0 && fv_rpc_call_writable(c)) {
        fake_send_token(c, ++w->flooded, text);
        if (--w->n_flood == 0) fake_send_finished(c);
    }
}

static void say_next(fake_worker *w, fv_rpc_call *c) {
    fake_send_token(c, w->next, text_of(w, w->next));
    w->next++;
}

static void check_source(fake_worker *w, const Fovea__Handoff__V1__DecodeRequest *req) {
    w->followed = req->source_case == FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
    if (w->followed) {
        NET_CHECK(req->conversation.len == 16);
        NET_CHECK(memcmp(req->conversation.data, FAKE_CONVERSATION, 16) == 0);
        NET_CHECK(req->prompt && req->n_replay == 0);
        snprintf(w->prompt, sizeof w->prompt, "%s", req->prompt->text);
    } else {
        NET_CHECK(req->ticket && req->ticket->epoch == 7 && req->ticket->id.len == 16);
        NET_CHECK(memcmp(req->ticket->id.data, ticket_id, 16) == 0);
        NET_CHECK(!req->prompt);
    }
}

static fv_status on_decode(fv_rpc_call *c, grpc_byte_buffer *message) {
    fake_worker *w = fv_rpc_call_service(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__decode_request__descriptor, message, &m));
    w->calls++;
    const Fovea__Handoff__V1__DecodeRequest *req = (const Fovea__Handoff__V1__DecodeRequest *)m;
    check_source(w, req);
    w->follow_ups += w->followed;
    if (w->followed) check_caller(w, c, req->request_id, NULL);
    w->keep_ms = req->keep_ms;
    snprintf(w->reasoning, sizeof w->reasoning, "%s", req->reasoning);
    w->inside = req->thinks;
    snprintf(w->share, sizeof w->share, "%s", req->share);
    snprintf(w->tenant, sizeof w->tenant, "%s", req->tenant);
    w->tenant_weight = req->tenant_weight;
    snprintf(w->request_id, sizeof w->request_id, "%s", req->request_id);
    check_replay(w, req->replay, req->n_replay);
    fv_status st;
    if (stops(w, c, FAKE_NOTHING, &st)) return st;
    uint32_t first = w->followed ? 0 : w->n_replay + 1;
    w->flooded = w->n_replay;
    flood(c);
    if (w->flooded > w->n_replay) return FV_OK;
    w->max_tokens = req->max_tokens;
    w->next = first;
    if (w->skips > 0 && w->skips--) w->next++;
    while (w->next < w->max_tokens && text_of(w, w->next)) {
        if (w->next >= first + w->n_say && stops(w, c, FAKE_TOKENS, &st)) return st;
        say_next(w, c);
        if (!w->take) continue;
        w->take(w->user, c);
        return FV_OK;
    }
    if (stops(w, c, FAKE_TOKENS, &st)) return st;
    fake_send_finished(c);
    return FV_OK;
}

/* Continues a request that stalled at FAKE_NOTHING. */
static void prefill_go_on(fake_worker *w, fv_rpc_call *c) {
    if (!w->alone) send_begun(c);
    send_first(c, w->n_replay, w->alone || w->ends_at_first, false);
    send_handed_off(c);
    fv_rpc_call_finish(c, FV_OK);
}

void fake_go_on(fake_worker *w) {
    NET_CHECK(w->last);
    if (w->role == FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL) {
        prefill_go_on(w, w->last);
        return;
    }
    while (w->next < w->max_tokens) say_next(w, w->last);
    fake_send_finished(w->last);
}

void fake_fail(fake_worker *w, fv_status st, const char *refusal) {
    NET_CHECK(w->last);
    if (refusal) fv_rpc_call_trailer(w->last, "fovea-refusal", refusal);
    fv_rpc_call_finish(w->last, fv_fail_origin(FV_FAIL(st, "it cannot go on"), w->origin));
}

static fv_status on_tokenize(fv_rpc_call *c, grpc_byte_buffer *message) {
    fake_worker *w = fv_rpc_call_service(c);
    Fovea__Inference__V1__TokenizeReply reply = FOVEA__INFERENCE__V1__TOKENIZE_REPLY__INIT;
    fv_status st;
    (void)message;
    w->calls++;
    if (stops(w, c, FAKE_NOTHING, &st)) return st;
    FV_TRY(fv_rpc_call_send(c, &reply.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static const fv_rpc_method methods[] = {
    {.path = "/fovea.handoff.v1.Prefill/Tokenize",
     .events = {on_start, on_tokenize, NULL, NULL, on_cancel, on_end}},
    {.path = "/fovea.handoff.v1.Prefill/Prefill",
     .kind = FV_RPC_SERVER_STREAM,
     .events = {on_start, on_prefill, NULL, NULL, on_cancel, on_end}},
    {.path = "/fovea.handoff.v1.Decode/Decode",
     .kind = FV_RPC_SERVER_STREAM,
     .queue_max = 64 << 10,
     .events = {on_start, on_decode, NULL, flood, on_cancel, on_end}},
};

/* ---- membership ------------------------------------------------------------------------- */

fv_key fake_fleet_key(void) {
    fv_key key;
    NET_CHECK(fv_fleet_secret_key(FAKE_SECRET, strlen(FAKE_SECRET), &key) == FV_OK);
    return key;
}

static void introduce(fake_worker *w);

static void on_challenge(fake_worker *w, const Fovea__Fleet__V1__Challenge *said) {
    NET_CHECK(said->nonce.len == 32 && said->proof.len == 32);
    memcpy(w->nonce, said->nonce.data, 32);
    memcpy(w->proof, said->proof.data, 32);
    memcpy(w->said.nonce_router, w->nonce, 32);
    w->challenged = true;
    w->router_proved = fv_join_verify(&w->key, FV_JOIN_ROUTER, &w->said, w->proof, 32);
    introduce(w);
}

static fv_status on_command(fv_rpc_call *c, grpc_byte_buffer *message) {
    fake_worker *w = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__fleet__v1__command__descriptor, message, &m));
    const Fovea__Fleet__V1__Command *cmd = (const Fovea__Fleet__V1__Command *)m;
    if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_CHALLENGE) {
        on_challenge(w, cmd->challenge);
    } else if (cmd->command_case == FOVEA__FLEET__V1__COMMAND__COMMAND_WELCOME) {
        const ProtobufCBinaryData *proof = &cmd->welcome->proof;
        w->welcome = true;
        w->welcome_proved =
            fv_join_verify(&w->key, FV_JOIN_WELCOME, &w->said, proof->data, proof->len);
    }
    return FV_OK;
}

static void on_join_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fake_worker *w = fv_rpc_call_user(c);
    w->join = NULL;
    w->join_over = true;
    w->join_end = *end;
    snprintf(w->join_text, sizeof w->join_text, "%s", end->text);
}

static const fv_rpc_events join_events = {.on_message = on_command, .on_end = on_join_end};

static void list_kept(fake_worker *w, Fovea__Fleet__V1__WorkerReport *r) {
    static Fovea__Fleet__V1__KeptPrompt *list[FAKE_KEPT];
    NET_CHECK(w->n_kept <= FAKE_KEPT);
    for (size_t i = 0; i < w->n_kept; i++)
        list[i] = (Fovea__Fleet__V1__KeptPrompt *)(uintptr_t)&w->kept[i];
    r->n_kept = w->n_kept;
    r->kept = list;
    w->n_kept = 0;
}

static void send_report(fake_worker *w, Fovea__Fleet__V1__Introduction *in) {
    Fovea__Fleet__V1__WorkerReport r = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
    Fovea__Inference__V1__Load load = FOVEA__INFERENCE__V1__LOAD__INIT;
    load.bytes_capacity = w->capacity;
    load.pixels_capacity = w->pixels_capacity;
    load.pixels_held = w->pixels_held;
    load.slots = w->slots;
    load.n_unread = w->n_unread;
    load.tokens_expected = w->tokens_expected;
    /* A worker of a later version may send fields that the router does not know. */
    uint8_t more[] = "\x05later";
    ProtobufCMessageUnknownField unknown = {
        .tag = 1000, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, .len = 6, .data = more};
    load.base.n_unknown_fields = 1;
    load.base.unknown_fields = &unknown;
    r.introduction = in;
    r.clock_ms = fv_callers_clock_ms(w->callers);
    r.load = &load;
    r.draining = w->draining;
    r.unhealthy = w->unhealthy;
    Fovea__Fleet__V1__Work mine = FOVEA__FLEET__V1__WORK__INIT, other = mine, *work[2];
    mine.request_id = w->request_id;
    mine.count = w->work;
    other.request_id = (char *)(uintptr_t)w->foreign;
    other.count = w->work_foreign;
    if (w->works) work[r.n_work++] = &mine;
    if (w->foreign) work[r.n_work++] = &other;
    r.work = work;
    list_kept(w, &r);
    NET_CHECK(fv_rpc_call_send(w->join, &r.base) == FV_OK);
}

void fake_report(fake_worker *w) { send_report(w, NULL); }

static void introduce(fake_worker *w) {
    Fovea__Fleet__V1__Introduction in = FOVEA__FLEET__V1__INTRODUCTION__INIT;
    Fovea__Inference__V1__Model model = FOVEA__INFERENCE__V1__MODEL__INIT;
    Fovea__Inference__V1__Limits limits = FOVEA__INFERENCE__V1__LIMITS__INIT;
    limits.max_positions = 256;
    limits.keep_ms_max = w->keep_ms_max;
    limits.bytes_image = 1000;
    limits.n_images = 2;
    model.name = (char *)(w->model ? w->model : "fake");
    model.fingerprint = (char *)(w->fingerprint ? w->fingerprint : "0123456789abcdef");
    model.n_layer = 4;
    model.n_head = 2;
    model.n_kv = 2;
    model.d_head = 8;
    model.n_vocab = 1000;
    if (w->tool_parser) model.tool_parser = (char *)(uintptr_t)w->tool_parser;
    if (w->reasoning_parser) model.reasoning_parser = (char *)(uintptr_t)w->reasoning_parser;
    model.dtype = model.kv_dtype = (char *)"f32";
    Fovea__Inference__V1__ImageLayout layout = FOVEA__INFERENCE__V1__IMAGE_LAYOUT__INIT;
    layout.family = (char *)"llava"; /* 16 tokens an image */
    layout.tile = layout.shortest_edge = 56;
    layout.patch = 14;
    layout.merge = 1;
    model.image_layout = &layout;
    model.image_token = 999;
    model.limits = &limits;
    in.name = (char *)w->name;
    in.role = w->role;
    in.address = w->says_address ? (char *)(uintptr_t)w->says_address : w->address;
    in.model = &model;
    in.compat = (char *)(w->compat ? w->compat : "model=fake\nprotocol=1\ngrammar=1\n");
    in.compat_hash = w->compat ? 2 : 1;
    uint8_t proof[FV_MAC_BYTES];
    memcpy(w->said.incarnation, fv_callers_incarnation(w->callers), sizeof w->said.incarnation);
    w->said.role = w->role;
    w->said.name = w->name;
    w->said.address = w->says_address ? w->says_address : w->address;
    w->said.compat_hash = in.compat_hash;
    w->said.compat = w->compat ? w->compat : "model=fake\nprotocol=1\ngrammar=1\n";
    in.incarnation = (ProtobufCBinaryData){sizeof w->said.incarnation, w->said.incarnation};
    NET_CHECK(fv_join_prove(&w->key, FV_JOIN_WORKER, &w->said, proof) == FV_OK);
    in.proof = (ProtobufCBinaryData){sizeof proof, proof};
    if (w->forge) w->forge(w->user, &in);
    send_report(w, &in);
}

static void greet(fake_worker *w) {
    Fovea__Fleet__V1__WorkerReport r = FOVEA__FLEET__V1__WORKER_REPORT__INIT;
    Fovea__Fleet__V1__Hello hello = FOVEA__FLEET__V1__HELLO__INIT;
    const char *secret = w->secret ? w->secret : FAKE_SECRET;
    fv_key fleet;
    NET_CHECK(fv_fleet_secret_key(secret, strlen(secret), &fleet) == FV_OK);
    NET_CHECK(fv_join_key(&fleet, &w->key) == FV_OK);
    w->said = (fv_join_transcript){0};
    NET_CHECK(fv_random_bytes(w->said.nonce_worker, sizeof w->said.nonce_worker) == FV_OK);
    hello.nonce = (ProtobufCBinaryData){sizeof w->said.nonce_worker, w->said.nonce_worker};
    r.hello = &hello;
    NET_CHECK(fv_rpc_call_send(w->join, &r.base) == FV_OK);
}

void fake_open(fake_worker *w, fv_bridge *bridge, const char *target) {
    static fv_rpc_service services[16]; /* each server borrows a reference */
    static int32_t n;
    fv_rpc_service *service = &services[n++ % 16];
    *service = (fv_rpc_service){methods, sizeof methods / sizeof methods[0], w, NULL};
    fv_rpc_server_options opt = {
        .listen = "127.0.0.1:0", .services = service, .n_service = 1, .tls = w->tls};
    fv_rpc_channel_options to_router = {.tls = w->tls,
                                        .server_name = w->tls ? "fovea-router" : NULL};
    w->bridge = bridge;
    fv_key fleet = fake_fleet_key();
    NET_CHECK(fv_callers_open(w->tls || w->no_tokens ? NULL : &fleet, &w->callers) == FV_OK);
    fv_callers_set_name(w->callers, w->name);
    NET_CHECK(fv_rpc_server_open(bridge, &opt, &w->server) == FV_OK);
    snprintf(w->address, sizeof w->address, "127.0.0.1:%d", fv_rpc_server_port(w->server));
    NET_CHECK(fv_rpc_channel_open(bridge, target, &to_router, &w->router) == FV_OK);
    fv_rpc_call_options call = {.path = "/fovea.fleet.v1.Fleet/Join",
                                .events = &join_events,
                                .user = w,
                                .deadline_ms = 3600000};
    NET_CHECK(fv_rpc_call_open(w->router, &call, &w->join) == FV_OK);
    greet(w);
}

void fake_leave(fake_worker *w) {
    if (w->join) fv_rpc_call_cancel(w->join);
}

static void on_stopped(void *user) {
    fake_worker *w = user;
    fv_callers_close(w->callers);
    w->callers = NULL;
    w->stopped = true;
}

void fake_die(fake_worker *w) {
    fake_leave(w);
    fv_rpc_server_stop(w->server, 0, on_stopped, w);
    w->dead = true;
}

void fake_close(fake_worker *w) {
    fake_leave(w);
    fv_rpc_channel_close(w->router);
    if (!w->dead) fv_rpc_server_stop(w->server, 50, on_stopped, w);
}
