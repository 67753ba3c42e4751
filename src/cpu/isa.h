/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction sets this machine has and which one the user chose. */
#ifndef STRATA_CPU_ISA_H
#define STRATA_CPU_ISA_H

#include <stdbool.h>

#include "base/err.h"

enum cpu_isa {
    CPU_ISA_C,
    CPU_ISA_AVX2,          /* with FMA and F16C */
    CPU_ISA_AVX512_PLAIN,  /* F, BW, VL, DQ */
    CPU_ISA_AVX512,        /* the same with VNNI (and VBMI where there is: cpu_traits) */
    CPU_ISA_AMX,           /* the same with VBMI and the tiles of AMX for bytes */
    CPU_ISA_NEON_PLAIN,    /* what every ARMv8 processor has */
    CPU_ISA_NEON,          /* with the dot product extension */
    CPU_ISAS,
};

const char *cpu_isa_name(enum cpu_isa isa); /* "c", "avx2", "avx512-plain", "avx512", "amx", "neon-plain", "neon" */
bool cpu_isa_available(enum cpu_isa isa);

/* What processors of one instruction set differ in. */
struct cpu_traits {
    bool has_vbmi;    /* beside VNNI */
    bool slow_gather; /* loading values one by one is faster than a gather */
};
struct cpu_traits cpu_traits_here(void);

enum cpu_isa cpu_isa_best(void);
/* From "auto" or a name; "avx512" on a machine without VNNI is CPU_ISA_AVX512_PLAIN, and
 * "neon" on one without the dot product CPU_ISA_NEON_PLAIN. An unknown name is ERR_USAGE; one that the machine lacks is ERR_UNSUPPORTED and lists those it has. */
bool cpu_isa_parse(const char *name, enum cpu_isa *out, struct err *e);

#endif
