#ifndef FOVEA_KERNELS_CPU_CPU_H
#define FOVEA_KERNELS_CPU_CPU_H

/* The CPU backend. Its table is complete and is the specification of every operation. */
#include "kernels/ops.h"

extern const fv_backend_ops fv_backend_cpu;

#endif
