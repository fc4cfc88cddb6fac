/* The list of deferred work, and the graphs recorded from lists. Runs on the thread that owns the backend. */
#include "kernels/cuda/issue.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "kernels/cuda/cuda.h"

/* HELD: entries of a list, at most. SLOT_ROOM: least capacity of a slot's tables. MOST_STAGED: larger tables are
 * sent by themselves. */
enum { HELD = 64, ALIGN = 256, SLOT_ROOM = 1 << 20, MOST_STAGED = 64 << 20, WORD = 16 };

/* ---- entries ----------------------------------------------------------------------------- */

typedef enum issue_kind { ISSUE_LAUNCH = 0, ISSUE_GEMM, ISSUE_COPY } issue_kind;

/* The head of an entry; the sizes of its arguments and the arguments follow, each at a multiple of WORD;
 * padding is 0. */
typedef struct issue_entry {
    uint64_t bytes; /* of the entry */
    uint32_t kind, n_arg;
    const char *name;
    const void *kernel;
    uint64_t shared;
    uint32_t grid[3], block[3];
} issue_entry;

typedef struct gemm_args {
    fv_tensor x, w, y;
    float beta;
    uint32_t nothing;
} gemm_args;

typedef struct copy_args {
    void *dst;
    const void *src;
    uint64_t bytes;
} copy_args;

static size_t whole(size_t bytes) { return (bytes + WORD - 1) / WORD * WORD; }

static fv_cuda_step *in_step(fv_cuda *c) { return c && c->step.open ? &c->step : NULL; }

/* The backend whose step is open on this thread: launches name a stream, not a backend. */
static thread_local fv_cuda *holding;

static bool grow(fv_cuda_step *s, size_t bytes) {
    if (s->bytes + bytes <= s->capacity) return true;
    size_t want = 2 * (s->bytes + bytes);
    char *p = static_cast<char *>(realloc(s->list, want));
    if (!p) return false;
    s->list = p;
    s->capacity = want;
    return true;
}

/* Appends an entry; false: out of memory. */
static bool hold(fv_cuda_step *s, issue_entry e, void *const *arg, const uint32_t *size) {
    size_t bytes = sizeof e + whole(e.n_arg * sizeof *size);
    for (uint32_t i = 0; i < e.n_arg; i++) bytes += whole(size[i]);
    if (!grow(s, bytes)) return false;
    char *at = s->list + s->bytes;
    memset(at, 0, bytes);
    e.bytes = bytes;
    memcpy(at, &e, sizeof e);
    if (e.n_arg) memcpy(at + sizeof e, size, e.n_arg * sizeof *size);
    at += sizeof e + whole(e.n_arg * sizeof *size);
    for (uint32_t i = 0; i < e.n_arg; at += whole(size[i++])) memcpy(at, arg[i], size[i]);
    s->bytes += bytes;
    s->n_held++;
    return true;
}

/* ---- execution --------------------------------------------------------------------------- */

static cudaError_t launch(const fv_cuda_launch *l) {
    dim3 grid(l->grid[0], l->grid[1], l->grid[2]), block(l->block[0], l->block[1], l->block[2]);
    int span = fv_cuda_trace_begin(l->name, l->stream);
    cudaError_t e = cudaLaunchKernel(l->kernel, grid, block, l->arg, l->shared, l->stream);
    fv_cuda_trace_end(span, l->stream);
    return e;
}

static fv_status multiply(fv_cuda *c, const gemm_args *g) {
    int span = fv_cuda_trace_begin("cuBLAS", c->stream);
    fv_status st = fv_blas_gemm(c->blas, &g->x, &g->w, &g->y, g->beta);
    fv_cuda_trace_end(span, c->stream);
    return st;
}

static fv_status do_launch(fv_cuda *c, const issue_entry *e, char *args, const uint32_t *size) {
    enum { MOST_ARGS = 16 };
    void *arg[MOST_ARGS];
    if (e->n_arg > MOST_ARGS) return FV_FAIL(FV_EDEVICE, "%s has too many arguments", e->name);
    for (uint32_t i = 0; i < e->n_arg; args += whole(size[i++])) arg[i] = args;
    fv_cuda_launch l = {};
    l.name = e->name;
    l.kernel = e->kernel;
    memcpy(l.grid, e->grid, sizeof l.grid);
    memcpy(l.block, e->block, sizeof l.block);
    l.shared = e->shared;
    l.stream = c->stream;
    l.arg = arg;
    return fv_cuda_check(launch(&l), e->name);
}

