/* Reads the options that name a checkpoint and the Hugging Face cache. */
#include "serving/worker/checkpoint.h"

#include "gguf/files.h"

fv_hub_places fv_checkpoint_places(const fv_options *o) {
    return (fv_hub_places){.hub_cache = fv_options_string(o, "hf-hub-cache"),
                           .hf_home = fv_options_string(o, "hf-home"),
                           .cache_home = fv_options_string(o, "xdg-cache-home"),
                           .home = fv_options_string(o, "home")};
}

fv_status fv_checkpoint_find(const fv_options *o, char path[FV_HUB_PATH_MAX]) {
    const char *model = fv_options_string(o, "checkpoint");
    const fv_hub_places places = fv_checkpoint_places(o);
    if (!model)
        return FV_FAIL(
            FV_EINVAL,
            "--checkpoint MODEL is needed: a Hugging Face checkpoint directory, or ORG/NAME "
            "after `hf download ORG/NAME` (`fovea synth` makes one to try with)");
    return fv_hub_find(&places, model, path);
}

fv_status fv_checkpoint_find_pair(const fv_options *o, char path[FV_HUB_PATH_MAX]) {
    const char *mmproj = fv_options_string(o, "mmproj");
    char found[FV_HUB_PATH_MAX];
    if (!mmproj) return fv_checkpoint_find(o, path);
    FV_TRY(fv_checkpoint_find(o, found));
    return fv_gguf_name_pair(found, mmproj, path);
}
