/* Finds the preset that a policy equals. Immutable data once made, any thread. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

enum { PRESETS_MAX = 64 };

static char *printed[PRESETS_MAX]; /* each preset as fv_policy_print prints it; never freed */

static void print_presets(void) {
    int32_t n;
    const fv_preset_info *presets = fv_policy_presets(&n);
    for (int32_t i = 0; i < n && i < PRESETS_MAX; i++) {
        fv_policy p;
        char text[FV_POLICY_TEXT_MAX];
        if (fv_policy_parse(presets[i].text, &p) != FV_OK) continue;
        fv_policy_print(&p, text);
        printed[i] = strdup(text);
    }
}

int32_t fv_policy_preset_of(const char *text) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int32_t n;
    pthread_once(&once, print_presets);
    (void)fv_policy_presets(&n);
    for (int32_t i = 0; i < n && i < PRESETS_MAX; i++)
        if (printed[i] && strcmp(printed[i], text) == 0) return i;
    return n;
}

const char *fv_policy_name_of(const char *text) {
    int32_t n, i = fv_policy_preset_of(text);
    const fv_preset_info *presets = fv_policy_presets(&n);
    return i < n ? presets[i].name : text;
}
