#ifndef FOVEA_TESTS_OPS_RUN_AMX_EMULATED_H
#define FOVEA_TESTS_OPS_RUN_AMX_EMULATED_H

/* AMX on a CPU that lacks it: each of its instructions raises SIGILL there, and the handler does
 * what the manual says that it does. For tests: an instruction takes microseconds. */
#include <stdbool.h>

/* Installs the handler, before threads start; for a CPU without AMX. False where the CPU lacks what else
 * the AMX path needs, or the handler cannot be installed. What AMX would refuse (a tile that is not open,
 * shapes that do not fit) ends the program with a line on stderr. */
bool amx_emulate(void);

#endif
