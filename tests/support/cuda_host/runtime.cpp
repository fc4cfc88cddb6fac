/* Memory, streams and events of the emulated device.
 *
 * Device memory is one reserved range that cannot be read or written, except while the device
 * works: code of the host that follows a device address ends there and then. A kernel that is
 * given the address of host memory ends too. Freed and fresh memory is filled with ones (NaN,
 * and indices far outside), and after each piece lies a margin that must keep its pattern.
 *
 * A stream is a list of what was issued, run when somebody waits; events and frees stand in the
 * same list. Pageable memory of the host is read when the copy is issued and has been written
 * when it returns, as CUDA does; pinned memory is read and written later. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "cuda_runtime.h"
#include "run.h"

using fv_emu::current_device;
using fv_emu::told;
using std::function;

/* A recorded node: work, and the device's addresses that it was given. */
struct fv_emu_node {
    function<void()> work;
    std::vector<const void *> addresses;
    const char *name;
};

struct fv_emu_graph {
    std::vector<fv_emu_node> nodes;
};

struct fv_emu_stream {
    std::vector<function<bool()>> issued; /* false: not yet, and nothing after it either */
    bool running = false;
    int device = current_device();
    fv_emu_graph *capture = nullptr; /* what is issued is recorded there */
};

struct fv_emu_event {
    fv_emu_stream *stream = nullptr; /* where it waits to be reached */
    uint64_t recorded = 0, reached = 0;
    bool timed = false;
    int device = current_device();
    std::chrono::steady_clock::time_point when; /* it was reached */
};

namespace {

const size_t RANGE = (size_t)16 << 30, ALIGN = 256, MARGIN = 256, PAGE = 4096;
const unsigned char MARGIN_BYTE = 0xa5;

char *range;    /* reserved at the first allocation */
size_t used;    /* of it, from its begin; whole pages */
int open_depth; /* how many callers need it accessible */
struct piece {
    size_t bytes;
    int device;
};
std::map<char *, piece> live;         /* what was allocated */
std::map<char *, size_t> pinned;      /* and its bytes */
std::multimap<size_t, char *> vacant; /* freed, by room */
std::vector<fv_emu_stream *> streams;
uint64_t graphs_launched, urgent_streams;
bool refuses_graphs;

/* Threads take turns: a whole call at a time. */
std::recursive_mutex one_thread;
struct alone : std::lock_guard<std::recursive_mutex> {
    alone() : lock_guard(one_thread) {}
};

[[noreturn]] void wrong(const char *what, const char *kernel) {
    fprintf(stderr, "FAILED: %s%s%s\n", what, kernel ? ": " : "", kernel ? kernel : "");
    abort();
}

void set_access(int access) {
    if (used && mprotect(range, used, access)) wrong("mprotect fails", nullptr);
}

struct device_is_at_work {
    device_is_at_work() {
        if (open_depth++ == 0) set_access(PROT_READ | PROT_WRITE);
    }
    ~device_is_at_work() {
        if (--open_depth == 0) set_access(PROT_NONE);
    }
};

bool is_device(const void *p) {
    const char *c = static_cast<const char *>(p);
    return range && c >= range && c < range + RANGE;
}

bool is_pinned(const void *p) {
    const char *c = static_cast<const char *>(p);
    auto it = pinned.upper_bound(const_cast<char *>(c));
    if (it == pinned.begin()) return false;
    --it;
    return c < it->first + it->second;
}

size_t room_of(size_t bytes) { return (bytes + MARGIN + ALIGN - 1) / ALIGN * ALIGN; }

void check_margin(char *p, size_t bytes) {
    for (size_t i = bytes; i < room_of(bytes); i++)
        if ((unsigned char)p[i] != MARGIN_BYTE)
            wrong("something wrote past the end of a piece of device memory", nullptr);
}

void release(char *p) {
    auto it = live.find(p);
    if (it == live.end()) wrong("memory is freed that is not there", nullptr);
    device_is_at_work open;
    check_margin(p, it->second.bytes);
    memset(p, 0xff, it->second.bytes);
    vacant.emplace(room_of(it->second.bytes), p);
    live.erase(it);
}

/* Whether some stream is recording, which forbids some calls. */
bool is_capturing() {
    for (fv_emu_stream *s : streams)
        if (s->capture) return true;
    return false;
}

/* NULL: freed, or never allocated. */
const piece *piece_of(const void *p) {
    char *c = const_cast<char *>(static_cast<const char *>(p));
    auto it = live.upper_bound(c);
    if (it == live.begin()) return nullptr;
    --it;
    return c <= it->first + it->second.bytes ? &it->second : nullptr;
}

void drain(fv_emu_stream *s) {
    if (!s || s->running || s->issued.empty()) return;
    if (fv_emu::lost()) s->issued.clear();
    s->running = true;
    device_is_at_work open;
    size_t n = 0;
    while (n < s->issued.size() && s->issued[n]()) n++;
    s->issued.erase(s->issued.begin(), s->issued.begin() + (long)n);
    s->running = false;
}

/* Runs a stream until it is empty; other threads get their turn while it waits for another process. */
void drain_whole(fv_emu_stream *s) {
    for (drain(s); s && !s->running && !s->issued.empty(); drain(s)) {
        one_thread.unlock();
        usleep(100);
        one_thread.lock();
    }
}

void drain_all() {
    for (fv_emu_stream *s : streams) drain(s);
}

void issue(fv_emu_stream *s, function<void()> f, std::vector<const void *> addresses = {},
           const char *name = nullptr) {
    if (!s) wrong("work is issued on the default stream", nullptr);
    if (s->capture)
        s->capture->nodes.push_back({std::move(f), std::move(addresses), name});
    else
        s->issued.push_back([f] {
            f();
            return true;
        });
}

/* Whether an address is part of this process's memory. AddressSanitizer reserves a range of its
 * own, in which two small numbers side by side would lie. */
bool is_mapped(uint64_t p) {
    unsigned char in_core;
#if defined(__SANITIZE_ADDRESS__)
    if (p >= 0x7fff8000 && p < 0x10007fff8000) return false;
#endif
    return p >= PAGE && p < (uint64_t)1 << 47 &&
           mincore(reinterpret_cast<void *>(p / PAGE * PAGE), 1, &in_core) == 0;
}

} // namespace