static fv_status do_copy(fv_cuda *c, const copy_args *a) {
    int span = fv_cuda_trace_begin("copy", c->stream);
    cudaError_t e = cudaMemcpyAsync(a->dst, a->src, a->bytes, cudaMemcpyDefault, c->stream);
    fv_cuda_trace_end(span, c->stream);
    return fv_cuda_check(e, "a copy");
}

static fv_status do_entry(fv_cuda *c, const char *at) {
    issue_entry e;
    memcpy(&e, at, sizeof e);
    const uint32_t *size = reinterpret_cast<const uint32_t *>(at + sizeof e);
    char *args = const_cast<char *>(at) + sizeof e + whole(e.n_arg * sizeof *size);
    if (e.kind == ISSUE_LAUNCH) return do_launch(c, &e, args, size);
    if (e.kind == ISSUE_COPY) return do_copy(c, reinterpret_cast<const copy_args *>(args));
    return multiply(c, reinterpret_cast<const gemm_args *>(args));
}

/* Issues every entry of the list by itself. */
static fv_status do_list(fv_cuda *c) {
    const fv_cuda_step *s = &c->step;
    for (size_t at = 0; at < s->bytes;) {
        uint64_t bytes;
        memcpy(&bytes, s->list + at, sizeof bytes);
        FV_TRY(do_entry(c, s->list + at));
        at += bytes;
    }
    return FV_OK;
}

/* ---- graphs ------------------------------------------------------------------------------ */

