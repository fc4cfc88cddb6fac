/* The network with its stacks, as a deterministic automaton that is made while it is used.
 *
 * A configuration is a state of the network that waits for a byte, and a stack of calls. Stacks are lists that share
 * their ends: a frame has a number, the frames below it, and the state where its rule returns to; a repetition's frame
 * also counts. A state of the automaton is a set of configurations, sorted, and has a number too, so an answer's whole
 * state is one number, and what was computed for it once is looked up from then on.
 *
 * The alternative is to keep stacks per answer (or an Earley chart), without numbers: nothing to forget, but also
 * nothing shared between the tokens of one mask, between the steps of a string, or between requests. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

enum { CONFIGS_MAX = 8192 };

typedef struct frame {
    int32_t back;  /* the state to return to, or the repetition */
    int32_t count; /* how often it has begun; 0: a call */
    int32_t below; /* frame number, 0: none */
    int32_t depth; /* recursive calls in it and below */
} frame;

typedef struct config {
    int32_t state, stack;
} config;

typedef struct set {
    size_t at; /* of its configurations */
    uint32_t n;
    uint32_t hash;
    bool accepts;
} set;

typedef struct item {
    int32_t state, stack, fresh; /* fresh: how many of the upper frames no byte has followed */
} item;

typedef struct slots {
    int32_t *number; /* [mask + 1] 0: empty */
    size_t mask;
} slots;

struct fv_automaton {
    fv_net_state *net; /* [n_net] owned */
    size_t n_net;
    int32_t net_start;
    fv_grammar_limits limits;
    int64_t steps;
    uint64_t generation;
    int32_t start;
    uint8_t class_of[256], byte_of[256];
    int32_t n_class;

    frame *frame;
    size_t n_frame, cap_frame;
    slots frames;
    config *config;
    size_t n_config, cap_config;
    set *set;
    size_t n_set, cap_set;
    slots sets;
    int32_t *next; /* [cap_next] */
    size_t cap_next;

    item *work; /* of the set that is being made */
    size_t n_work, cap_work;
    uint64_t *seen; /* [seen_mask + 1] keys + 1 */
    size_t seen_mask, n_seen;
    config *made;
    size_t n_made, cap_made;
    bool accepts;
};

/* ---- tables -------------------------------------------------------------------------------- */

size_t fv_automaton_bytes(const fv_automaton *a) {
    return a->cap_frame * sizeof *a->frame + a->cap_config * sizeof *a->config +
           a->cap_set * sizeof *a->set + a->cap_next * sizeof *a->next +
           (a->frames.mask + a->sets.mask) * sizeof *a->sets.number;
}

static fv_status spend(fv_automaton *a, int64_t n) {
    a->steps -= n;
    if (a->steps >= 0 && fv_automaton_bytes(a) <= 4 * a->limits.bytes) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "finding the legal tokens takes too many steps or too much memory: the "
                   "grammar is too ambiguous; make it simpler");
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    return x ^ x >> 32;
}

static uint64_t frame_hash(const frame *f) {
    return mix(mix(mix((uint64_t)(uint32_t)f->back) + (uint32_t)f->count) + (uint32_t)f->below);
}

static uint64_t hash_of(const fv_automaton *a, const slots *s, int32_t number) {
    return s == &a->frames ? frame_hash(&a->frame[number]) : a->set[number].hash;
}

/* Makes room for one more number; n are there. */
static fv_status slots_room(fv_automaton *a, slots *s, size_t n) {
    if (s->number && n * 2 < s->mask) return FV_OK;
    const size_t mask = s->number ? 2 * s->mask + 1 : 255;
    int32_t *fresh = calloc(mask + 1, sizeof *fresh);
    if (!fresh) return FV_FAIL(FV_ENOMEM, "out of memory for a grammar");
    for (size_t i = 0; s->number && i <= s->mask; i++) {
        if (!s->number[i]) continue;
        size_t at = hash_of(a, s, s->number[i]) & mask;
        while (fresh[at]) at = (at + 1) & mask;
        fresh[at] = s->number[i];
    }
    free(s->number);
    *s = (slots){fresh, mask};
    return FV_OK;
}

static fv_status push_frame(fv_automaton *a, int32_t back, int32_t count, int32_t below,
                            bool recursive, int32_t *out) {
    const frame f = {back, count, below, a->frame[below].depth + recursive};
    FV_TRY(slots_room(a, &a->frames, a->n_frame));
    size_t at = frame_hash(&f) & a->frames.mask;
    for (int32_t k; (k = a->frames.number[at]); at = (at + 1) & a->frames.mask) {
        const frame *g = &a->frame[k];
        if (g->back == back && g->count == count && g->below == below) {
            *out = k;
            return FV_OK;
        }
    }
    FV_TRY(fv_grow(&a->frame, &a->cap_frame, a->n_frame + 1, sizeof *a->frame));
    a->frame[a->n_frame] = f;
    *out = a->frames.number[at] = (int32_t)a->n_frame++;
    return FV_OK;
}

