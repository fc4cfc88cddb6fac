/* Two processes with a device each, joined as a pair (common/peer.h): memory is transferred with
 * its checksum; a side that is left alone or meets a failure closes the pair and continues.
 *
 * On one GPU two processes can be joined when NCCL takes them for two machines, each with a name of
 * its own (NCCL_HOSTID). A process opens its device after the fork. */
#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/ops/device_test.h"

enum { DEADLINE_MS = 60000, SOON_MS = 300, NEW_PAIRS = 3 };

static const size_t sizes[] = {1,         3,    255,  256,           257,
                               4096,      4099, 1000, 1 << 16,       (1 << 16) + 4,
                               (1 << 18), 64,   64,   (1 << 20) - 1, 1 << 20};
enum { N_SIZE = sizeof sizes / sizeof *sizes, BUF = 1 << 20 };

static bool emulated(void) {
    const char *dir = getenv("FOVEA_PLUGIN_DIR");
    return !dir || !*dir;
}

/* ---- one of the two processes ---------------------------------------------------------- */

typedef struct side {
    device_test d;
    const fv_peer_ops *ops;
    fv_peer *pair;
    int rank, from, to; /* a pipe from the other, and to it */
} side;

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void tell(const side *s, const void *p, size_t n) {
    if (write(s->to, p, n) != (ssize_t)n) exit(1);
}

/* False: the other process is gone. */
static bool hear(const side *s, void *p, size_t n) { return read(s->from, p, n) == (ssize_t)n; }

/* Streams of the highest priority made so far; NULL on a GPU. */
typedef uint64_t urgent_fn(void);