namespace fv_emu {

/* Checks that whatever looks like an address inside an argument is one of the device's. */
void check_argument(const char *kernel, const void *value, size_t bytes,
                    std::vector<const void *> *addresses) {
    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, static_cast<const char *>(value) + i, sizeof word);
        const void *p = reinterpret_cast<const void *>(word);
        if (is_device(p)) addresses->push_back(p);
        if (is_device(p) || is_pinned(p) || !is_mapped(word)) continue;
        wrong("a kernel is given an address of host memory", kernel);
    }
}

std::map<const void *, known_kernel> &known_kernels() {
    static std::map<const void *, known_kernel> all;
    return all;
}

void issue_when(cudaStream_t s, function<bool()> f) {
    alone here_;
    s->issued.push_back(std::move(f));
}

} // namespace fv_emu

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t s) {
    alone here_;
    auto it = fv_emu::known_kernels().find(kernel);
    if (it == fv_emu::known_kernels().end()) return told(cudaErrorInvalidValue);
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    if (s->device != current_device()) return told(cudaErrorInvalidResourceHandle);
    if (shared > fv_emu::shared_of(kernel, s->device)) return told(cudaErrorInvalidValue);
    const char *name = it->second.name;
    uint64_t n = (uint64_t)block.x * block.y * block.z;
    if (n == 0 || n > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
        grid.z > 65535 || shared > (size_t)227 << 10)
        wrong("a grid, block or shared memory that no GPU takes", name);
    fv_emu::bound b = it->second.bind(args);
    for (const void *p : b.addresses)
        if (const piece *at = piece_of(p); at && at->device != s->device)
            wrong("a kernel is given memory of another device", name);
    fv_emu::count_launch(name);
    issue(
        s,
        [=] {
            if (fv_emu::computes(name)) fv_emu::run(name, grid, block, shared, b.thread);
        },
        b.addresses, name);
    return cudaSuccess;
}

/* ---- memory ---------------------------------------------------------------------------- */

static cudaError_t take(void **out, size_t bytes, int device) {
    alone here_;
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    if (!range) {
        void *p =
            mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return told(cudaErrorMemoryAllocation);
        range = static_cast<char *>(p);
    }
    if (is_capturing()) return told(cudaErrorStreamCaptureUnsupported);
    size_t room = room_of(bytes);
    auto it = vacant.lower_bound(room);
    char *p;
    if (it != vacant.end() && it->first <= 2 * room) {
        p = it->second;
        size_t rest = it->first - room;
        vacant.erase(it);
        if (rest) vacant.emplace(rest, p + room);
    } else {
        static size_t top;
        if (top + room > RANGE) return told(cudaErrorMemoryAllocation);
        p = range + top;
        top += room;
        used = (top + PAGE - 1) / PAGE * PAGE;
        if (open_depth) set_access(PROT_READ | PROT_WRITE);
    }
    device_is_at_work open;
    memset(p, 0xff, bytes);
    memset(p + bytes, MARGIN_BYTE, room - bytes);
    live[p] = {bytes, device};
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) { return take(out, bytes, current_device()); }

