/* Opens the adapters that a program's options name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "kv/cache/digest.h"
#include "model/adapter.h"

/* Splits "NAME=DIR". */
static fv_status read_spec(const char *spec, fv_adapter *out, const char **dir) {
    const char *equals = strchr(spec, '=');
    size_t n = equals ? (size_t)(equals - spec) : 0;
    bool plain = n > 0 && n <= FV_ADAPTER_NAME_MAX && equals[1];
    for (size_t i = 0; i < n; i++)
        plain &= (unsigned char)spec[i] > ' ' && spec[i] != 0x7f && spec[i] != '@';
    if (!plain)
        return FV_FAIL(
            FV_EINVAL,
            "--adapter %.64s: write NAME=DIR, with a name of 1..%d bytes without spaces, "
            "control characters and @ (which a policy follows)",
            spec, FV_ADAPTER_NAME_MAX);
    memcpy(out->name, spec, n);
    out->name[n] = '\0';
    *dir = equals + 1;
    return FV_OK;
}

static fv_status open_one(const char *spec, const fv_model_config *cfg, fv_arena *arena,
                          fv_adapters *all) {
    const char *dir;
    fv_adapter *x = &all->adapter[all->n], named;
    FV_TRY(read_spec(spec, &named, &dir));
    if (fv_adapters_named(all, named.name))
        return FV_FAIL(FV_EINVAL, "--adapter %s is given twice", named.name);
    FV_TRY(fv_adapter_open(dir, cfg, arena, x));
    strcpy(x->name, named.name);
    all->n++;
    FV_LOG(INFO, MODEL, "adapter=%s dir=%s digest=%.16s rank=%d bytes=%zu", x->name, dir, x->digest,
           x->rank, x->bytes);
    return FV_OK;
}

fv_status fv_adapters_open(const char *const *spec, int32_t n, const fv_model_config *cfg,
                           fv_arena *arena, fv_adapters *out) {
    fv_adapters all = {0};
    if (n > FV_ADAPTERS_MAX)
        return FV_FAIL(FV_EINVAL, "--adapter is given %d times; the maximum is %d", n,
                       FV_ADAPTERS_MAX);
    FV_TRY(FV_ARENA_NEW(arena, n, all.adapter));
    for (int32_t i = 0; i < n; i++) FV_TRY(open_one(spec[i], cfg, arena, &all));
    *out = all;
    return FV_OK;
}

size_t fv_adapters_bytes(const fv_adapters *all) {
    size_t bytes = 0;
    for (int32_t i = 0; i < all->n; i++) bytes += all->adapter[i].bytes;
    return bytes;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const fv_adapter *const *)a)->name, (*(const fv_adapter *const *)b)->name);
}

fv_status fv_adapters_fingerprint(const fv_adapters *all, char out[17]) {
    const fv_adapter *sorted[FV_ADAPTERS_MAX];
    uint8_t bytes[FV_DIGEST_BYTES];
    fv_digest d;
    for (int32_t i = 0; i < all->n; i++) sorted[i] = &all->adapter[i];
    qsort(sorted, (size_t)all->n, sizeof(const fv_adapter *), by_name);
    fv_digest_begin(&d, "fovea adapters v1");
    for (int32_t i = 0; i < all->n; i++) {
        fv_digest_text(&d, sorted[i]->name);
        fv_digest_text(&d, sorted[i]->digest);
    }
    FV_TRY(fv_digest_end(&d, bytes));
    for (int i = 0; i < 8; i++) snprintf(out + 2 * (size_t)i, 3, "%02x", bytes[i]);
    return FV_OK;
}