static urgent_fn *urgent_streams(void) {
    const char *dir = getenv("FOVEA_PLUGIN_DIR");
    if (dir && *dir && strcmp(dir, FOVEA_EMULATED) != 0) return NULL;
    void *library = dlopen(FOVEA_EMULATED "/libfovea_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return library ? (urgent_fn *)(uintptr_t)dlsym(library, "fv_emu_urgent_streams") : NULL;
}

static void begin(side *s, size_t buffer_bytes) {
    uint8_t id[FV_PEER_ID_BYTES];
    if (s->rank == 0) {
        must(s->ops->new_id(id));
        tell(s, id, sizeof id);
    } else if (!hear(s, id, sizeof id)) {
        exit(1);
    }
    must(s->ops->open(s->d.be.device, id, s->rank, buffer_bytes, &s->pair));
    urgent_fn *urgent = urgent_streams();
    if (urgent && urgent() == 0) must(FV_FAIL(FV_EDATA, "a pair's stream has no priority"));
}

/* Waits until it has joined, or (done) an operation is over. FV_EDEADLINE: not within ms. */
static fv_status await(side *s, bool done, double ms, fv_peer_news *news) {
    for (double end = now_ms() + ms; now_ms() < end; nap()) {
        FV_TRY(s->ops->poll(s->pair, news));
        if (done ? news->done : news->joined) return FV_OK;
    }
    return FV_EDEADLINE;
}

static void join(side *s, size_t buffer_bytes) {
    fv_peer_news news;
    begin(s, buffer_bytes);
    must(await(s, false, DEADLINE_MS, &news));
}

static void must_issue(side *s, void *at, size_t bytes, fv_peer_news *news, int *n_done,
                       void (*on_done)(side *s, int n, uint32_t crc)) {
    double end = now_ms() + DEADLINE_MS;
    for (fv_status st = FV_EBUSY; st != FV_OK; nap()) {
        st = s->rank == 0 ? s->ops->send(s->pair, at, bytes) : s->ops->recv(s->pair, at, bytes);
        if (st != FV_EBUSY) must(st);
        must(s->ops->poll(s->pair, news));
        if (news->done) on_done(s, (*n_done)++, news->crc);
        if (now_ms() > end) must(FV_FAIL(FV_EDEADLINE, "the pair stays busy"));
    }
}

/* ---- the data -------------------------------------------------------------------------- */

static void fill(uint8_t *p, size_t n, uint64_t seed) {
    random_state = seed;
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(random_bits() >> 32);
}

/* Bit by bit, by definition. */
static uint32_t crc_of(const uint8_t *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int b = 0; b < 8; b++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static char *room_of(const side *s, int n) {
    return (char *)s->ops->buffer(s->pair) + (size_t)(n % FV_PEER_DEPTH) * BUF;
}

static void sent(side *s, int n, uint32_t crc) { (void)s, (void)n, (void)crc; }

static void came(side *s, int n, uint32_t crc) {
    uint8_t *want = room(sizes[n]), *got = room(sizes[n]);
    fv_device *dev = s->d.be.device;
    fill(want, sizes[n], (uint64_t)n);
    must(dev->ops->copy_async(dev, got, room_of(s, n), sizes[n]));
    must(s->d.be.ops->sync(&s->d.be));
    if (memcmp(want, got, sizes[n]) != 0)
        must(FV_FAIL(FV_EDATA, "transfer %d of %zu bytes is not what was sent", n, sizes[n]));
    if (crc != crc_of(want, sizes[n]))
        must(FV_FAIL(FV_EDATA, "transfer %d of %zu bytes has CRC %08x", n, sizes[n], crc));
    free(want);
    free(got);
}

/* ---- cases: what each side does -------------------------------------------------------- */

static void moves(side *s) {
    fv_device *dev = s->d.be.device;
    fv_buf buf[N_SIZE] = {0};
    fv_peer_news news;
    int n_done = 0;
    uint8_t *bytes = room(BUF);
    join(s, s->rank ? (size_t)FV_PEER_DEPTH * BUF : 0);
    for (int n = 0; n < N_SIZE; n++) {
        if (s->rank == 0) {
            fill(bytes, sizes[n], (uint64_t)n);
            must(fv_buf_alloc(dev, sizes[n], FV_BUF_DEVICE, &buf[n]));
            must(dev->ops->copy_async(dev, buf[n].data, bytes, sizes[n]));
            must(s->d.be.ops->sync(&s->d.be));
        }
        must_issue(s, s->rank ? room_of(s, n) : buf[n].data, sizes[n], &news, &n_done,
                   s->rank ? came : sent);
    }
    for (; n_done < N_SIZE; n_done++) {
        must(await(s, true, DEADLINE_MS, &news));
        (s->rank ? came : sent)(s, n_done, news.crc);
    }
    free(bytes);
    for (int n = 0; n < N_SIZE; n++) fv_buf_free(&buf[n]);
}

/* Makes another pair after one was closed, as when a worker comes back. */
static void moves_again(side *s) {
    for (int i = 0; i < NEW_PAIRS; i++) {
        if (i) s->ops->close(s->pair);
        moves(s);
    }
}

/* The other side gets the id but does not join. */
static void alone(side *s) {
    fv_peer_news news;
    uint8_t id[FV_PEER_ID_BYTES];
    if (s->rank == 1) {
        (void)hear(s, id, sizeof id);
        return;
    }
    begin(s, 0);
    if (s->ops->send(s->pair, NULL, 1) != FV_EBUSY) exit(1);
    if (await(s, false, SOON_MS, &news) == FV_OK) exit(1);
}

/* The receiver ends once it has joined; the sender sees a failure or a timeout. */
static void left(side *s) {
    fv_peer_news news;
    fv_buf buf;
    char word = 0;
    join(s, s->rank ? BUF : 0);
    if (s->rank == 1) {
        if (!hear(s, &word, 1)) exit(1);
        return;
    }
    tell(s, &word, 1);
    must(fv_buf_alloc(s->d.be.device, BUF, FV_BUF_DEVICE, &buf));
    must(s->d.be.ops->sync(&s->d.be));
    fv_status st = FV_OK;
    while (st == FV_OK && hear(s, &word, 1)) /* until the other's end of the pipe is closed */
        ;
    st = s->ops->send(s->pair, buf.data, BUF);
    if (st == FV_OK) st = await(s, true, SOON_MS, &news);
    if (st == FV_OK) st = s->ops->send(s->pair, buf.data, BUF); /* the first may lie in between */
    if (st == FV_OK) st = await(s, true, SOON_MS, &news);
    s->ops->close(s->pair);
    s->pair = NULL;
    fv_buf_free(&buf);
    if (st == FV_OK) must(FV_FAIL(FV_EDEVICE, "both transfers to nobody are over"));
}

/* Operation 0 succeeds, operation 1 fails; rank 0 has the fault. */
static void second_fails(side *s) {
    fv_peer_news news;
    fv_buf buf;
    join(s, s->rank ? BUF : 0);
    must(fv_buf_alloc(s->d.be.device, BUF, FV_BUF_DEVICE, &buf));
    for (int n = 0; n < 2; n++) {
        fv_status st = s->rank ? s->ops->recv(s->pair, s->ops->buffer(s->pair), BUF)
                               : s->ops->send(s->pair, buf.data, BUF);
        must(st);
        st = await(s, true, n ? SOON_MS : DEADLINE_MS, &news);
        if (n == 0) must(st);
        if (n == 1 && st == FV_OK) must(FV_FAIL(FV_EDEVICE, "a transfer that fails goes well"));
        const char *fault = getenv("FOVEA_NCCL_FAULT_0");
        bool errs = fault && strncmp(fault, "error", 5) == 0;
        if (n == 1 && errs && st != FV_EDEVICE) must(FV_FAIL(FV_EDEVICE, "no error is told"));
    }
    s->ops->close(s->pair);
    s->pair = NULL;
    fv_buf_free(&buf);
}

static void checksums(side *s) {
    fv_device *dev = s->d.be.device;
    static const size_t n[] = {0, 1, 4, 255, 256, 70000, (2 << 20) + 12345};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        uint8_t *p = room(n[i]);
        fv_buf buf;
        uint32_t crc;
        fill(p, n[i], i);
        must(fv_buf_alloc(dev, n[i], FV_BUF_DEVICE, &buf));
        if (n[i]) must(dev->ops->copy_async(dev, buf.data, p, n[i]));
        /* Within a step launches are held back; the sums must arrive all the same. */
        if (i % 2) must(fv_backend_step_begin(&s->d.be, 1));
        must(s->ops->crc32c(dev, buf.data, n[i], &crc));
        if (i % 2) must(fv_backend_step_end(&s->d.be));
        if (crc != crc_of(p, n[i])) must(FV_FAIL(FV_EDATA, "CRC of %zu bytes: %08x", n[i], crc));
        free(p);
        fv_buf_free(&buf);
    }
}

/* ---- the cases ------------------------------------------------------------------------- */

typedef struct test_case {
    const char *name, *fault; /* of rank 0, where the device is emulated; NULL: none */
    void (*run)(side *s);
    int n_rank;
} test_case;

static _Noreturn void run_side(const test_case *t, int rank, int from, int to) {
    side s = {.rank = rank, .from = from, .to = to};
    setenv("NCCL_HOSTID", rank ? "fovea-test-1" : "fovea-test-0", 1);
    if (t->fault && rank == 0) setenv("FOVEA_NCCL_FAULT_0", t->fault, 1);
    s.d = device_open("exact");
    s.ops = s.d.be.ops->pairs;
    if (s.ops->check() != FV_OK) {
        printf("skip: %s\n", fv_last_error());
        exit(77);
    }
    t->run(&s);
    s.ops->close(s.pair);
    device_close(&s.d);
    fflush(stdout);
    exit(0);
}

/* 0, or the exit status of a process that failed. */
static int run_case(const test_case *t) {
    int pipes[2][2], result = 0; /* pipes[r] goes to rank r */
    fflush(stdout);
    if (pipe(pipes[0]) || pipe(pipes[1])) exit(1);
    for (int rank = 0; rank < t->n_rank; rank++) {
        if (fork()) continue;
        close(pipes[rank][1]);
        close(pipes[1 - rank][0]);
        run_side(t, rank, pipes[rank][0], pipes[1 - rank][1]);
    }
    for (int i = 0; i < 4; i++) close(pipes[i / 2][i % 2]);
    for (int rank = 0, status; rank < t->n_rank; rank++) {
        if (wait(&status) < 0) exit(1);
        int said = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        if (said) result = said;
    }
    return result;
}

int main(void) {
    static const test_case cases[] = {
        {"checksums on the device are those of the bytes", NULL, checksums, 1},
        {"memory of every size arrives, with its checksum, over pair after pair", NULL, moves_again,
         2},
        {"a pair whose other side never comes is closed", NULL, alone, 2},
        {"a pair whose other side has gone is closed", NULL, left, 2},
        {"an operation that fails says so", "error:1", second_fails, 2},
        {"an operation that never ends is given up", "late:1", second_fails, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].fault && !emulated()) continue;
        group(cases[i].name);
        int said = run_case(&cases[i]);
        if (said == 77) return 77;
        check(said == 0, "a process ended with %d", said);
    }
    return summary();
}