/* ---- closing a set ------------------------------------------------------------------------- */

static fv_status seen_room(fv_automaton *a) {
    if (a->seen && a->n_seen * 2 < a->seen_mask) return FV_OK;
    const size_t mask = a->seen ? 2 * a->seen_mask + 1 : 255;
    uint64_t *fresh = calloc(mask + 1, sizeof *fresh);
    if (!fresh) return FV_FAIL(FV_ENOMEM, "out of memory for a grammar");
    for (size_t i = 0; a->seen && i <= a->seen_mask; i++) {
        if (!a->seen[i]) continue;
        size_t at = mix(a->seen[i]) & mask;
        while (fresh[at]) at = (at + 1) & mask;
        fresh[at] = a->seen[i];
    }
    free(a->seen);
    a->seen = fresh;
    a->seen_mask = mask;
    return FV_OK;
}

/* Adds work, unless it is there already. */
static fv_status add(fv_automaton *a, int32_t state, int32_t stack, int32_t fresh) {
    if (state < 0 || a->net[state].dead) return FV_OK;
    if (fresh > 255) fresh = 255;
    const uint64_t key =
        ((uint64_t)(uint32_t)state << 38 | (uint64_t)(uint32_t)stack << 8 | (uint64_t)fresh) + 1;
    FV_TRY(spend(a, 1));
    FV_TRY(seen_room(a));
    size_t at = mix(key) & a->seen_mask;
    for (; a->seen[at]; at = (at + 1) & a->seen_mask)
        if (a->seen[at] == key) return FV_OK;
    a->seen[at] = key;
    a->n_seen++;
    FV_TRY(fv_grow(&a->work, &a->cap_work, a->n_work + 1, sizeof *a->work));
    a->work[a->n_work++] = (item){state, stack, fresh};
    return FV_OK;
}

/* A repetition that has begun `count` times and goes on, or is over. */
static fv_status repeat(fv_automaton *a, int32_t state, int32_t count, int32_t below,
                        int32_t fresh) {
    const fv_net_state *s = &a->net[state];
    int32_t above;
    if (count >= s->min) FV_TRY(add(a, s->b, below, fresh));
    if (s->max >= 0 && count >= s->max) return FV_OK;
    if (s->recursive && a->frame[below].depth >= FV_STACK_DEPTH_MAX) return FV_OK;
    const int32_t most = s->max >= 0  ? s->max
                         : s->min > 0 ? s->min
                                      : 1; /* from there on it counts no more */
    FV_TRY(push_frame(a, state, count < most ? count + 1 : most, below, s->recursive, &above));
    return add(a, s->a, above, fresh + 1);
}

static fv_status pop(fv_automaton *a, int32_t stack, int32_t fresh) {
    if (stack == 0) {
        a->accepts = true;
        return FV_OK;
    }
    const frame f = a->frame[stack];
    if (f.count == 0) return add(a, f.back, f.below, fresh ? fresh - 1 : 0);
    return fresh ? FV_OK
                 : repeat(a, f.back, f.count, f.below, 0); /* an empty body repeats nothing */
}

static fv_status expand(fv_automaton *a, item w) {
    const fv_net_state *s = &a->net[w.state];
    int32_t stack = w.stack;
    switch ((fv_net_kind)s->kind) {
    case FV_NET_RANGE:
        if (a->n_made == CONFIGS_MAX)
            return FV_FAIL(FV_EINVAL,
                           "more than %d ways to read the answer: the grammar is too "
                           "ambiguous; make it simpler",
                           CONFIGS_MAX);
        FV_TRY(fv_grow(&a->made, &a->cap_made, a->n_made + 1, sizeof *a->made));
        a->made[a->n_made++] = (config){w.state, w.stack};
        return FV_OK;
    case FV_NET_SPLIT: FV_TRY(add(a, s->b, stack, w.fresh)); return add(a, s->a, stack, w.fresh);
    case FV_NET_CALL:
        if (s->recursive && a->frame[stack].depth >= FV_STACK_DEPTH_MAX) return FV_OK;
        if (s->b == 0)
            return add(a, s->a, stack, w.fresh); /* nothing to return to but the caller's caller */
        FV_TRY(push_frame(a, s->b, 0, stack, s->recursive, &stack));
        return add(a, s->a, stack, w.fresh + 1);
    case FV_NET_REPEAT: return repeat(a, w.state, 0, stack, w.fresh);
    case FV_NET_POP: return pop(a, stack, w.fresh);
    }
    return FV_OK;
}