cudaError_t cudaFree(void *p) {
    alone here_;
    if (!p) return cudaSuccess;
    drain_all();
    release(static_cast<char *>(p));
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t s) {
    return take(out, bytes, s->device);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t s) {
    alone here_;
    issue(s, [p] { release(static_cast<char *>(p)); });
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
    alone here_;
    char *p = static_cast<char *>(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    if (!p) return cudaErrorMemoryAllocation;
    memset(p, 0xff, bytes);
    pinned[p] = bytes;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
    alone here_;
    if (!p) return cudaSuccess;
    drain_all();
    pinned.erase(static_cast<char *>(p));
    free(p);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int) {
    *pool = nullptr;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void *) {
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = RANGE;
    *free_bytes = RANGE - used;
    return cudaSuccess;
}

/* ---- streams --------------------------------------------------------------------------- */

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    alone here_;
    a->type = is_device(p)   ? cudaMemoryTypeDevice
              : is_pinned(p) ? cudaMemoryTypeHost
                             : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

static std::vector<const void *> device_addresses(const void *p, const void *q) {
    std::vector<const void *> found;
    for (const void *x : {p, q})
        if (is_device(x)) found.push_back(x);
    return found;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t s) {
    alone here_;
    bool later_src = is_device(src) || is_pinned(src), later_dst = is_device(dst) || is_pinned(dst);
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    if (bytes == 0) return cudaSuccess;
    fv_emu::count_call("cudaMemcpyAsync");
    if (s->capture && (!later_src || !later_dst)) return told(cudaErrorStreamCaptureUnsupported);
    if (!later_src) {
        const char *from = static_cast<const char *>(src);
        std::vector<char> taken(from, from + bytes);
        issue(s, [=] { memcpy(dst, taken.data(), bytes); });
    } else
        issue(
            s, [=] { memmove(dst, src, bytes); }, device_addresses(dst, src), "a copy");
    if (!later_dst) drain_whole(s);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s) {
    alone here_;
    if (!is_device(dst)) wrong("cudaMemset of memory that is not the device's", nullptr);
    issue(s, [=] { memset(dst, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    alone here_;
    urgent_streams += priority == -5;
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    alone here_;
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    *s = new fv_emu_stream;
    streams.push_back(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    alone here_;
    drain_whole(s);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s) streams.erase(streams.begin() + (long)i);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    alone here_;
    if (s->capture) return told(cudaErrorStreamCaptureUnsupported);
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    drain_whole(s);
    device_is_at_work open;
    for (const auto &l : live) check_margin(l.first, l.second.bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    alone here_;
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    alone here_;
    uint64_t want = e->recorded;
    issue(s, [=] {
        if (e->reached < want) drain_whole(e->stream);
    });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    *e = new fv_emu_event;
    (*e)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    alone here_;
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    if (e->device != s->device) return told(cudaErrorInvalidResourceHandle);
    uint64_t number = ++e->recorded;
    e->stream = s;
    issue(s, [=] {
        e->reached = number;
        e->when = std::chrono::steady_clock::now();
    });
    return cudaSuccess;
}

/* A query advances the stream although nothing waits for it; the first one is told to ask again. */
cudaError_t cudaEventQuery(cudaEvent_t e) {
    alone here_;
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    if (e->reached == e->recorded) return cudaSuccess;
    drain(e->stream);
    return told(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    alone here_;
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    if (e->reached != e->recorded) drain_whole(e->stream);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    alone here_;
    if (!from->timed || !to->timed || !from->recorded || !to->recorded)
        return told(cudaErrorInvalidValue);
    if (from->reached != from->recorded || to->reached != to->recorded)
        return told(cudaErrorNotReady);
    *ms = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    alone here_;
    if (e->reached != e->recorded) drain_whole(e->stream);
    delete e;
    return cudaSuccess;
}

/* ---- graphs ---------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode) {
    alone here_;
    if (refuses_graphs || s->capture) return told(cudaErrorStreamCaptureUnsupported);
    s->capture = new fv_emu_graph;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    alone here_;
    *graph = s->capture;
    s->capture = nullptr;
    return *graph ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    *exec = new fv_emu_graph(*graph);
    return cudaSuccess;
}

/* A graph has the addresses that it was recorded with, whatever has become of the memory. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    alone here_;
    if (fv_emu::lost()) return told(cudaErrorIllegalAddress);
    graphs_launched++;
    fv_emu::count_launch("a graph");
    for (const fv_emu_node &node : exec->nodes)
        issue(s, [node] {
            for (const void *p : node.addresses)
                if (!piece_of(p)) wrong("a graph uses memory that was given back", node.name);
            node.work();
        });
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

uint64_t fv_emu_graphs_launched(void) { return graphs_launched; }
void fv_emu_refuse_graphs(bool refuse) { refuses_graphs = refuse; }
uint64_t fv_emu_urgent_streams(void) { return urgent_streams; }
