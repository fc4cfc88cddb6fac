/* Plugins that are missing, do not fit, or find no device: each is refused with a message, and
 * "auto" falls back to the CPU. */
#include <unistd.h>

#include "kernels/backends/open.h"
#include "tests/ops/ops_test.h"

static fv_status open_in(const char *dir, const char *name, const fv_backend_options *opt,
                         char device[16]) {
    fv_backend be;
    fv_plugin_set_dir(dir);
    fv_status s = fv_backend_open(&be, name, opt);
    if (s != FV_OK) return s;
    snprintf(device, 16, "%s", be.ops->name);
    fv_backend_close(&be);
    return s;
}

/* Expects that cuda is refused with `words` in the message, and that auto is the CPU. */
static void refused(const char *dir, const char *words) {
    char device[16] = "";
    fv_status s = open_in(dir, "cuda", NULL, device);
    check(s == FV_EUNSUPPORTED, "%s: %s", dir, fv_status_name(s));
    check(strstr(fv_last_error(), words) != NULL, "%s: \"%s\" says nothing of \"%s\"", dir,
          fv_last_error(), words);
    s = open_in(dir, "auto", NULL, device);
    check(s == FV_OK && strcmp(device, "cpu") == 0, "%s: auto is %s", dir, device);
}

static void test_refusals(void) {
    group("plugins that do not fit are refused, and auto takes the CPU");
    refused("/nowhere", "/nowhere/libfovea_cuda.so is not there");
    refused(FOVEA_ODD "/abi", "interface 3, this program 2");
    refused(FOVEA_ODD "/contract", "other headers");
    refused(FOVEA_ODD "/none", "is not a fovea plugin");

    const char *path = FOVEA_TEST_TMP "/libfovea_cuda.so";
    FILE *f = fopen(path, "w");
    if (!f || fputs("no library\n", f) < 0 || fclose(f) != 0) exit(1);
    refused(FOVEA_TEST_TMP, "cannot load a plugin");
    remove(path);
}

/* The plugin as built: without a GPU it says so. */
static void test_real(void) {
    group("the plugin without a device says that there is none");
    if (access(FOVEA_BIN "/libfovea_cuda.so", R_OK) != 0) {
        printf("skip: libfovea_cuda.so is not built here\n");
        return;
    }
    char device[16] = "";
    if (open_in(FOVEA_BIN, "cuda", NULL, device) == FV_OK) {
        check(strcmp(device, "cuda") == 0, "it is %s", device);
        return;
    }
    refused(FOVEA_BIN, "no CUDA device");
}

static void test_options(void) {
    group("the emulated plugin: its options");
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0) {
        printf("skip: the kernels are not built for the CPU here\n");
        return;
    }
    char device[16] = "";
    fv_backend_options exact = {.isa = "exact"}, wrong = {.isa = "avx2"}, second = {.device = 1};
    check(open_in(FOVEA_EMULATED, "cuda", &exact, device) == FV_OK && !strcmp(device, "cuda"),
          "exact: %s", device);
    check(open_in(FOVEA_EMULATED, "auto", NULL, device) == FV_OK && !strcmp(device, "cuda"),
          "auto takes it: %s", device);
    check(open_in(FOVEA_EMULATED, "cuda", &wrong, device) == FV_EINVAL, "isa avx2");
    check(strstr(fv_last_error(), "avx2") != NULL, "it is named: %s", fv_last_error());
    check(open_in(FOVEA_EMULATED, "cuda", &second, device) == FV_EINVAL, "device 1 of 1");
}

int main(void) {
    test_refusals();
    test_real();
    test_options();
    return summary();
}
