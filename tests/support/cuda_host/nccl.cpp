/* The functions of NCCL that pairs use, between emulated devices: two ranks, in one process or in
 * two, joined by a socket of the machine. Stands in for kernels/cuda/nccl_library.c.
 *
 * As with NCCL nothing blocks, joining takes the other side, an operation is issued some time
 * after the call (ncclInProgress), and one whose other side is gone does not end by itself: the
 * error is told by ncclCommGetAsyncError, and abort ends it.
 *
 * FOVEA_NCCL_FAULT_0 makes rank 0 err on purpose, FOVEA_NCCL_FAULT_1 the other, in each
 * communicator of the process:
 *     init      it never joins        error:N   operation N (from 0) fails
 *     late:N    operation N never ends
 *     die:N     the process ends, half-way through operation N */
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <random>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cuda_runtime.h"
#include "kernels/cuda/library/nccl_api.h"
#include "run.h"

namespace {

const int ISSUE_AFTER = 2; /* polls from the call until the operation is on its stream */

struct end {
    int fd = -1, listener = -1, rank = 0, n_op = 0;
    sockaddr_un address{};
    bool joined = false, aborted = false;
    ncclResult_t error = ncclSuccess;
    ~end() {
        if (fd >= 0) close(fd);
        if (listener >= 0) close(listener);
    }
};

struct transfer {
    char *data;
    uint64_t bytes, said = 0;
    size_t head = 0, at = 0; /* bytes of the length, and of the data, transferred so far */
    bool sends;
    int number;
};

} // namespace

struct ncclComm {
    std::shared_ptr<end> e;
    std::shared_ptr<transfer> waiting; /* called, and not yet issued */
    cudaStream_t stream;
    int looks;
};

namespace {

bool fault(const end *e, const char *kind, int number) {
    const char *asked = getenv(e->rank ? "FOVEA_NCCL_FAULT_1" : "FOVEA_NCCL_FAULT_0");
    char want[32];
    snprintf(want, sizeof want, number < 0 ? "%s" : "%s:%d", kind, number);
    return asked && strcmp(asked, want) == 0;
}

ncclResult_t unique_id(ncclUniqueId *id) {
    std::random_device random;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "fovea-nccl-%d-%08x%08x", (int)getpid(), random(),
             random());
    return ncclSuccess;
}

ncclResult_t init(ncclComm_t *out, int n_rank, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (n_rank != 2 || config->blocking || config->magic != 0xcafebeef) return ncclRemoteError;
    auto e = std::make_shared<end>();
    e->rank = rank;
    e->address.sun_family = AF_UNIX;
    snprintf(e->address.sun_path + 1, sizeof e->address.sun_path - 1, "%.100s", id.internal);
    if (rank == 0) {
        e->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (bind(e->listener, (sockaddr *)&e->address, sizeof e->address) || listen(e->listener, 1))
            return ncclRemoteError;
    }
    *out = new ncclComm{e, nullptr, nullptr, 0};
    return ncclInProgress;
}

bool try_join(end *e) {
    if (fault(e, "init", -1)) return false;
    if (e->rank == 0) {
        e->fd = accept4(e->listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        return e->fd >= 0;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(fd, (sockaddr *)&e->address, sizeof e->address) == 0) {
        e->fd = fd;
        return true;
    }
    close(fd);
    return false;
}

/* Does a read or write; false: none is possible now. */
bool move(end *e, const transfer *t, char *data, size_t n, size_t *at) {
    ssize_t did = t->sends ? send(e->fd, data + *at, n - *at, MSG_NOSIGNAL)
                           : recv(e->fd, data + *at, n - *at, 0);
    if (did > 0) {
        *at += (size_t)did;
        return true;
    }
    if (did == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) e->error = ncclRemoteError;
    return false;
}

/* Advances the transfer, on its stream, as far as possible without blocking. */
bool carry(end *e, transfer *t) {
    if (e->aborted) return true;
    if (e->error != ncclSuccess || fault(e, "late", t->number)) return false;
    if (fault(e, "error", t->number)) {
        e->error = ncclRemoteError;
        return false;
    }
    if (t->sends) t->said = t->bytes;
    while (t->head < sizeof t->said)
        if (!move(e, t, reinterpret_cast<char *>(&t->said), sizeof t->said, &t->head)) return false;
    if (t->said != t->bytes) {
        fprintf(stderr, "FAILED: NCCL: %llu bytes meet a receive of %llu\n",
                (unsigned long long)t->said, (unsigned long long)t->bytes);
        abort();
    }
    if (fault(e, "die", t->number)) _exit(9);
    while (t->at < t->bytes)
        if (!move(e, t, t->data, t->bytes, &t->at)) return false;
    return true;
}

void issue(ncclComm *c) {
    auto e = c->e;
    auto t = c->waiting;
    c->waiting = nullptr;
    fv_emu::issue_when(c->stream, [e, t] { return carry(e.get(), t.get()); });
}

ncclResult_t async_error(ncclComm_t c, ncclResult_t *state) {
    end *e = c->e.get();
    *state = ncclInProgress;
    if (!e->joined) {
        e->joined = try_join(e);
        return ncclSuccess;
    }
    if (c->waiting && ++c->looks < ISSUE_AFTER) return ncclSuccess;
    if (c->waiting) issue(c);
    *state = e->error;
    return ncclSuccess;
}

ncclResult_t abort_comm(ncclComm_t c) {
    c->e->aborted = true;
    delete c;
    return ncclSuccess;
}

ncclResult_t begin(const void *data, size_t n, ncclComm_t c, cudaStream_t s, bool sends) {
    if (c->waiting) return ncclRemoteError; /* NCCL requires a poll first */
    c->waiting = std::make_shared<transfer>();
    c->waiting->data = static_cast<char *>(const_cast<void *>(data));
    c->waiting->bytes = n;
    c->waiting->sends = sends;
    c->waiting->number = c->e->n_op++;
    c->stream = s;
    c->looks = 0;
    return ncclInProgress;
}

ncclResult_t send_to(const void *data, size_t n, ncclDataType_t, int, ncclComm_t c,
                     cudaStream_t s) {
    return begin(data, n, c, s, true);
}

ncclResult_t recv_from(void *data, size_t n, ncclDataType_t, int, ncclComm_t c, cudaStream_t s) {
    return begin(data, n, c, s, false);
}

const char *words(ncclResult_t e) {
    return e == ncclRemoteError ? "remote process exited or there was a network error" : "no error";
}

const char *last_error(ncclComm_t) { return ""; }

} // namespace

extern "C" fv_status fv_nccl_load(const fv_nccl **out) {
    static const fv_nccl table = {unique_id, init,      async_error, abort_comm,
                                  send_to,   recv_from, words,       last_error};
    *out = &table;
    return FV_OK;
}
