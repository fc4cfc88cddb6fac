/* Graphs on the emulated device: what is recorded runs with every launch, and using an address of
 * freed memory is detected. There is nothing to test here on a GPU. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ops/device_test.h"
#include "tests/support/cuda_host/cuda_runtime.h"

static void *library;

/* A function of the library, by its name here. */
#define EMULATED(name) ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

enum { BYTES = 64 };

typedef struct recorded {
    cudaStream_t stream;
    void *from, *to;
    cudaGraphExec_t exec; /* copies from `from` to `to` */
} recorded;

static void ok(cudaError_t e) {
    if (e == cudaSuccess) return;
    printf("FAILED: error %d of the emulated device\n", (int)e);
    exit(1);
}

static recorded record(void) {
    recorded r;
    cudaGraph_t graph;
    ok(EMULATED(cudaStreamCreateWithFlags)(&r.stream, cudaStreamNonBlocking));
    ok(EMULATED(cudaMalloc)(&r.from, BYTES));
    ok(EMULATED(cudaMalloc)(&r.to, BYTES));
    ok(EMULATED(cudaStreamBeginCapture)(r.stream, cudaStreamCaptureModeThreadLocal));
    ok(EMULATED(cudaMemcpyAsync)(r.to, r.from, BYTES, cudaMemcpyDefault, r.stream));
    ok(EMULATED(cudaStreamEndCapture)(r.stream, &graph));
    ok(EMULATED(cudaGraphInstantiate)(&r.exec, graph, 0));
    ok(EMULATED(cudaGraphDestroy)(graph));
    return r;
}

static void give_back(recorded *r) {
    ok(EMULATED(cudaGraphExecDestroy)(r->exec));
    ok(EMULATED(cudaStreamDestroy)(r->stream));
}

static void copy(recorded *r, void *dst, const void *src) {
    ok(EMULATED(cudaMemcpyAsync)(dst, src, BYTES, cudaMemcpyDefault, r->stream));
    ok(EMULATED(cudaStreamSynchronize)(r->stream));
}

static void test_replay(void) {
    recorded r = record();
    char in[BYTES], out[BYTES];
    group("a graph does what was recorded, with what is there when it runs");
    for (int i = 0; i < 3; i++) {
        memset(in, 'a' + i, BYTES);
        copy(&r, r.from, in);
        ok(EMULATED(cudaGraphLaunch)(r.exec, r.stream));
        copy(&r, out, r.to);
        check(memcmp(in, out, BYTES) == 0, "launch %d", i);
    }
    ok(EMULATED(cudaFree)(r.from));
    ok(EMULATED(cudaFree)(r.to));
    give_back(&r);
}

static void test_refused(void) {
    recorded r = record();
    char host[BYTES] = {0};
    void *p;
    group("what cannot be recorded is refused");
    ok(EMULATED(cudaStreamBeginCapture)(r.stream, cudaStreamCaptureModeThreadLocal));
    check(EMULATED(cudaMalloc)(&p, BYTES) != cudaSuccess, "an allocation");
    check(EMULATED(cudaStreamSynchronize)(r.stream) != cudaSuccess, "waiting");
    check(EMULATED(cudaMemcpyAsync)(r.to, host, BYTES, cudaMemcpyDefault, r.stream) != cudaSuccess,
          "a copy from pageable memory");
    cudaGraph_t graph;
    ok(EMULATED(cudaStreamEndCapture)(r.stream, &graph));
    ok(EMULATED(cudaGraphDestroy)(graph));
    ok(EMULATED(cudaFree)(r.from));
    ok(EMULATED(cudaFree)(r.to));
    give_back(&r);
}

/* Launches a stale graph in a child process, which that must end. */
static void test_stale(void) {
    group("a graph that uses memory which was given back ends the program");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        recorded r = record();
        ok(EMULATED(cudaFree)(r.to));
        ok(EMULATED(cudaGraphLaunch)(r.exec, r.stream));
        ok(EMULATED(cudaStreamSynchronize)(r.stream));
        _exit(0);
    }
    int status = 0;
    check(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
          "status %d", status);
}

int main(void) {
    const char *dir = getenv("FOVEA_PLUGIN_DIR");
    bool emulated = !dir || !*dir || strcmp(dir, FOVEA_EMULATED) == 0;
    if (!emulated || access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0) {
        printf("skip: the emulated device is not used here\n");
        return 77;
    }
    device_test d = device_open("auto"); /* the plugin stays loaded */
    device_close(&d);
    library = dlopen(FOVEA_EMULATED "/libfovea_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    test_replay();
    test_refused();
    test_stale();
    return summary();
}
