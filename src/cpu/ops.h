/* SPDX-License-Identifier: Apache-2.0 */
/* The element kernels under the operations of the CPU backend, as one table of function pointers.
 * It is filled with C first, which is the definition, then each instruction set replaces what it
 * has; every entry has the bits of the C entry (NaN counts as NaN). Kernels run on the calling
 * thread, allocate nothing and take any length and any alignment.
 *
 * "Chains" is the reduction of numerics.md section 1: element k goes to chain k mod 32, each chain
 * starts at 0 and is summed in order of k with fma, then i with i + 16, + 8, + 4, + 2, + 1. */
#ifndef STRATA_CPU_OPS_H
#define STRATA_CPU_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/isa.h"

#define CPU_CHAINS 32

/* Most query heads that one call of dot_rows, weigh_tile or sum_chains takes. */
#define CPU_OPS_HEADS 4

/* out[h * out_stride + i] = chains over d of q[h * q_stride ..] . row i of k, for h < n_q and
 * i < count. Row i starts at unit index[i] * k_stride (index NULL: i * k_stride), a unit being a
 * value or, of KV_Q8_0, a block. */
typedef void cpu_dot_rows_fn(const float *q, size_t q_stride, int n_q, const void *k,
                             size_t k_stride, const int32_t *index, int count, int d, float *out,
                             size_t out_stride);

/* Values of a head that are weighed together. */
#define CPU_VALUE_COLUMNS 64

/* out[i * CPU_VALUE_COLUMNS + c] = (row i of v)[c] for c < columns <= CPU_VALUE_COLUMNS, and 0 up
 * to the next multiple of 16. Rows as in dot_rows. */
typedef void cpu_gather_rows_fn(const void *v, size_t v_stride, const int32_t *index, int count,
                                int columns, float *out);

struct cpu_ops {
    /* Plain values (ops_vector.c). One operation, one rounding, in the order written. */
    void (*add)(float *x, const float *y, int n);                 /* x += y */
    void (*add_scaled)(float *x, const float *y, float s, int n); /* x += s * y, product rounded */
    void (*add_positive)(float *x, const float *y, int n);        /* x += y > 0 ? y : 0 */
    void (*scale)(float *out, const float *x, float s, int n);    /* out = x * s; out may be x */
    void (*divide)(float *x, float a, float b, int n);            /* x = x / a / b */
    void (*silu_divided)(float *x, float divisor, int n);         /* x = silu(x / divisor) */
    /* out = x * sigmoid(z), x * silu(z); out may be x or z. */
    void (*mul_sigmoid)(float *out, const float *x, const float *z, int n);
    void (*mul_silu)(float *out, const float *x, const float *z, int n);
    /* Half floats. to_f16 rounds half to even; false when a result is inf or NaN. */
    bool (*to_f16)(const float *x, int n, uint16_t *out);
    void (*from_f16)(const uint16_t *x, int n, float *out);

    /* Reductions (ops_reduce.c). */
    float (*dot)(const float *a, const float *b, int n);
    /* out = x / sqrt(chains(x^2) / n + eps) * w; out may be x. */
    void (*norm)(const float *x, const float *w, int n, float eps, float *out);
    /* x = x / divisor, then x = exp(x - max x); returns the chains' sum of the new x, which is not
     * finite exactly when an x was NaN or +inf or all were -inf. n >= 1. */
    float (*softmax)(float *x, int n, float divisor);
    cpu_dot_rows_fn *dot_rows[3]; /* by enum kv_type */
    cpu_gather_rows_fn *gather_rows[3];
    /* The weighted sum of values, a tile of rows after the other; all tiles but the last have a
     * multiple of 32 rows. part [CPU_CHAINS][CPU_OPS_HEADS][CPU_VALUE_COLUMNS] are the chains of
     * n_q heads, starting at 0 for the first tile: chain i mod 32 of head h takes
     * fma(w[h * w_stride + i], v[i * CPU_VALUE_COLUMNS + c]), c < columns rounded up to 16. */
    void (*weigh_tile)(const float *w, size_t w_stride, int n_q, const float *v, int count,
                       int columns, bool first, float *part);
    /* out[h * out_stride + c] = tree over the chains of part, for c < columns. */
    void (*sum_chains)(const float *part, int n_q, int columns, float *out, size_t out_stride);

    /* Parts of layers (ops_net.c). */
    /* y[i] = (1/hc) * sum over s, in order, of sigmoid(gate[s * stride + i]) *
     * x[s * stride + i]. */
    void (*hc_mix)(const float *gate, const float *x, size_t stride, int hc, int n, float *y);
    /* out[j * stride + c] = kernel[c * taps + j]: the kernels of n channels as conv wants them. */
    void (*spread_taps)(const float *kernel, int taps, int n, float *out, size_t stride);
    /* out[c] = silu(sum over j of kernel[j * stride + c] * in[j][c]); the first a product, then
     * fma. */
    void (*conv)(const float *const *in, const float *kernel, size_t stride, int taps, int n,
                 float *out);
    /* One token of the delta rule for one head; state [d (value)][d (key)]. For each value row i:
     * S' = decay * S[i], e = beta * (v[i] - S' . k), S[i] = fma(k, e, S'), out[i] = S[i] . q. */
    void (*delta_step)(float *state, const float *q, const float *k, const float *v, float decay,
                       float beta, int d, float *out);
    /* Turns pairs (i, i + half): x[i] cos - x[i + half] sin and x[i + half] cos + x[i] sin. */
    void (*rope)(float *x, const float *cosine, const float *sine, int half);
    /* sum[i] += round half to even of (x[i] * weight) * 2^32. False, and the sums are worthless,
     * when a product is NaN or its size is 2^19 or more. */
    bool (*routed_add)(int64_t *sum, const float *x, float weight, int n);
    /* out[i] = (float)sum[i] * 2^-32, one rounding straight from the integer; sum[i] = 0. */
    void (*routed_out)(int64_t *sum, int n, float *out);
};

/* The table of one instruction set; the machine must have it. */
void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa);

/* The C entries, one function a file. */
void cpu_ops_set_vector_c(struct cpu_ops *ops);
void cpu_ops_set_reduce_c(struct cpu_ops *ops);
void cpu_ops_set_net_c(struct cpu_ops *ops);

/* Where chain j of head h starts in `part`. */
static inline size_t cpu_part_start(int j, int h)
{
    return ((size_t)j * CPU_OPS_HEADS + (size_t)h) * CPU_VALUE_COLUMNS;
}

/* The C dot over elements already summed into chains: the tree (for tails of SIMD kernels too). */
static inline float cpu_chain_tree(float chain[CPU_CHAINS])
{
    for (int half = CPU_CHAINS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            chain[i] += chain[i + half];
    return chain[0];
}

#endif
