/* Opens backends by name, and loads the shared libraries of those that are plugins. */
#include "kernels/backends/open.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/plugin.h"

enum { PATH_BYTES = 4096 };

/* The directory of this program. */
static fv_status program_dir(char dir[PATH_BYTES]) {
    ssize_t n = readlink("/proc/self/exe", dir, PATH_BYTES - 1);
    if (n <= 0) return FV_FAIL(FV_EUNSUPPORTED, "cannot find the directory of this program");
    dir[n] = 0;
    *strrchr(dir, '/') = 0;
    return FV_OK;
}

static fv_status check(const fv_plugin *p, const char *path) {
    if (!p) return FV_FAIL(FV_EUNSUPPORTED, "%s is not a fovea plugin", path);
    if (p->abi != FV_PLUGIN_ABI)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s has plugin interface %u, this program %d: build both "
                       "together",
                       path, (unsigned)p->abi, FV_PLUGIN_ABI);
    if (strcmp(p->contract, FV_PLUGIN_CONTRACT) != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s was built from other headers than this program (%.12s, "
                       "not %.12s): build both together",
                       path, p->contract, FV_PLUGIN_CONTRACT);
    return FV_OK;
}

static const char *plugin_dir;

void fv_plugin_set_dir(const char *dir) { plugin_dir = dir; }

/* Loads libfovea_<name>.so for good, checks its contract, and gives its table. */
static fv_status plugin_load(const char *name, const fv_backend_ops **out) {
    char here[PATH_BYTES], path[PATH_BYTES + 64];
    if (!plugin_dir) FV_TRY(program_dir(here));
    int n = snprintf(path, sizeof path, "%s/libfovea_%s.so", plugin_dir ? plugin_dir : here, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return FV_FAIL(FV_EINVAL, "the path of a plugin is too long (%d bytes)", n);
    if (access(path, R_OK) != 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "no plugin for '%s': %s is not there (it is built where nvcc is found)",
                       name, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return FV_FAIL(FV_EUNSUPPORTED, "cannot load a plugin: %s", dlerror());
    const fv_plugin *p = dlsym(library, FV_PLUGIN_SYMBOL);
    fv_status st = check(p, path);
    if (st == FV_OK)
        *out = p->ops;
    else
        dlclose(library);
    return st;
}

static fv_status open_cuda(fv_backend *be, const fv_backend_options *opt) {
    const fv_backend_ops *ops;
    FV_TRY(plugin_load("cuda", &ops));
    return ops->open(be, opt);
}

fv_status fv_backend_open(fv_backend *be, const char *name, const fv_backend_options *opt) {
    static const fv_backend_options defaults;
    if (!opt) opt = &defaults;
    bool any = !name || strcmp(name, "auto") == 0;
    if (any || strcmp(name, "cuda") == 0) {
        fv_status st = open_cuda(be, opt);
        bool wanted = !any || opt->device > 0 || opt->trace; /* naming a GPU rules out the CPU */
        if (st == FV_OK || wanted) return st;
        FV_LOG(INFO, KERNELS, "backend=cpu reason=\"no CUDA: %s\"", fv_last_error());
        any = true;
    }
    if (any || strcmp(name, "cpu") == 0) return fv_backend_cpu.open(be, opt);
    return FV_FAIL(FV_EINVAL, "device '%s': choose auto, cpu or cuda", name);
}
