/* SPDX-License-Identifier: Apache-2.0 */
/* The index of sparse attention: keys of blocks and the choice of blocks (qwen4exp.md 2.6). */
#include <math.h>
#include <string.h>

#include "cpu/rotary.h"
#include "cpu/state.h"

/* Blocks that are scored together. */
#define SCORE_BLOCKS 64

struct pool_job {
    const struct cpu_ops *ops;
    const void *raw;
    enum kv_type type;
    const float *w;
    const struct rope *rope;
    int first, ratio, d;
    float eps;
    float *pooled;
};

/* One raw key is added, converted if need be, to sum. The first replaces what was there. */
static void add_raw_key(const struct pool_job *j, size_t position, bool is_first, float *sum)
{
    size_t at = position * (size_t)j->d;
    float piece[64];
    for (int c = 0; c < j->d; c += 64) {
        int n = j->d - c < 64 ? j->d - c : 64;
        const float *key = (const float *)j->raw + at + c;
        if (j->type == KV_F16) {
            j->ops->from_f16((const uint16_t *)j->raw + at + c, n, piece);
            key = piece;
        }
        if (is_first)
            memcpy(sum + c, key, (size_t)n * sizeof(float));
        else
            j->ops->add(sum + c, key, n);
    }
}

static void pool_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct pool_job *j = ctx;
    struct rotary turn;
    for (size_t i = first; i < end; i++) {
        size_t block = (size_t)j->first + i, start = block * (size_t)j->ratio;
        float *out = j->pooled + block * (size_t)j->d;
        for (size_t t = 0; t < (size_t)j->ratio; t++)
            add_raw_key(j, start + t, t == 0, out);
        j->ops->divide(out, (float)j->ratio, 1, j->d);
        j->ops->norm(out, j->w, j->d, j->eps, out);
        rotary_at(&turn, j->rope, (int)start);
        j->ops->rope(out, turn.cosine, turn.sine, j->rope->n_rot / 2);
    }
}

void cpu_index_pool(struct backend *b, const void *raw, enum kv_type type, const float *w,
                    const struct rope *rope, int first, int count, int ratio, int d, float eps,
                    float *pooled)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_INDEX);
    if (count <= 0 || !rotary_fits(c, rope))
        return;
    struct pool_job j = {&c->ops, raw, type, w, rope, first, ratio, d, eps, pooled};
    cpu_split(c, (size_t)count, (double)count * d * (ratio + 8), pool_part, &j);
}

struct choose_job {
    struct cpu_backend *c;
    const float *q, *pooled;
    int heads, d, pos;
    struct block_choice *choice;
    float *scores; /* where the caller wants them, or NULL */
    int n_blocks;
    int row; /* of score_part */
};

/* Scores of blocks first..end-1 for row t into out[first..]. */
static void score_blocks(const struct choose_job *j, size_t t, size_t first, size_t end, float *out)
{
    const struct cpu_ops *ops = &j->c->ops;
    size_t d = (size_t)j->d;
    const float *q = j->q + t * (size_t)j->heads * d;
    for (size_t at = first; at < end; at += SCORE_BLOCKS) {
        int n = (int)(end - at < SCORE_BLOCKS ? end - at : SCORE_BLOCKS);
        float dots[CPU_OPS_HEADS * SCORE_BLOCKS];
        memset(out + at, 0, (size_t)n * sizeof(float));
        for (int h = 0; h < j->heads; h += CPU_OPS_HEADS) {
            int together = j->heads - h < CPU_OPS_HEADS ? j->heads - h : CPU_OPS_HEADS;
            ops->dot_rows[KV_F32](q + (size_t)h * d, d, together, j->pooled + at * d, d, NULL, n,
                                  j->d, dots, SCORE_BLOCKS);
            for (int i = 0; i < together; i++)
                ops->add_positive(out + at, dots + i * SCORE_BLOCKS, n);
        }
        ops->divide(out + at, sqrtf((float)j->d), 1, n);
    }
}

/* Scores are not negative, so their order is that of their bits. */
static uint32_t score_bits(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits;
}

/* The bits of the k-th largest of n scores, 1 <= k <= n; *above: how many are larger. One digit of
 * 11, 11 and 10 bits after the other is found by counting. */