static uint64_t digest_of(const char *p, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i + 8 <= n; i += 8) { /* n is a multiple of 8 */
        uint64_t word;
        memcpy(&word, p + i, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static fv_cuda_graph *find(fv_cuda_step *s, uint64_t digest) {
    for (int32_t i = 0; i < s->n_graph; i++) {
        fv_cuda_graph *g = &s->graph[i];
        if (g->digest == digest && g->bytes == s->bytes && !memcmp(g->list, s->list, s->bytes))
            return g;
    }
    return NULL;
}

static void forget(fv_cuda_graph *g) {
    if (g->exec) (void)cudaGraphExecDestroy(g->exec);
    free(g->list);
    *g = {};
}

/* Returns a free graph; evicts the least recently used one if there is none. */
static fv_cuda_graph *vacant(fv_cuda *c) {
    fv_cuda_step *s = &c->step;
    if (s->n_graph < FV_CUDA_GRAPHS) return &s->graph[s->n_graph++];
    fv_cuda_graph *oldest = s->graph;
    for (int32_t i = 1; i < s->n_graph; i++)
        if (s->graph[i].last < oldest->last) oldest = &s->graph[i];
    (void)cudaStreamSynchronize(c->stream); /* the graph may be running */
    forget(oldest);
    return oldest;
}

/* Records the list as a graph; on failure too, the stream stays as it was. */
static fv_status record(fv_cuda *c, cudaGraphExec_t *out) {
    cudaGraph_t graph = NULL;
    fv_status st = fv_cuda_check(
        cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "a graph's beginning");
    if (st != FV_OK) {
        (void)cudaGetLastError(); /* clears the error, which is reported here; so does the next */
        return st;
    }
    st = do_list(c);
    fv_status end = fv_cuda_check(cudaStreamEndCapture(c->stream, &graph), "cudaStreamEndCapture");
    if (st == FV_OK) st = end;
    if (st == FV_OK) st = fv_cuda_check(cudaGraphInstantiate(out, graph, 0), "a graph");
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return st;
}

/* Makes a graph of the list; NULL if that fails. A failed recording is not tried again. */
static fv_cuda_graph *make(fv_cuda *c, uint64_t digest) {
    fv_cuda_step *s = &c->step;
    cudaGraphExec_t exec;
    char *list = static_cast<char *>(malloc(s->bytes));
    if (!list || record(c, &exec) != FV_OK) {
        if (list)
            FV_LOG(WARN, KERNELS, "no CUDA graphs: %s; steps are issued launch by launch",
                   fv_last_error());
        s->refused = list != NULL;
        free(list);
        return NULL;
    }
    memcpy(list, s->list, s->bytes);
    fv_cuda_graph *g = vacant(c);
    g->exec = exec;
    g->list = list;
    g->bytes = s->bytes;
    g->digest = digest;
    return g;
}

/* ---- flushing ---------------------------------------------------------------------------- */

/* Sends the tables of the current list ahead of it. */
static fv_status send_staged(fv_cuda *c) {
    fv_cuda_step *s = &c->step;
    fv_cuda_slot *slot = &s->slot[s->at];
    if (s->staged == 0) return FV_OK;
    FV_CUDA(cudaMemcpyAsync(slot->device, slot->host, s->staged, cudaMemcpyDefault, c->stream));
    FV_CUDA(cudaEventRecord(slot->read, c->stream));
    slot->used = true;
    return FV_OK;
}

static fv_status issue_list(fv_cuda *c) {
    fv_cuda_step *s = &c->step;
    uint64_t digest = digest_of(s->list, s->bytes);
    fv_cuda_slot *slot = &s->slot[s->at];
    fv_cuda_graph *g = s->refused ? NULL : find(s, digest);
    if (!g && !s->refused && slot->seen == digest) g = make(c, digest);
    slot->seen = digest;
    s->now++;
    if (!g) {
        s->n_plain++;
        return do_list(c);
    }
    s->n_replayed++;
    g->last = s->now;
    return fv_cuda_check(cudaGraphLaunch(g->exec, c->stream), "cudaGraphLaunch");
}

/* Starts an empty list with the next slot; the last slot stays until the step ends. */
static void next_slot(fv_cuda_step *s) {
    s->bytes = 0;
    s->n_held = 0;
    s->staged = 0;
    if (s->at < FV_CUDA_SLOTS - 1) s->at++;
}

fv_status fv_cuda_flush(fv_cuda *c) {
    fv_cuda_step *s = in_step(c);
    if (!s || s->n_held == 0) return FV_OK;
    s->open = false; /* so that the list is issued, not deferred again */
    fv_status st = send_staged(c);
    if (st == FV_OK) st = issue_list(c);
    next_slot(s);
    s->open = true;
    return st;
}

/* ---- issuing ----------------------------------------------------------------------------- */

/* Returns the open step, after flushing a full list; the step's end reports a failure of that. */
static fv_cuda_step *step_of(fv_cuda *c) {
    fv_cuda_step *s = in_step(c);
    fv_status st = s && s->n_held >= HELD ? fv_cuda_flush(c) : FV_OK;
    if (st != FV_OK && s->failed == FV_OK) s->failed = st;
    return s;
}

void fv_cuda_issue(const fv_cuda_launch *l) {
    bool held = holding && holding->stream == l->stream;
    fv_cuda_step *s = held ? step_of(holding) : NULL;
    issue_entry e = {};
    e.kind = ISSUE_LAUNCH;
    e.n_arg = l->n_arg;
    e.name = l->name;
    e.kernel = l->kernel;
    e.shared = l->shared;
    memcpy(e.grid, l->grid, sizeof e.grid);
    memcpy(e.block, l->block, sizeof e.block);
    if (s && hold(s, e, l->arg, l->size)) return;
    if (s) (void)fv_cuda_flush(holding);
    (void)launch(l);
}

/* Issues or defers a copy or a product. */
static fv_status issue(fv_cuda *c, issue_kind kind, void *args, uint32_t size) {
    fv_cuda_step *s = step_of(c);
    issue_entry e = {};
    e.kind = kind;
    e.n_arg = 1;
    if (s && hold(s, e, &args, &size)) return FV_OK;
    FV_TRY(fv_cuda_flush(c));
    if (kind == ISSUE_COPY) return do_copy(c, static_cast<const copy_args *>(args));
    return multiply(c, static_cast<const gemm_args *>(args));
}

fv_status fv_cuda_issue_gemm(fv_cuda *c, const fv_tensor *x, const fv_tensor *w, const fv_tensor *y,
                             float beta) {
    gemm_args a = {*x, *w, *y, beta, 0};
    return issue(c, ISSUE_GEMM, &a, sizeof a);
}

static bool on_device(const void *p) {
    struct cudaPointerAttributes a;
    bool is = cudaPointerGetAttributes(&a, p) == cudaSuccess && a.type == cudaMemoryTypeDevice;
    (void)cudaGetLastError();
    return is;
}

/* Copies from the host are staged with the tables; copies to the host are issued at once, as the caller
 * will wait for them. */
fv_status fv_cuda_issue_copy(fv_cuda *c, void *dst, const void *src, size_t bytes) {
    copy_args a = {dst, src, bytes};
    void *host = NULL, *device = NULL;
    if (!in_step(c) || !on_device(dst)) {
        FV_TRY(fv_cuda_flush(c));
        return do_copy(c, &a);
    }
    if (on_device(src)) return issue(c, ISSUE_COPY, &a, sizeof a);
    (void)step_of(c);
    FV_TRY(fv_cuda_step_stage(c, bytes, &host, &device));
    if (!host) {
        FV_TRY(fv_cuda_flush(c));
        return do_copy(c, &a);
    }
    memcpy(host, src, bytes);
    a.src = device;
    return issue(c, ISSUE_COPY, &a, sizeof a);
}

/* ---- staging ----------------------------------------------------------------------------- */

static void close_slot(fv_cuda *c, fv_cuda_slot *slot) {
    if (slot->device) (void)cudaFreeAsync(slot->device, c->stream);
    if (slot->host) (void)cudaFreeHost(slot->host);
    if (slot->read) (void)cudaEventDestroy(slot->read);
    *slot = {};
}

/* Prepares an empty slot of at least `bytes`: waits until the device has read it, and grows it. */
static fv_status ready_slot(fv_cuda *c, fv_cuda_slot *slot, size_t bytes) {
    void *p;
    if (slot->used) FV_CUDA(cudaEventSynchronize(slot->read));
    slot->used = false;
    if (slot->capacity >= bytes) return FV_OK;
    close_slot(c, slot);
    size_t want = bytes < SLOT_ROOM ? (size_t)SLOT_ROOM : 2 * bytes;
    FV_CUDA(cudaEventCreateWithFlags(&slot->read, cudaEventDisableTiming));
    FV_CUDA(cudaHostAlloc(&p, want, cudaHostAllocDefault));
    slot->host = static_cast<char *>(p);
    FV_CUDA(cudaMallocAsync(&p, want, c->stream));
    slot->device = static_cast<char *>(p);
    slot->capacity = want;
    return FV_OK;
}

/* The last slot takes no tables, because several lists of a step may use it. */
fv_status fv_cuda_step_stage(fv_cuda *c, size_t bytes, void **host, void **device) {
    fv_cuda_step *s = in_step(c);
    *host = NULL;
    bytes = (size_t)fv_cuda_round((int64_t)((bytes + ALIGN - 1) / ALIGN)) * ALIGN;
    if (!s || bytes > MOST_STAGED) return FV_OK;
    if (s->staged > 0 && s->staged + bytes > s->slot[s->at].capacity) FV_TRY(fv_cuda_flush(c));
    if (s->at == FV_CUDA_SLOTS - 1 ||
        (s->staged > 0 && s->staged + bytes > s->slot[s->at].capacity))
        return FV_OK;
    if (s->staged == 0) FV_TRY(ready_slot(c, &s->slot[s->at], bytes));
    *host = s->slot[s->at].host + s->staged;
    *device = s->slot[s->at].device + s->staged;
    s->staged += bytes;
    return FV_OK;
}

/* ---- a step ------------------------------------------------------------------------------ */

fv_status fv_cuda_step_begin(fv_cuda *c, int32_t rows) {
    fv_cuda_step *s = &c->step;
    if (holding || rows > FV_CUDA_STEP_ROWS || fv_cuda_is_traced()) return FV_OK;
    s->at = 0;
    s->bytes = s->staged = 0;
    s->n_held = 0;
    s->failed = FV_OK;
    s->open = true;
    holding = c;
    return FV_OK;
}

fv_status fv_cuda_step_end(fv_cuda *c) {
    if (holding != c) return FV_OK;
    fv_status st = fv_cuda_flush(c);
    c->step.open = false;
    holding = NULL;
    return st == FV_OK ? c->step.failed : st;
}

void fv_cuda_step_close(fv_cuda *c) {
    fv_cuda_step *s = &c->step;
    if (holding == c) holding = NULL;
    for (int32_t i = 0; i < s->n_graph; i++) forget(&s->graph[i]);
    for (int32_t i = 0; i < FV_CUDA_SLOTS; i++) close_slot(c, &s->slot[i]);
    free(s->list);
    *s = {};
}
