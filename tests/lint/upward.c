/* Compiled as if it stood in kernels/: a header of a layer above is not there. */
#include "model/config.h"

fv_model_config lint_upward(void);
