/* Finds races of kernels. GCC's -fsanitize=thread turns each access of a kernel's source into a call of __tsan_read4 and
 * the like, which are defined here in the place of its own library: that one knows nothing of fibers and barriers.
 *
 * Two accesses to a byte race if they are of different threads, one of them writes, and no barrier that both threads
 * reached lies between them: of the block, or of lanes of their warp. Shuffles order no memory. Threads of different blocks
 * have no barrier within a launch. What matters is where barriers stand, not in which order the fibers ran, so a
 * race shows in a single run.
 *
 * FOVEA_EMULATED_UNORDERED=KERNEL:N takes its effect from the N-th barrier of a block of that kernel (from 0), as if it
 * were missing. The first race ends the program. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda_runtime.h"
#include "races.h"
#include "run.h"

extern "C" char __bss_start, _end;

namespace fv_emu {
namespace {

enum { WARP = 32, MAX_THREAD = 1024, WORD = 8 };

/* Who made an access, and when: barriers of the block before it, and the thread's clock. thread < 0: nobody. */
struct mark {
    int32_t thread = -1;
    uint32_t barrier = 0, clock = 0;
    uint64_t block = 0;
};

/* The last write, and reads by two threads. */
struct byte_marks {
    mark written, read[2];
};

struct word_marks {
    byte_marks at[WORD];
};

std::unordered_map<uintptr_t, word_marks> marks;
uint32_t clocks[MAX_THREAD][WARP]; /* [thread][lane]: what a thread has seen of its warp's lanes */
uint32_t barriers, n_barrier;
uint64_t block_number;
const char *kernel_name, *shared_begin;
size_t shared_bytes;
bool running;

bool is_shared(const char *p) {
    return (p >= shared_begin && p < shared_begin + shared_bytes) ||
           (p >= &__bss_start && p < &_end);
}

/* Whether access `m`, of another thread, comes before all that thread t does now. */
bool is_before(const mark &m, int32_t t) {
    if (m.block != block_number) return false;
    if (m.barrier < barriers) return true;
    return m.thread / WARP == t / WARP && m.clock < clocks[t][m.thread % WARP];
}

[[noreturn]] void found(const mark &m, bool wrote, int32_t t, bool writes, const char *p) {
    const bool shared = is_shared(p);
    fprintf(stderr,
            "FAILED: race in kernel %s, block %llu: thread %d %s %s memory%s%td that thread %d%s "
            "%s, and no barrier is "
            "between them\n",
            kernel_name, (unsigned long long)block_number, t, writes ? "writes" : "reads",
            shared ? "shared" : "global", shared ? " at " : "",
            shared && p >= shared_begin && p < shared_begin + shared_bytes ? p - shared_begin
                                                                           : (ptrdiff_t)0,
            m.thread, m.block == block_number ? "" : " of another block",
            wrote ? "has written" : "has read");
    abort();
}

void compare(const mark &m, bool wrote, int32_t t, bool writes, const char *p) {
    if (m.thread < 0 || (m.thread == t && m.block == block_number)) return;
    if (!is_before(m, t)) found(m, wrote, t, writes, p);
}

void access_byte(byte_marks &b, const mark &now, bool write, const char *p) {
    compare(b.written, true, now.thread, write, p);
    if (write) {
        for (const mark &r : b.read) compare(r, false, now.thread, true, p);
        b = {};
        b.written = now;
        return;
    }
    bool first = b.read[0].thread < 0 ||
                 (b.read[0].thread == now.thread && b.read[0].block == now.block) ||
                 is_before(b.read[0], now.thread);
    b.read[first ? 0 : 1] = now;
}

/* Whether the barrier that is reached now is the one that FOVEA_EMULATED_UNORDERED names. */
bool is_dropped() {
    static const char *const asked = getenv("FOVEA_EMULATED_UNORDERED");
    const uint32_t number = n_barrier++;
    const char *colon = asked ? strchr(asked, ':') : nullptr;
    if (!colon || number != (uint32_t)atoi(colon + 1)) return false;
    const char *name = kernel_name + strspn(kernel_name, "(");
    return std::string(name, strcspn(name, "<)")) == std::string(asked, colon);
}

} // namespace

void races_launch(const char *kernel, const char *shared, size_t bytes) {
    kernel_name = kernel;
    shared_begin = shared;
    shared_bytes = bytes;
    marks.clear();
}

void races_block(uint64_t number, unsigned n_thread) {
    block_number = number;
    barriers = n_barrier = 0;
    for (auto it = marks.begin(); it != marks.end();)
        it = is_shared(reinterpret_cast<const char *>(it->first * WORD)) ? marks.erase(it) : ++it;
    for (unsigned t = 0; t < n_thread; t++)
        for (uint32_t &c : clocks[t]) c = 0;
    for (unsigned t = 0; t < n_thread; t++) clocks[t][t % WARP] = 1;
}

void races_block_barrier() {
    if (!is_dropped()) barriers++;
}

/* Each lane has seen what the others have seen, and all that they did until now. */
void races_warp_barrier(unsigned warp, unsigned mask) {
    uint32_t most[WARP] = {};
    if (is_dropped()) return;
    for (unsigned i = 0; i < WARP; i++)
        for (unsigned j = 0; mask >> i & 1 && j < WARP; j++) {
            uint32_t c = clocks[warp * WARP + i][j] + (i == j);
            if (c > most[j]) most[j] = c;
        }
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1) memcpy(clocks[warp * WARP + i], most, sizeof most);
}

void races_access(const void *at, size_t bytes, bool write) {
    const char *p = static_cast<const char *>(at);
    if (!self || running || !(is_shared(p) || is_device_address(p))) return;
    running = true; /* the map's own memory is none of the kernel's */
    const int32_t t = (int32_t)self->flat;
    const mark now = {t, barriers, clocks[t][t % WARP], block_number};
    for (size_t i = 0; i < bytes; i++) {
        uintptr_t a = reinterpret_cast<uintptr_t>(p) + i;
        access_byte(marks[a / WORD].at[a % WORD], now, write, p + i);
    }
    running = false;
}

} // namespace fv_emu

/* ---- what GCC calls ------------------------------------------------------------------------ */

#define ACCESS(n)                                                                                  \
    void __tsan_read##n(void *p) { fv_emu::races_access(p, n, false); }                            \
    void __tsan_write##n(void *p) { fv_emu::races_access(p, n, true); }                            \
    void __tsan_unaligned_read##n(void *p) { fv_emu::races_access(p, n, false); }                  \
    void __tsan_unaligned_write##n(void *p) { fv_emu::races_access(p, n, true); }                  \
    void __tsan_volatile_read##n(void *p) { fv_emu::races_access(p, n, false); }                   \
    void __tsan_volatile_write##n(void *p) { fv_emu::races_access(p, n, true); }

extern "C" {
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *p, unsigned long n) { fv_emu::races_access(p, n, false); }
void __tsan_write_range(void *p, unsigned long n) { fv_emu::races_access(p, n, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
}
