/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/isa.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const names[CPU_ISAS] = {
    [CPU_ISA_C] = "c",
    [CPU_ISA_AVX2] = "avx2",
    [CPU_ISA_AVX512_PLAIN] = "avx512-plain",
    [CPU_ISA_AVX512] = "avx512",
    [CPU_ISA_AMX] = "amx",
    [CPU_ISA_NEON_PLAIN] = "neon-plain",
    [CPU_ISA_NEON] = "neon",
};

const char *cpu_isa_name(enum cpu_isa isa)
{
    return names[isa];
}

#if defined(__x86_64__)
/* Asked of the processor itself: clang 14 does not know the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* A machine with AVX-512 has AVX2, which its table is built on. */
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_vbmi(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vbmi");
}

/* Linux keeps the state of tiles for processes that asked for it, all their threads. */
static bool may_use_tiles(void)
{
    enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    return !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
}

/* Asked of the processor itself, and of XCR0 whether the system saves both parts of the state. */
static bool has_amx(void)
{
    const unsigned tile = 1u << 24, int8 = 1u << 25, osxsave = 1u << 27, state = 3u << 17;
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & osxsave) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (tile | int8)) != (tile | int8))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & state) == state && may_use_tiles();
}

bool cpu_isa_available(enum cpu_isa isa)
{
    switch (isa) {
    case CPU_ISA_C:
        return true;
    case CPU_ISA_AVX2:
        return has_avx2();
    case CPU_ISA_AVX512_PLAIN:
        return has_avx512();
    case CPU_ISA_AVX512:
        return has_avx512() && __builtin_cpu_supports("avx512vnni");
    case CPU_ISA_AMX:
        return cpu_isa_available(CPU_ISA_AVX512) && has_vbmi() && has_amx();
    default:
        return false;
    }
}

/* AMD's: on Zen 5 codebook kernels are up to 2.7 times as fast without gathers (docs/benchmarks.md). */
static bool has_slow_gather(void)
{
    return __builtin_cpu_is("amd");
}

struct cpu_traits cpu_traits_here(void)
{
    return (struct cpu_traits){.has_vbmi = has_vbmi(), .slow_gather = has_slow_gather()};
}
#else
bool cpu_isa_available(enum cpu_isa isa)
{
#if defined(__aarch64__)
    const unsigned long dot_product = 1ul << 20; /* HWCAP_ASIMDDP */
    if (isa == CPU_ISA_NEON)
        return getauxval(AT_HWCAP) & dot_product;
    if (isa == CPU_ISA_NEON_PLAIN)
        return true;
#endif
    return isa == CPU_ISA_C;
}

struct cpu_traits cpu_traits_here(void)
{
    return (struct cpu_traits){0};
}
#endif

enum cpu_isa cpu_isa_best(void)
{
    enum cpu_isa best = CPU_ISA_C;
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        if (cpu_isa_available(isa))
            best = isa;
    }
    return best;
}

static bool refuse_missing(const char *name, struct err *e)
{
    char list[128] = "";
    size_t used = 0;
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        if (cpu_isa_available(isa))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     names[isa]);
    }
    return err_set(e, ERR_UNSUPPORTED, "isa: this machine does not have %s (it has %s)", name,
                   list);
}

bool cpu_isa_parse(const char *name, enum cpu_isa *out, struct err *e)
{
    if (!strcmp(name, "auto")) {
        *out = cpu_isa_best();
        return true;
    }
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        if (strcmp(name, names[isa]))
            continue;
        if (isa == CPU_ISA_AVX512 && !cpu_isa_available(isa))
            isa = CPU_ISA_AVX512_PLAIN; /* "avx512" includes VNNI only where there is VNNI */
        if (isa == CPU_ISA_NEON && !cpu_isa_available(isa))
            isa = CPU_ISA_NEON_PLAIN;
        if (!cpu_isa_available(isa))
            return refuse_missing(name, e);
        *out = isa;
        return true;
    }
    char shown[64];
    return err_set(e, ERR_USAGE,
                   "isa: \"%s\" is not one of auto, c, avx2, avx512, avx512-plain, amx, neon, neon-plain",
                   err_escape(shown, sizeof shown, name, strlen(name)));
}
