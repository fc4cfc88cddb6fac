/* `fovea quantize`: converts a checkpoint's linear layers to 8 or 4 bits. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/client/command.h"
#include "cli/client/progress.h"
#include "common/file.h"
#include "common/log.h"
#include "gguf/gguf.h"
#include "kernels/backends/open.h"
#include "model/checkpoint.h"

/* A bar and the name of the things that it counts. */
typedef struct stage {
    fv_progress bar;
    const char *what;
} stage;

static void show(void *user, int32_t done, int32_t n) {
    stage *s = user;
    fv_progress_show(&s->bar, done, n, s->what);
}

static fv_status write_as(fv_checkpoint *ck, fv_backend *be, const fv_weights *to, const char *dir,
                          uint64_t *bytes) {
    stage s = {.what = "weights quantized"};
    fv_progress_begin(&s.bar);
    fv_status st = fv_checkpoint_quantize(ck, be, to, show, &s);
    s.what = "tensors written";
    if (st == FV_OK) st = fv_checkpoint_write(ck, to, dir, show, &s, bytes);
    fv_progress_end(&s.bar);
    return st;
}

static fv_status check_output(const fv_options *o, const char *from, const char *dir) {
    char path[4096];
    fv_file_stamp a = fv_file_stamp_of(from), b = fv_file_stamp_of(dir);
    if (a.inode != 0 && a.device == b.device && a.inode == b.inode)
        return FV_FAIL(FV_EINVAL, "--out %s is the checkpoint itself: choose another directory",
                       dir);
    FV_TRY(fv_path_join(dir, "config.json", path, sizeof path));
    if (!fv_options_flag(o, "force") && fv_file_exists(path))
        return FV_FAIL(FV_EINVAL, "%s has a checkpoint already; --force overwrites it", dir);
    return FV_OK;
}

static fv_status quantize(const fv_options *o) {
    const char *const *rest, *from = fv_options_string(o, "checkpoint");
    const char *dir = fv_options_string(o, "out");
    const fv_weights *to;
    fv_checkpoint *ck;
    fv_backend be;
    uint64_t bytes = 0;
    if (fv_options_positional(o, &rest) > 0)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option", rest[0]);
    if (!from || !dir) return FV_FAIL(FV_EINVAL, "--checkpoint DIR and --out DIR are needed");
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(fv_weights_find(fv_options_string(o, "weights"), &to));
    if (!fv_weights_are_integers(to))
        return FV_FAIL(FV_EINVAL, "--weights %s: choose int8, int4 or int4-128",
                       to ? to->name : "stored");
    if (fv_gguf_is_file(from))
        return FV_FAIL(FV_EINVAL,
                       "%s is a GGUF file: it is served as it is, and not written anew; quantize a "
                       "directory of safetensors",
                       from);
    FV_TRY(check_output(o, from, dir));
    FV_TRY(fv_checkpoint_open(from, &ck));
    size_t before = fv_checkpoint_bytes(ck);
    fv_backend_options cpu = {.n_threads = (int32_t)fv_options_int(o, "threads")};
    fv_status st = fv_checkpoint_is_quantized(ck)
                       ? FV_FAIL(FV_EUNSUPPORTED, "%s is quantized already", from)
                       : fv_backend_open(&be, "cpu", &cpu);
    if (st == FV_OK) {
        st = write_as(ck, &be, to, dir, &bytes);
        fv_backend_close(&be);
    }
    fv_checkpoint_close(ck);
    if (st == FV_OK)
        printf("wrote %s: weights in %s, %.1f MiB of %.1f MiB\n", dir, to->name,
               (double)bytes * 0x1p-20, (double)before * 0x1p-20);
    return st;
}

static int run(const fv_options *o) { return fv_cli_end(&fv_cli_quantize, quantize(o)); }

const fv_command fv_cli_quantize = {.program = FV_PROGRAM_QUANTIZE, .run = run};
