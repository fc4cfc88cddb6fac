#ifndef FOVEA_TESTS_OPS_RUN_AMX_EMULATED_H
#define FOVEA_TESTS_OPS_RUN_AMX_EMULATED_H

/* AMX on a CPU that lacks it: each AMX instruction raises SIGILL, and the handler carries it out.
 * For tests: an instruction takes microseconds. */
#include <stdbool.h>

/* Installs the handler on a CPU without AMX; call it before threads start. False where the CPU
 * lacks anything else that the AMX path needs, or the handler cannot be installed. Invalid
 * instructions (a tile that is not open, shapes that do not fit) end the program with a line on
 * stderr. */
bool amx_emulate(void);

#endif
