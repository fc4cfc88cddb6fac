/* Frames that are changed are copied; all others pass unchanged. */
#include "tests/support/transport_fault.h"

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"

/* A frame in one piece. */
typedef struct frame {
    uint64_t seq;
    fv_piece whole;
} frame;

typedef struct fault_transfer fault_transfer;

typedef struct fault {
    fv_transport base;
    fv_transport *inner;
    fv_fault_options opt;
    fault_transfer *kept; /* ended by the sender, without the other side knowing */
    fault_transfer *old;  /* FV_FAULT_REPLAY: the hand-off that old_frame belongs to */
    frame old_frame;
} fault;

struct fault_transfer {
    fv_transfer base;
    fault *t;
    fv_transfer *inner;
    fv_arena arena;  /* bytes of frames that were copied */
    uint64_t target; /* the frame that is hit */
    frame held;      /* FV_FAULT_REORDER: waits for its successor */
    bool holds, silent, keep;
    fault_transfer *next; /* in `kept` */
    void (*gone)(void *user);
    void *gone_user;
};

const char *fv_fault_name(fv_fault f) {
    static const char *const names[] = {"none",    "bit flip", "truncate", "extend", "duplicate",
                                        "reorder", "drop",     "delay",    "replay", "silence"};
    return names[f];
}

