/* Blocks of a kernel, one after the other; a block's threads are fibers that change places where
 * they wait. Each second launch runs blocks, warps and lanes in the opposite order, so that a missing barrier changes results.
 *
 * ucontext's switch asks the kernel for the signal mask each time; that is most of the time of a
 * small block, so the switch is the ten instructions that it needs (x86-64). */
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#include "cuda_runtime.h"
#include "run.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define FRESH_STACK(bottom, bytes) __asan_unpoison_memory_region(bottom, bytes)
#define START_SWITCH(save, bottom, bytes) __sanitizer_start_switch_fiber(save, bottom, bytes)
#define FINISH_SWITCH(saved, bottom, bytes) __sanitizer_finish_switch_fiber(saved, bottom, bytes)
#else
#define FRESH_STACK(bottom, bytes) (void)(bottom)
#define START_SWITCH(save, bottom, bytes) (void)(save)
#define FINISH_SWITCH(saved, bottom, bytes) (void)(saved)
#endif

extern "C" void fv_emu_switch(void **save_sp, void *to_sp);
asm(R"(
.text
.globl fv_emu_switch
.hidden fv_emu_switch
.type fv_emu_switch, @function
fv_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size fv_emu_switch, . - fv_emu_switch
)");

namespace fv_emu {

fiber *self;
place here;

namespace {

enum { MAX_THREAD = 1024, STACK = 256 << 10, WARP = 32 };
enum state { READY, AT_WARP, AT_BLOCK, GONE };

struct pending_copy {
    void *dst;
    const void *src;
    unsigned bytes, bytes_src;
    unsigned group;
};

struct thread : fiber {
    state at;
    unsigned mask; /* the lanes that it waits for */
    void *sp, *stack, *fake;
    std::vector<pending_copy> copies;
    unsigned group; /* of cp.async, being filled */
};

struct warp {
    char room[2][WARP][ROOM];
};

thread threads[MAX_THREAD];
warp warps[MAX_THREAD / WARP];
void *home_sp, *home_fake;
[[maybe_unused]] const void *home_bottom;
[[maybe_unused]] size_t home_bytes;
const std::function<void()> *body;
const char *kernel_name;
unsigned n_thread, n_launch;
std::vector<char> shared_memory;

[[noreturn]] void wrong(const char *what) {
    fprintf(stderr, "FAILED: kernel %s, block (%u, %u, %u): %s\n", kernel_name, here.block.x,
            here.block.y, here.block.z, what);
    abort();
}

/* Switches back to the fiber that runs the block. */
void leave(bool for_good) {
    thread *t = static_cast<thread *>(self);
    void **save = for_good ? nullptr : &t->fake;
    START_SWITCH(save, home_bottom, home_bytes);
    fv_emu_switch(&t->sp, home_sp);
    FINISH_SWITCH(t->fake, &home_bottom, &home_bytes);
}

void finish_copies(thread *t, unsigned pending) {
    size_t n = 0;
    while (n < t->copies.size() && t->copies[n].group + pending < t->group) {
        const pending_copy &c = t->copies[n++];
        memcpy(c.dst, c.src, c.bytes_src);
        memset(static_cast<char *>(c.dst) + c.bytes_src, 0, c.bytes - c.bytes_src);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)n);
}

void enter() {
    FINISH_SWITCH(nullptr, &home_bottom, &home_bytes);
    (*body)();
    thread *t = static_cast<thread *>(self);
    if (!t->copies.empty()) wrong("a thread ends before its copies have been waited for");
    t->at = GONE;
    leave(true);
    wrong("a thread that has ended runs on");
}

void start(thread *t) {
    if (!t->stack) {
        t->stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t->stack == MAP_FAILED) wrong("no memory for the stacks of its threads");
    }
    FRESH_STACK(t->stack, STACK); /* clears what an unfinished thread has left on it */
    void **sp = reinterpret_cast<void **>(static_cast<char *>(t->stack) + STACK);
    *--sp = nullptr; /* keeps the stack as a call would leave it */
    *--sp = reinterpret_cast<void *>(enter);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    t->sp = sp;
    t->at = READY;
    t->turn = 0;
    t->group = 0;
}

void resume(thread *t) {
    self = t;
    START_SWITCH(&home_fake, t->stack, STACK);
    fv_emu_switch(&home_sp, t->sp);
    FINISH_SWITCH(home_fake, nullptr, nullptr);
}

