/* A plugin that does not fit the program: another interface (ODD_ABI), other headers
 * (ODD_CONTRACT), or none of a plugin's symbols. */
#include "kernels/plugin.h"

#if defined(ODD_ABI)
const fv_plugin fv_plugin_v1 = {.abi = FV_PLUGIN_ABI + 1, .contract = FV_PLUGIN_CONTRACT};
#elif defined(ODD_CONTRACT)
const fv_plugin fv_plugin_v1 = {.abi = FV_PLUGIN_ABI, .contract = "of another build"};
#else
extern const int fv_no_plugin;
const int fv_no_plugin = 1;
#endif
