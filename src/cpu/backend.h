/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: the definition of every operation. */
#ifndef STRATA_CPU_BACKEND_H
#define STRATA_CPU_BACKEND_H

#include "backend/backend.h"
#include "base/pool.h"
#include "cpu/isa.h"

/* `pool` must outlive the backend. Freed with b->free(b). */
struct backend *cpu_backend_create(struct pool *pool, enum cpu_isa isa, bool exact_activations,
                                   struct err *e);

#endif
