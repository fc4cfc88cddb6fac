/* Devices of the emulation, and errors: how many devices there are, which one a thread works on,
 * how much shared memory a kernel may be launched with, and what went wrong last.
 *
 * FOVEA_EMULATED_GPUS=N: so many devices (1). FOVEA_EMULATED_FAULT=N: launch N of the process (from
 * 1) reads an illegal address. As with CUDA, a later call reports that, and from then on every call fails until the process ends.
 * FOVEA_EMULATED_FAULT=KIND:NAME is a fault of every kernel of that name, without its template's arguments: `crash` reads an illegal
 * address, `hang` never ends, `skip` computes nothing. FOVEA_EMULATED_COUNTS=FILE: at its end the process writes there how
 * often each kernel was launched, by itself or in a graph's place, and cudaMemcpyAsync called. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>

#include "cuda_runtime.h"
#include "run.h"

namespace {

const size_t SHARED_AT_FIRST = (size_t)48 << 10, SHARED_MOST = (size_t)227 << 10;
const size_t SHARED_STATIC = 1024; /* each kernel is taken to have so much of it */

std::mutex lock;
std::map<std::pair<int, const void *>, size_t> shared_most; /* by device and kernel */
std::map<std::string, uint64_t> launched;                   /* by name */
long n_launch;
bool is_lost;
thread_local int current;
thread_local cudaError_t last;

int number_of(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int n_device() {
    static const int n = number_of("FOVEA_EMULATED_GPUS", 1);
    return n;
}

} // namespace

namespace fv_emu {

int current_device() { return current; }

cudaError_t told(cudaError_t e) {
    if (e != cudaSuccess) last = e;
    return e;
}

bool lost() {
    std::lock_guard<std::mutex> alone(lock);
    return is_lost;
}

/* Writes how often each kernel was launched, and how often memory was copied, when the process ends. */
static void write_counts() {
    FILE *f = fopen(getenv("FOVEA_EMULATED_COUNTS"), "w");
    if (!f) return;
    for (const auto &l : launched)
        fprintf(f, "%s %llu\n", l.first.c_str(), (unsigned long long)l.second);
    fclose(f);
}

void count_call(const char *name) {
    static const int at_exit = getenv("FOVEA_EMULATED_COUNTS") ? atexit(write_counts) : 0;
    std::lock_guard<std::mutex> alone(lock);
    (void)at_exit;
    launched[name]++;
}

/* The kind of fault that the kernel has been given, "" for none. */
static std::string fault_of(const char *kernel) {
    static const char *const asked = getenv("FOVEA_EMULATED_FAULT");
    const char *colon = asked ? strchr(asked, ':') : nullptr;
    if (!colon) return "";
    kernel += strspn(kernel, "(");
    if (std::string(kernel, strcspn(kernel, "<)")) != colon + 1) return "";
    return std::string(asked, colon);
}

void count_launch(const char *kernel) {
    static const int fault = number_of("FOVEA_EMULATED_FAULT", 0);
    count_call(kernel);
    std::lock_guard<std::mutex> alone(lock);
    if (++n_launch == fault || fault_of(kernel) == "crash") is_lost = true;
}

bool computes(const char *kernel) {
    const std::string fault = fault_of(kernel);
    while (fault == "hang") sleep(1);
    return fault != "skip";
}

size_t shared_of(const void *kernel, int device) {
    std::lock_guard<std::mutex> alone(lock);
    auto it = shared_most.find({device, kernel});
    return it == shared_most.end() ? SHARED_AT_FIRST : it->second;
}

cudaError_t get_attributes(cudaFuncAttributes *out, const void *kernel) {
    if (lost()) return told(cudaErrorIllegalAddress);
    out->sharedSizeBytes = SHARED_STATIC;
    out->maxDynamicSharedSizeBytes = (int)shared_of(kernel, current);
    return cudaSuccess;
}

cudaError_t set_attribute(const void *kernel, cudaFuncAttribute which, int value) {
    if (lost()) return told(cudaErrorIllegalAddress);
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > SHARED_MOST - SHARED_STATIC)
        return told(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> alone(lock);
    shared_most[{current, kernel}] = (size_t)value;
    return cudaSuccess;
}

} // namespace fv_emu

uint64_t fv_emu_launches(const char *part) {
    std::lock_guard<std::mutex> alone(lock);
    uint64_t n = 0;
    for (const auto &l : launched)
        if (l.first.find(part) != std::string::npos) n += l.second;
    return n;
}

cudaError_t cudaGetDeviceCount(int *n) {
    *n = n_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (fv_emu::lost()) return fv_emu::told(cudaErrorIllegalAddress);
    if (device < 0 || device >= n_device()) return fv_emu::told(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (device < 0 || device >= n_device()) return fv_emu::told(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "no GPU: emulated on the CPU");
    memcpy(p->uuid.bytes, &device, sizeof device);
    p->totalGlobalMem = (size_t)16 << 30;
    p->sharedMemPerBlockOptin = SHARED_MOST;
    p->major = 9;
    p->multiProcessorCount = 4;
    return cudaSuccess;
}

/* The error of a lost device is not cleared. */
cudaError_t cudaGetLastError(void) {
    cudaError_t e = fv_emu::lost() ? cudaErrorIllegalAddress : last;
    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void) { return fv_emu::lost() ? cudaErrorIllegalAddress : last; }

const char *cudaGetErrorString(cudaError_t e) {
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    default: return "an error";
    }
}

const char *cudaGetErrorName(cudaError_t e) { return e ? "cudaError" : "cudaSuccess"; }