/* Number `which` of the seed's random numbers (SplitMix64). */
static uint64_t draw(const fault *t, uint64_t which) {
    uint64_t z = t->opt.seed + (which + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fired(const fault *t) {
    if (t->opt.fired) (*t->opt.fired)++;
}

static fv_status copy_frame(fv_arena *arena, uint64_t seq, const fv_piece *piece, int32_t n,
                            size_t more, frame *out) {
    void *bytes;
    FV_TRY(fv_arena_alloc(arena, fv_pieces_bytes(piece, n) + more, &bytes));
    *out = (frame){.seq = seq, .whole = {bytes, fv_pieces_bytes(piece, n) + more}};
    for (char *at = bytes; n > 0; at += piece->bytes, piece++, n--)
        memcpy(at, piece->data, piece->bytes);
    return FV_OK;
}

static fv_status push_frame(fv_transfer *inner, const frame *f) {
    return inner->ops->push(inner, f->seq, &f->whole, 1);
}

static fv_status push_changed(fault_transfer *x, uint64_t seq, const fv_piece *piece, int32_t n) {
    fv_fault kind = x->t->opt.fault;
    frame f;
    FV_TRY(copy_frame(&x->arena, seq, piece, n, kind == FV_FAULT_EXTEND, &f));
    if (kind == FV_FAULT_BIT_FLIP) {
        uint64_t bit = draw(x->t, 1) % (f.whole.bytes * 8);
        ((uint8_t *)(uintptr_t)f.whole.data)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    if (kind == FV_FAULT_TRUNCATE) f.whole.bytes -= 1 + draw(x->t, 1) % f.whole.bytes;
    return push_frame(x->inner, &f);
}

/* Passes the frame, followed by one of an earlier hand-off. The first time there is none yet: this
 * one is kept for the next. */
static fv_status push_replayed(fault_transfer *x, uint64_t seq, const fv_piece *piece, int32_t n) {
    fault *t = x->t;
    FV_TRY(x->inner->ops->push(x->inner, seq, piece, n));
    if (t->old) {
        fired(t);
        (void)push_frame(t->old->inner, &t->old_frame); /* its result does not concern this one */
        return FV_OK;
    }
    t->old = x;
    return copy_frame(&x->arena, seq, piece, n, 0, &t->old_frame);
}

/* Sends the target frame with its fault. */
static fv_status push_hit(fault_transfer *x, uint64_t seq, const fv_piece *piece, int32_t n) {
    fault *t = x->t;
    if (t->opt.fault == FV_FAULT_REPLAY) return push_replayed(x, seq, piece, n);
    fired(t);
    switch (t->opt.fault) {
    case FV_FAULT_BIT_FLIP:
    case FV_FAULT_TRUNCATE:
    case FV_FAULT_EXTEND: return push_changed(x, seq, piece, n);
    case FV_FAULT_DUPLICATE: FV_TRY(x->inner->ops->push(x->inner, seq, piece, n)); break;
    case FV_FAULT_REORDER:
        x->holds = true;
        return copy_frame(&x->arena, seq, piece, n, 0, &x->held);
    case FV_FAULT_DROP: return FV_OK;
    case FV_FAULT_DELAY: t->opt.delay(t->opt.delay_user); break;
    case FV_FAULT_SILENCE: x->silent = true; return FV_OK;
    default: break;
    }
    return x->inner->ops->push(x->inner, seq, piece, n);
}

/* A hand-off that outlives its sender must not point to memory that the sender frees. */
static bool outlives(const fault *t) {
    return t->opt.fault == FV_FAULT_SILENCE || t->opt.fault == FV_FAULT_REPLAY;
}

static fv_status fault_push(fv_transfer *base, uint64_t seq, const fv_piece *piece, int32_t n) {
    fault_transfer *x = (fault_transfer *)base;
    frame copy;
    if (x->silent) return FV_OK;
    if (outlives(x->t)) {
        FV_TRY(copy_frame(&x->arena, seq, piece, n, 0, &copy));
        piece = &copy.whole;
        n = 1;
    }
    if (x->t->opt.fault != FV_FAULT_NONE && seq == x->target) return push_hit(x, seq, piece, n);
    FV_TRY(x->inner->ops->push(x->inner, seq, piece, n));
    if (!x->holds) return FV_OK;
    x->holds = false;
    return push_frame(x->inner, &x->held);
}

static fv_status fault_open(fv_transport *base, const fv_hello *hello,
                            const fv_grant_request *asking, fv_on_reply done, void *user,
                            fv_transfer **out) {
    fault *t = (fault *)base;
    fault_transfer *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    fv_status st = t->inner->ops->open(t->inner, hello, asking, done, user, &x->inner);
    if (st != FV_OK) {
        free(x);
        return st;
    }
    x->base.ops = base->ops;
    x->t = t;
    uint64_t n = t->opt.n_frame;
    if (t->opt.fault == FV_FAULT_REORDER && n > 1) n--; /* the last one has no successor */
    x->target = n ? draw(t, 0) % n : 0;
    *out = &x->base;
    return FV_OK;
}

static void fault_commit(fv_transfer *base, uint64_t n_frame, fv_on_reply done, void *user) {
    fault_transfer *x = (fault_transfer *)base;
    if (!x->silent) x->inner->ops->commit(x->inner, n_frame, done, user);
}

static void on_gone(void *user) {
    fault_transfer *x = user;
    if (x->gone) x->gone(x->gone_user);
    fv_arena_fini(&x->arena);
    free(x);
}

static void fault_end(fv_transfer *base, bool keep, void (*gone)(void *), void *user) {
    fault_transfer *x = (fault_transfer *)base;
    if (!x->silent && x != x->t->old) {
        x->gone = gone;
        x->gone_user = user;
        x->inner->ops->end(x->inner, keep, on_gone, x);
        return;
    }
    x->keep = keep;
    x->next = x->t->kept;
    x->t->kept = x;
    if (gone) gone(user);
}

static void fault_close(fv_transport *base, void (*closed)(void *), void *user) {
    fault *t = (fault *)base;
    fv_transport *inner = t->inner;
    for (fault_transfer *x = t->kept, *next; x; x = next) {
        next = x->next;
        x->inner->ops->end(x->inner, x->keep, on_gone, x);
    }
    free(t);
    fv_transport_close(inner, closed, user);
}

fv_status fv_transport_fault(fv_transport *inner, const fv_fault_options *opt, fv_transport **out) {
    static const fv_transport_ops ops = {.name = "fault",
                                         .open = fault_open,
                                         .push = fault_push,
                                         .commit = fault_commit,
                                         .end = fault_end,
                                         .close = fault_close};
    fault *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a transport");
    t->base.ops = &ops;
    t->inner = inner;
    t->opt = *opt;
    *out = &t->base;
    return FV_OK;
}
