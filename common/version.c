/* The only file to recompile for a new version. */
#include "common/version.h"

const char *fv_version(void) { return FOVEA_VERSION; }
