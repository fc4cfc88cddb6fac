/* Opening and closing backends: names, instruction sets, threads, and refusals. */
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/ops/ops_test.h"

static fv_status open_close(const char *name, const fv_backend_options *opt) {
    fv_backend be;
    fv_status s = fv_backend_open(&be, name, opt);
    if (s == FV_OK) fv_backend_close(&be);
    return s;
}

static void test_names(void) {
    group("open: knows cpu and auto, and says so when asked for something else");
    check(open_close("cpu", NULL) == FV_OK, "cpu without options");
    check(open_close("auto", &(fv_backend_options){0}) == FV_OK, "auto");
    check(open_close("abacus", NULL) == FV_EINVAL, "an unknown backend");
    check(strstr(fv_last_error(), "abacus") != NULL, "the sentence names it: %s", fv_last_error());
    check(open_close("cpu", &(fv_backend_options){.isa = "mmx"}) == FV_EINVAL, "an unknown isa");
    check(strstr(fv_last_error(), "mmx") != NULL, "the sentence names it: %s", fv_last_error());
    check(open_close("cpu", &(fv_backend_options){.n_threads = -1}) == FV_EINVAL, "-1 threads");
    check(open_close("cpu", &(fv_backend_options){.n_threads = 100000}) == FV_EINVAL,
          "too many threads");

    group("open: takes the path that was asked for");
    static const char *const isa[] = {
#define FV_ISA(name, flags) #name,
#include "kernels/cpu/isa.def"
    };
    for (size_t i = 0; i < sizeof isa / sizeof *isa; i++) {
        fv_backend be;
        fv_status s = fv_backend_open(&be, "cpu", &(fv_backend_options){.isa = isa[i]});
        if (s == FV_EUNSUPPORTED) {
            printf("skip: %s not on this CPU\n", isa[i]);
            continue;
        }
        must(s);
        check(strcmp(be.isa, isa[i]) == 0, "%s: got %s", isa[i], be.isa);
        check(be.ops->act == FV_F32 && be.device == fv_device_host(), "%s: device", isa[i]);
        fv_backend_close(&be);
        check(be.ops == NULL, "close empties it");
        fv_backend_close(&be); /* and may be called again */
    }
}

/* Reads what the log says of two products of integers with the instruction set `isa`; false where this CPU lacks it. */
static bool log_of(const char *isa, char *said, size_t size) {
    static const float scale[3] = {1, 1, 1};
    static const int8_t w[6] = {1, 2, 3, 4, 5, 6};
    const fv_quant quant = {.scale = scale, .scale_type = FV_F32};
    float x[2] = {1, 2}, y[3];
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, 2), .n_part = 1};
    fv_backend be;
    a.part[0].w = fv_tensor_of((void *)(uintptr_t)w, FV_INT8, 3, 2);
    a.part[0].w.quant = &quant;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 3);
    if (fv_backend_open(&be, "cpu", &(fv_backend_options){.isa = isa}) != FV_OK) return false;
    const int stderr_before = dup(STDERR_FILENO);
    FILE *log = tmpfile();
    if (!log || stderr_before < 0 || dup2(fileno(log), STDERR_FILENO) < 0) exit(1);
    must(fv_log_configure("info"));
    for (int i = 0; i < 2; i++) must(be.ops->linear(&be, &a));
    must(fv_log_configure("warn"));
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    rewind(log);
    said[fread(said, 1, size - 1, log)] = '\0';
    fclose(log);
    fv_backend_close(&be);
    return true;
}

