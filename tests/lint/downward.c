/* Compiled as if it stood in kernels/: a header of a layer below is there. */
#include "common/status.h"

fv_status lint_downward(void);
fv_status lint_downward(void) { return FV_OK; }
