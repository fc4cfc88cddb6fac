/* The tiers of a device, and the comparison that a library's products pass at open: one that sums in another order for
 * many rows is found, and `auto` then calls itself `fast`. On the emulated device alone, which can be told to. */
#include "kernels/tier.h"
#include "tests/ops/device_test.h"

static void opens_as(const char *isa, const char *blas, fv_tier tier) {
    fv_backend be;
    if (blas)
        setenv("FOVEA_EMULATED_BLAS", blas, 1);
    else
        unsetenv("FOVEA_EMULATED_BLAS");
    must(fv_backend_open(&be, "cuda", &(fv_backend_options){.isa = isa}));
    check(fv_backend_tier(&be) == tier, "%s, %s: %s", isa, blas ? blas : "batch-invariant",
          fv_tier_name(fv_backend_tier(&be)));
    fv_backend_close(&be);
}

int main(void) {
    fv_backend be;
    fv_plugin_set_dir(FOVEA_EMULATED);
    if (fv_backend_open(&be, "cuda", &(fv_backend_options){.isa = "exact"}) != FV_OK) {
        printf("skip: %s\n", fv_last_error());
        return 77;
    }
    fv_backend_close(&be);
    group("tiers: what is asked for, and what the products allow");
    opens_as("exact", NULL, FV_TIER_EXACT);
    opens_as("auto", NULL, FV_TIER_AUTO);
    opens_as("fast", NULL, FV_TIER_FAST);
    opens_as("exact", "splits", FV_TIER_EXACT);
    opens_as("auto", "splits", FV_TIER_FAST);
    check(fv_backend_open(&be, "cuda", &(fv_backend_options){.isa = "quick"}) == FV_EINVAL &&
              strstr(fv_last_error(), "choose auto, exact or fast"),
          "%s", fv_last_error());
    group("a CPU has the canonical sums");
    must(fv_backend_open(&be, "cpu", &(fv_backend_options){.isa = "plain", .n_threads = 1}));
    check(fv_backend_tier(&be) == FV_TIER_EXACT, "tier");
    fv_backend_close(&be);
    return summary();
}