static void test_log(void) {
    group("linear: the log names the implementation once, of the best instruction set allowed");
    static const char *const of[][2] = {
        {"plain", "gemm=plain product=int8"},
        {"avx2", "gemm=avx2 product=int8"},
        {"avx512", "gemm=avx512 product=int8"},
        {"avx512vnni", "gemm=avx512vnni product=int8"},
        {"avx512bf16", "gemm=avx512vnni product=int8"}, /* has none for integers */
        {"amx", "gemm=amx product=int8"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char said[1000];
        if (!log_of(of[i][0], said, sizeof said)) continue;
        const char *line = strstr(said, of[i][1]);
        check(line != NULL, "%s: %s", of[i][0], said);
        check(line && !strstr(line + 1, "gemm="), "%s, once: %s", of[i][0], said);
    }
}

static void test_weight(void) {
    group("weight: the CPU borrows it");
    fv_backend be;
    must(fv_backend_open(&be, "cpu", NULL));
    float data[6] = {0};
    fv_tensor host = fv_tensor_of(data, FV_F32, 2, 3), out;
    fv_buf owned;
    must(be.ops->weight(&be, &host, &out, &owned));
    check(out.data == data && out.rows == 2 && out.cols == 3 && owned.data == NULL, "borrowed");
    fv_buf_free(&owned);
    must(be.ops->sync(&be));
    fv_backend_close(&be);
}

static void test_refusals(void) {
    group("operations: activations that are not f32 are refused, not misread");
    fv_backend be;
    must(fv_backend_open(&be, "cpu", NULL));
    fv_tensor h = tensor_new(FV_BF16, 1, 16, 0), f = tensor_new(FV_F32, 1, 16, 0);
    fv_tensor w = tensor_new(FV_F32, 16, 16, 0);
    fv_linear_args lin = {.x = h, .n_part = 1, .part = {{.w = w, .y = f}}};
    check(be.ops->linear(&be, &lin) == FV_EUNSUPPORTED, "linear, x in bf16");
    lin.x = f;
    lin.part[0].y = h;
    check(be.ops->linear(&be, &lin) == FV_EUNSUPPORTED, "linear, y in bf16");
    check(be.ops->norm(&be, &(fv_norm_args){.x = h, .w = f, .y = f}) == FV_EUNSUPPORTED, "norm");
    check(be.ops->activate(&be, &(fv_activate_args){.x = f, .y = h}) == FV_EUNSUPPORTED,
          "activate");
    free(h.data);
    free(f.data);
    free(w.data);

    group("operations: no rows is legal and does nothing");
    float one = 1, y = 7777;
    fv_tensor none = fv_tensor_of(&y, FV_F32, 0, 1), w1 = fv_tensor_of(&one, FV_F32, 1, 1);
    int32_t id = 0;
    check(be.ops->linear(
              &be, &(fv_linear_args){.x = none, .n_part = 1, .part = {{.w = w1, .y = none}}}) ==
              FV_OK,
          "linear");
    check(be.ops->norm(&be, &(fv_norm_args){.x = none, .w = w1, .y = none}) == FV_OK, "norm");
    check(be.ops->activate(&be, &(fv_activate_args){.x = none, .y = none}) == FV_OK, "activate");
    check(be.ops->index_select(&be, &(fv_index_select_args){w1, none, &id}) == FV_OK,
          "index_select");
    check(be.ops->kv_write(
              &be, &(fv_kv_write_args){.k = none, .v = none, .n_kv = 1, .d_head = 1}) == FV_OK,
          "kv_write");
    check(be.ops->attention(
              &be, &(fv_attn_args){.q = none, .o = none, .n_head = 1, .n_kv = 1, .d_head = 1}) ==
              FV_OK,
          "attention");
    check(y == 7777, "nothing was written");
    fv_backend_close(&be);
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Many short loops, then none, then some with pauses. */
static void test_threads(void) {
    group("threads: thousands of short loops come out right, and idle threads sleep");
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        enum { N = 1000, K = 64 }; /* several chunks */
        fv_backend be;
        must(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = n_threads}));
        fv_tensor x = tensor_new(FV_F32, N, K, 0), y = tensor_new(FV_F32, N, K, 0);
        fv_tensor cos = tensor_new(FV_F32, N, K / 2, 0), sin = tensor_new(FV_F32, N, K / 2, 0);
        fill_normal(&x, 1);
        memcpy(y.data, x.data, tensor_bytes(&x));
        for (int i = 0; i < N * K / 2; i++) {
            ((float *)cos.data)[i] = 0; /* a quarter turn: four of them are the identity */
            ((float *)sin.data)[i] = 1;
        }
        for (int i = 0; i < 2000; i++) must(be.ops->rope(&be, &(fv_rope_args){y, cos, sin, 1}));
        check(first_difference(x.data, y.data, (size_t)N * K) < 0, "%d threads", n_threads);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        double before = cpu_seconds();
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        double used = cpu_seconds() - before;
        check(used < 0.02, "%d threads used %.3f s while idle", n_threads, used);
        for (int i = 0; i < 100; i++) { /* pauses of about the time after which threads sleep */
            nanosleep(&(struct timespec){.tv_nsec = random_int(0, 200000)}, NULL);
            must(be.ops->rope(&be, &(fv_rope_args){y, cos, sin, 1}));
        }
        check(first_difference(x.data, y.data, (size_t)N * K) < 0, "%d threads, woken", n_threads);
        fv_backend_close(&be);
        free(x.data);
        free(y.data);
        free(cos.data);
        free(sin.data);
    }
}

int main(void) {
    test_names();
    test_log();
    test_weight();
    test_refusals();
    test_threads();
    return summary();
}