static int by_config(const void *x, const void *y) {
    const config *a = x, *b = y;
    if (a->state != b->state) return a->state < b->state ? -1 : 1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static fv_status new_set(fv_automaton *a, uint32_t hash, int32_t *out) {
    const size_t n_next = (a->n_set + 1) * (size_t)a->n_class;
    FV_TRY(fv_grow(&a->config, &a->cap_config, a->n_config + a->n_made, sizeof *a->config));
    FV_TRY(fv_grow(&a->set, &a->cap_set, a->n_set + 1, sizeof *a->set));
    FV_TRY(fv_grow(&a->next, &a->cap_next, n_next, sizeof *a->next));
    if (a->n_made) memcpy(a->config + a->n_config, a->made, a->n_made * sizeof *a->made);
    memset(a->next + n_next - a->n_class, 0xFF, (size_t)a->n_class * sizeof *a->next);
    a->set[a->n_set] = (set){a->n_config, (uint32_t)a->n_made, hash, a->accepts};
    a->n_config += a->n_made;
    *out = (int32_t)a->n_set++;
    return FV_OK;
}

/* Gives the number of the set of a->made. */
static fv_status number(fv_automaton *a, int32_t *out) {
    uint64_t h = a->accepts;
    size_t n = 0;
    if (a->n_made) qsort(a->made, a->n_made, sizeof *a->made, by_config);
    for (size_t i = 0; i < a->n_made; i++) {
        if (n && by_config(&a->made[n - 1], &a->made[i]) == 0) continue;
        a->made[n++] = a->made[i];
        h = mix(h ^ ((uint64_t)(uint32_t)a->made[i].state << 32 | (uint32_t)a->made[i].stack));
    }
    a->n_made = n;
    if (n == 0 && !a->accepts) {
        *out = FV_AUTO_DEAD;
        return FV_OK;
    }
    FV_TRY(slots_room(a, &a->sets, a->n_set));
    const uint32_t hash = (uint32_t)h;
    size_t at = hash & a->sets.mask;
    for (int32_t k; (k = a->sets.number[at]); at = (at + 1) & a->sets.mask) {
        const set *s = &a->set[k];
        if (s->hash == hash && s->n == n && s->accepts == a->accepts &&
            (n == 0 || memcmp(a->config + s->at, a->made, n * sizeof *a->made) == 0)) {
            *out = k;
            return FV_OK;
        }
    }
    FV_TRY(spend(a, 1 + a->n_class / 8));
    FV_TRY(new_set(a, hash, out));
    a->sets.number[at] = *out;
    return FV_OK;
}

/* Begins a set. A table that had to grow for a large one is not cleared for each small one after it. */
static void begin(fv_automaton *a) {
    if (a->seen_mask > 1023 && a->n_seen < a->seen_mask / 16) {
        free(a->seen);
        a->seen = NULL;
        a->seen_mask = a->n_seen = 0;
    }
    if (a->n_seen) memset(a->seen, 0, (a->seen_mask + 1) * sizeof *a->seen);
    a->n_seen = a->n_work = a->n_made = 0;
    a->accepts = false;
}

static fv_status close_set(fv_automaton *a, int32_t *out) {
    while (a->n_work) FV_TRY(expand(a, a->work[--a->n_work]));
    return number(a, out);
}

fv_status fv_automaton_next(fv_automaton *a, int32_t state, uint8_t byte, int32_t *next) {
    const size_t cell = (size_t)state * (size_t)a->n_class + a->class_of[byte];
    if (a->next[cell] != FV_AUTO_UNKNOWN) {
        *next = a->next[cell];
        return FV_OK;
    }
    const set s = a->set[state];
    int32_t to;
    begin(a);
    FV_TRY(spend(a, 1 + s.n / 4));
    for (uint32_t i = 0; i < s.n; i++) {
        const config x = a->config[s.at + i];
        const fv_net_state *r = &a->net[x.state];
        if (r->lo <= byte && byte <= r->hi) FV_TRY(add(a, r->a, x.stack, 0));
    }
    FV_TRY(close_set(a, &to));
    *next = a->next[cell] = to;
    return FV_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Bytes that no range of the network tells apart are a class. */
static void make_classes(fv_automaton *a) {
    bool begins[257] = {true};
    for (size_t i = 0; i < a->n_net; i++)
        if (a->net[i].kind == FV_NET_RANGE && a->net[i].lo <= a->net[i].hi)
            begins[a->net[i].lo] = begins[a->net[i].hi + 1] = true;
    for (int b = 0; b < 256; b++) {
        a->n_class += begins[b];
        a->class_of[b] = (uint8_t)(a->n_class - 1);
    }
}

/* Sets up the dead state and the first one. */
static fv_status begin_states(fv_automaton *a) {
    int32_t dead;
    a->n_frame = a->n_config = a->n_set = 0;
    a->generation++;
    FV_TRY(fv_grow(&a->frame, &a->cap_frame, 1, sizeof *a->frame));
    a->frame[a->n_frame++] = (frame){0};
    begin(a);
    FV_TRY(new_set(a, 0, &dead));
    memset(a->next, 0, (size_t)a->n_class * sizeof *a->next);
    fv_automaton_refuel(a);
    FV_TRY(add(a, a->net_start, 0, 0));
    return close_set(a, &a->start);
}

fv_status fv_automaton_make(fv_net *net, const fv_grammar_limits *limits, fv_automaton **out) {
    fv_automaton *a = calloc(1, sizeof *a);
    if (!a) return FV_FAIL(FV_ENOMEM, "out of memory for a grammar");
    a->net = net->state;
    a->n_net = net->n;
    a->net_start = net->start;
    a->limits = *limits;
    net->state = NULL;
    fv_status st = FV_OK;
    make_classes(a);
    st = begin_states(a);
    if (st == FV_OK)
        *out = a;
    else
        fv_automaton_free(a);
    return st;
}

static void forget(fv_automaton *a) {
    free(a->frame);
    free(a->frames.number);
    free(a->config);
    free(a->set);
    free(a->sets.number);
    free(a->next);
    free(a->work);
    free(a->seen);
    free(a->made);
}

void fv_automaton_free(fv_automaton *a) {
    if (!a) return;
    forget(a);
    free(a->net);
    free(a);
}

/* The same automaton without anything that was learned. */
static fv_automaton fresh(const fv_automaton *a) {
    fv_automaton b = {.net = a->net,
                      .n_net = a->n_net,
                      .net_start = a->net_start,
                      .limits = a->limits,
                      .generation = a->generation,
                      .n_class = a->n_class};
    memcpy(b.class_of, a->class_of, sizeof b.class_of);
    return b;
}

/* Makes the stack of `old` in `a`. made [old->n_frame]: the new numbers of frames, 0: not yet; path: as many, scratch. */
static fv_status copy_stack(fv_automaton *a, const fv_automaton *old, int32_t stack, int32_t *made,
                            int32_t *path) {
    size_t n = 0;
    for (; stack && !made[stack]; stack = old->frame[stack].below) path[n++] = stack;
    while (n--) {
        const frame *f = &old->frame[path[n]];
        FV_TRY(push_frame(a, f->back, f->count, made[f->below],
                          f->depth > old->frame[f->below].depth, &made[path[n]]));
    }
    return FV_OK;
}

/* Gives the state of `old` in `a`. */
static fv_status copy_state(fv_automaton *a, const fv_automaton *old, int32_t *state) {
    const set s = old->set[*state];
    int32_t *made = calloc(2 * old->n_frame, sizeof *made);
    fv_status st = made ? fv_grow(&a->made, &a->cap_made, s.n, sizeof *a->made)
                        : FV_FAIL(FV_ENOMEM, "out of memory for a grammar");
    begin(a);
    a->accepts = s.accepts;
    for (uint32_t i = 0; i < s.n && st == FV_OK; i++) {
        const config x = old->config[s.at + i];
        st = copy_stack(a, old, x.stack, made, made + old->n_frame);
        a->made[a->n_made++] = (config){x.state, made[x.stack]};
    }
    if (st == FV_OK) st = number(a, state);
    free(made);
    return st;
}

fv_status fv_automaton_trim(fv_automaton *a, int32_t *state) {
    if (fv_automaton_bytes(a) <= a->limits.bytes) return FV_OK;
    fv_automaton old = *a;
    *a = fresh(&old);
    fv_status st = begin_states(a);
    if (st == FV_OK) st = copy_state(a, &old, state);
    forget(&old);
    return st;
}

void fv_automaton_refuel(fv_automaton *a) { a->steps = a->limits.mask_steps; }
int64_t fv_automaton_spent(const fv_automaton *a) { return a->limits.mask_steps - a->steps; }
int32_t fv_automaton_start(const fv_automaton *a) { return a->start; }
bool fv_automaton_accepts(const fv_automaton *a, int32_t state) { return a->set[state].accepts; }
uint64_t fv_automaton_generation(const fv_automaton *a) { return a->generation; }

fv_auto_table fv_automaton_table(const fv_automaton *a) {
    return (fv_auto_table){a->next, a->class_of, a->n_class};
}