static uint32_t kth_largest(const float *scores, int n, int k, int *above)
{
    static const int shifts[] = {21, 10, 0};
    static const uint32_t sizes[] = {2048, 2048, 1024};
    uint32_t found = 0, mask = 0;
    *above = 0;
    for (int step = 0; step < 3; step++) {
        int count[2048] = {0};
        uint32_t last = sizes[step] - 1;
        for (int i = 0; i < n; i++) {
            uint32_t bits = score_bits(scores[i]);
            if ((bits & mask) == found)
                count[bits >> shifts[step] & last]++;
        }
        uint32_t digit = last;
        for (; *above + count[digit] < k; digit--)
            *above += count[digit];
        found |= digit << shifts[step];
        mask |= last << shifts[step];
    }
    return found;
}

/* The k best of n blocks in ascending order; equal scores: the lower block. */
static int select_blocks(const float *scores, int n, int k, int32_t *out)
{
    int chosen = 0;
    if (n <= k) {
        for (; chosen < n; chosen++)
            out[chosen] = chosen;
        return n;
    }
    if (k <= 0)
        return 0;
    int above;
    uint32_t least = kth_largest(scores, n, k, &above);
    int equal = k - above;
    for (int i = 0; i < n && chosen < k; i++) {
        uint32_t bits = score_bits(scores[i]);
        if (bits > least || (bits == least && equal-- > 0))
            out[chosen++] = i;
    }
    return chosen;
}

static int complete_blocks(const struct choose_job *j, size_t t)
{
    return (j->pos + (int)t + 1) / j->choice->ratio;
}

static void choose_from(const struct choose_job *j, size_t t, const float *scores)
{
    struct block_choice *choice = j->choice;
    int complete = complete_blocks(j, t);
    choice->counts[t] = select_blocks(scores, complete, choice->stride,
                                      choice->blocks + t * (size_t)choice->stride);
    if (!j->scores)
        return;
    float *out = j->scores + t * (size_t)j->n_blocks;
    for (int i = 0; i < j->n_blocks; i++)
        out[i] = i < complete ? scores[i] : NAN;
}

static float *score_row(const struct choose_job *j, int worker)
{
    return j->c->scratch.index_scores + (size_t)worker * (size_t)j->c->limits.blocks;
}

static void choose_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct choose_job *j = ctx;
    for (size_t t = first; t < end; t++) {
        size_t complete = (size_t)complete_blocks(j, t);
        /* Where all blocks are taken their scores decide nothing. */
        if (complete > (size_t)j->choice->stride || j->scores)
            score_blocks(j, t, 0, complete, score_row(j, worker));
        choose_from(j, t, score_row(j, worker));
    }
}

/* Items are groups of blocks of one row. */
static void score_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct choose_job *j = ctx;
    size_t complete = (size_t)complete_blocks(j, (size_t)j->row);
    size_t to = end * SCORE_BLOCKS < complete ? end * SCORE_BLOCKS : complete;
    score_blocks(j, (size_t)j->row, first * SCORE_BLOCKS, to, score_row(j, 0));
}

void cpu_index_choose(struct backend *b, const float *q, const float *pooled, int rows, int heads,
                      int d, int pos, struct block_choice *choice, float *scores, int n_blocks)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_INDEX);
    struct choose_job j = {c, q, pooled, heads, d, pos, choice, scores, n_blocks, 0};
    int most = complete_blocks(&j, (size_t)rows - 1);
    if (most > c->limits.blocks) {
        cpu_problem(c, "an index of %d blocks, more than the %d reserved", most, c->limits.blocks);
        return;
    }
    double work = most > choice->stride || scores ? (double)most * (heads * d + 8) : 0;
    if (rows >= c->threads || work == 0) {
        cpu_split(c, (size_t)rows, work * rows, choose_part, &j);
        return;
    }
    for (j.row = 0; j.row < rows; j.row++) { /* few rows: each is split over its blocks */
        int complete = complete_blocks(&j, (size_t)j.row);
        cpu_split(c, ((size_t)complete + SCORE_BLOCKS - 1) / SCORE_BLOCKS, work, score_part, &j);
        choose_from(&j, (size_t)j.row, score_row(&j, 0));
    }
}