/* Releases the lanes of a warp whose whole mask has arrived. */
void release_warp(unsigned w) {
    unsigned waiting = 0, gone = 0;
    for (unsigned i = 0; i < WARP; i++) {
        unsigned t = w * WARP + i;
        if (t >= n_thread || threads[t].at == GONE) gone |= 1u << i;
        if (t < n_thread && threads[t].at == AT_WARP) waiting |= 1u << i;
    }
    for (unsigned i = 0; i < WARP; i++) {
        thread *t = &threads[w * WARP + i];
        if (!(waiting >> i & 1)) continue;
        if (!(t->mask >> i & 1)) wrong("a lane waits for others and is not in its own mask");
        if (t->mask & gone) wrong("a mask names lanes that have ended or are not there");
        if ((t->mask & waiting) != t->mask) continue;
        for (unsigned j = 0; j < WARP; j++)
            if (t->mask >> j & 1) {
                if (threads[w * WARP + j].mask != t->mask) wrong("lanes wait with other masks");
            }
        unsigned mask = t->mask;
        for (unsigned j = 0; j < WARP; j++)
            if (mask >> j & 1) threads[w * WARP + j].at = READY;
        waiting &= ~mask;
    }
}

/* Runs a warp's lanes for as long as one can. */
bool run_warp(unsigned w, bool backward) {
    bool any = false;
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < WARP; i++) {
            unsigned t = w * WARP + (backward ? WARP - 1 - i : i);
            if (t >= n_thread || threads[t].at != READY) continue;
            resume(&threads[t]);
            more = any = true;
        }
        release_warp(w);
    }
    return any;
}

void run_block(bool backward) {
    for (unsigned i = 0; i < n_thread; i++) {
        threads[i].flat = i;
        threads[i].lane = i % WARP;
        threads[i].index = {i % here.block_dim.x, i / here.block_dim.x % here.block_dim.y,
                            i / (here.block_dim.x * here.block_dim.y)};
        start(&threads[i]);
    }
    unsigned n_warp = (n_thread + WARP - 1) / WARP;
    for (;;) {
        bool any = false;
        for (unsigned w = 0; w < n_warp; w++)
            any |= run_warp(backward ? n_warp - 1 - w : w, backward);
        unsigned gone = 0, waiting = 0;
        for (unsigned i = 0; i < n_thread; i++) {
            gone += threads[i].at == GONE;
            waiting += threads[i].at == AT_BLOCK;
        }
        if (gone == n_thread) return;
        if (waiting + gone == n_thread) {
            for (unsigned i = 0; i < n_thread; i++)
                if (threads[i].at == AT_BLOCK) threads[i].at = READY;
        } else if (!any)
            wrong("its threads wait for each other at different places");
    }
}

} // namespace

void sync_block() {
    static_cast<thread *>(self)->at = AT_BLOCK;
    leave(false);
}

void sync_warp(unsigned mask) {
    static_cast<thread *>(self)->at = AT_WARP;
    static_cast<thread *>(self)->mask = mask;
    leave(false);
}

/* Lanes alternate between two buffers: a lane that is a turn ahead writes where no lane reads any more. */
const void *exchange(unsigned mask, const void *mine, size_t bytes) {
    thread *t = static_cast<thread *>(self);
    warp *w = &warps[t->flat / WARP];
    unsigned turn = t->turn++ & 1;
    memcpy(w->room[turn][t->lane], mine, bytes);
    sync_warp(mask);
    return w->room[turn];
}

void async_copy(void *dst, const void *src, unsigned bytes, unsigned bytes_src) {
    if (bytes != 4 && bytes != 8 && bytes != 16) wrong("cp.async of other than 4, 8 or 16 bytes");
    uintptr_t all = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src);
    if (all % bytes) wrong("cp.async at an address that is not a multiple of its size");
    thread *t = static_cast<thread *>(self);
    t->copies.push_back({dst, src, bytes, bytes_src, t->group});
}

void async_commit() { static_cast<thread *>(self)->group++; }

void async_wait(unsigned pending) { finish_copies(static_cast<thread *>(self), pending); }

void run(const char *kernel, dim3 grid, dim3 block, size_t shared,
         const std::function<void()> &thread_body) {
    kernel_name = kernel;
    body = &thread_body;
    here.grid_dim = grid;
    here.block_dim = block;
    n_thread = block.x * block.y * block.z;
    bool backward = n_launch++ & 1;
    shared_memory.assign(shared + 16, 0);
    uintptr_t at = reinterpret_cast<uintptr_t>(shared_memory.data());
    here.shared = shared_memory.data() + (16 - at % 16) % 16;
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t b = backward ? n - 1 - i : i;
        here.block = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                      (unsigned)(b / ((uint64_t)grid.x * grid.y))};
        memset(here.shared, 0xff, shared); /* NaN, and indices far outside */
        run_block(backward);
    }
}

} // namespace fv_emu
