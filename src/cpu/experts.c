/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts and their order-free sum (numerics.md section 1, qwen4exp.md 2.7).
 *
 * Jobs are cut into batches of as many (job, row) pairs, "entries", as the scratch holds. A batch
 * is four steps, each on all threads: round the rows of x; gate and up products; silu(gate) * up,
 * rounded; down products, added to the sums. Rows that are rounded are then packed where a job has
 * enough of them for tiles; such a job starts at a multiple of CPU_TILE_ROWS. In the last step a
 * thread owns columns of the sums, so no element is ever touched by two. */
#include <string.h>

#include "base/mem.h"
#include "cpu/state.h"

/* Weight rows of one item of the gate and up products. */
#define PRODUCT_ROWS_MOST 64

/* A slot that was left out. */
#define NO_ROW (-1)

enum form { FORM_FLOAT = 1, FORM_32 = 2, FORM_256 = 4 };

struct batch {
    struct cpu_backend *c;
    const float *x;
    int64_t *sum;
    int embd, width;
    bool exact;
    int n_tasks, n_slots, n_entries;
    bool has_tiles; /* a task has rows enough */
    int piece;      /* weight rows or columns of one item */
    int gate_lap, up_lap, down_lap; /* rows of the profile */
    unsigned in_forms, mid_forms;
    struct cpu_acts in, mid;
    _Atomic int bad_slot, bad_task, range_task; /* INT_MAX: none */
};

static void lap(const struct batch *b, int worker, int row)
{
    if (b->c->base.laps)
        laps_switch(b->c->base.laps, worker, row);
}

/* The batch is about to read all weights of its jobs once. */
static void lap_bytes(const struct batch *b)
{
    struct laps *l = b->c->base.laps;
    const struct expert_task *t = b->c->scratch.tasks;
    for (int k = 0; l && k < b->n_tasks; k++) {
        const struct tensor *w[] = {&t[k].job->gate, &t[k].job->up, &t[k].job->down};
        const int rows[] = {b->gate_lap, b->up_lap, b->down_lap};
        for (int i = 0; i < 3; i++)
            laps_add_bytes(l, rows[i], tensor_row_bytes(w[i]->type, (uint64_t)w[i]->n_in) *
                                           (uint64_t)w[i]->n_out);
    }
}

static enum form form_of(const struct batch *b, const struct tensor *w)
{
    int block = b->exact ? 0 : cpu_act_block(w->type);
    return block == 32 ? FORM_32 : block == 256 ? FORM_256 : FORM_FLOAT;
}

static struct cpu_weight weight_of(const struct tensor *w)
{
    return (struct cpu_weight){w->data, w->type, w->n_in, w->n_out};
}

/* Adds rows `from` on of a job, as many as fit, to the batch. Returns how many. */
static int add_task(struct batch *b, const struct expert_job *job, int from)
{
    struct cpu_scratch *s = &b->c->scratch;
    int left = job->n - from, slot = b->n_slots, entry = b->n_entries;
    if (left >= CPU_TILE_ROWS_LEAST) {
        slot = (int)mem_round_up((size_t)slot, CPU_TILE_ROWS);
        entry = (int)mem_round_up((size_t)entry, CPU_TILE_ROWS);
    }
    int room = s->entries - entry, n = left < room ? left : room;
    if (n <= 0)
        return 0;
    /* A decoded token gives every expert the same row: it is rounded once. */
    if (n == 1 && b->n_slots && s->slot_rows[b->n_slots - 1] == job->rows[from])
        slot = b->n_slots - 1;
    for (int i = b->n_slots; i < slot; i++)
        s->slot_rows[i] = NO_ROW;
    for (int i = 0; i < n; i++)
        s->slot_rows[slot + i] = job->rows[from + i];
    s->tasks[b->n_tasks++] = (struct expert_task){job, from, n, slot, entry};
    b->n_slots = slot + n;
    b->n_entries = entry + n;
    b->has_tiles |= n >= CPU_TILE_ROWS_LEAST;
    b->in_forms |= form_of(b, &job->gate) | form_of(b, &job->up);
    b->mid_forms |= form_of(b, &job->down);
    return n;
}

static void round_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    struct cpu_scratch *s = &b->c->scratch;
    size_t embd = (size_t)b->embd;
    for (size_t i = first; i < end; i++) {
        if (s->slot_rows[i] == NO_ROW)
            continue;
        const float *x = b->x + (size_t)s->slot_rows[i] * embd;
        bool ok = true;
        if (b->in_forms & FORM_FLOAT)
            memcpy(s->rows + i * embd, x, embd * sizeof(float));
        if (b->in_forms & FORM_32)
            ok &= cpu_act_round(&b->c->linear, x, &b->in.block32, (int)i);
        if (b->in_forms & FORM_256)
            ok &= cpu_act_round(&b->c->linear, x, &b->in.block256, (int)i);
        if (!ok)
            cpu_first_bad(&b->bad_slot, (int)i);
    }
}

static void pack_forms(struct batch *b, unsigned forms, const struct cpu_acts *x, int t0, int rows)
{
    if (forms & FORM_32)
        cpu_act_pack(&b->c->linear, &x->block32, t0, rows);
    if (forms & FORM_256)
        cpu_act_pack(&b->c->linear, &x->block256, t0, rows);
}

/* Items: tasks. */
static void pack_in_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    const struct expert_task *tasks = b->c->scratch.tasks;
    for (size_t i = first; i < end; i++) {
        if (tasks[i].n >= CPU_TILE_ROWS_LEAST)
            pack_forms(b, b->in_forms, &b->in, tasks[i].slot, tasks[i].n);
    }
}

static void pack_mid_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    const struct expert_task *tasks = b->c->scratch.tasks;
    for (size_t i = first; i < end; i++) {
        if (tasks[i].n >= CPU_TILE_ROWS_LEAST)
            pack_forms(b, form_of(b, &tasks[i].job->down), &b->mid, tasks[i].entry, tasks[i].n);
    }
}

static int pieces(int n, int piece)
{
    return (n + piece - 1) / piece;
}

/* Items: task, then piece of the weight rows of gate and up. */
static void product_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    struct cpu_scratch *s = &b->c->scratch;
    size_t width = (size_t)b->width, a_task = (size_t)pieces(b->width, b->piece);
    for (size_t i = first; i < end; i++) {
        const struct expert_task *t = &s->tasks[i / a_task];
        int r0 = (int)(i % a_task) * b->piece;
        int r1 = r0 + b->piece < b->width ? r0 + b->piece : b->width;
        size_t at = (size_t)t->entry * width + (size_t)r0;
        struct cpu_weight gate = weight_of(&t->job->gate), up = weight_of(&t->job->up);
        lap(b, worker, b->gate_lap);
        cpu_rows(&b->c->linear, worker, &gate, r0, r1, &b->in, t->slot, t->n, s->gate + at, width);
        lap(b, worker, b->up_lap);
        cpu_rows(&b->c->linear, worker, &up, r0, r1, &b->in, t->slot, t->n, s->up + at, width);
    }
}

static void middle_row(struct batch *b, int task, int entry)
{
    struct cpu_scratch *s = &b->c->scratch;
    const struct cpu_ops *ops = &b->c->ops;
    const struct expert_job *job = s->tasks[task].job;
    float *gate = s->gate + (size_t)entry * (size_t)b->width;
    float *up = s->up + (size_t)entry * (size_t)b->width;
    if (job->gate.scale != 1)
        ops->scale(gate, gate, job->gate.scale, b->width);
    if (job->up.scale != 1)
        ops->scale(up, up, job->up.scale, b->width);
    ops->mul_silu(gate, up, gate, b->width);
    enum form form = form_of(b, &job->down);
    bool ok = true;
    if (form == FORM_32)
        ok = cpu_act_round(&b->c->linear, gate, &b->mid.block32, entry);
    else if (form == FORM_256)
        ok = cpu_act_round(&b->c->linear, gate, &b->mid.block256, entry);
    if (!ok)
        cpu_first_bad(&b->bad_task, task);
}

/* Items: entries. */
static void middle_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    const struct expert_task *tasks = b->c->scratch.tasks;
    int task = 0;
    for (int i = (int)first; i < (int)end; i++) {
        while (i >= tasks[task].entry + tasks[task].n)
            task++;
        if (i >= tasks[task].entry)
            middle_row(b, task, i);
    }
}

/* Items: columns of the sums. */
static void down_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    const struct cpu_ops *ops = &b->c->ops;
    float *tile = cpu_worker_area(b->c, worker);
    for (size_t i = first; i < end; i++) {
        int c0 = (int)i * b->piece, c1 = c0 + b->piece < b->embd ? c0 + b->piece : b->embd;
        int n = c1 - c0;
        for (int k = 0; k < b->n_tasks; k++) {
            const struct expert_task *t = &b->c->scratch.tasks[k];
            const struct expert_job *job = t->job;
            struct cpu_weight down = weight_of(&job->down);
            cpu_rows(&b->c->linear, worker, &down, c0, c1, &b->mid, t->entry, t->n, tile,
                     (size_t)n);
            for (int r = 0; r < t->n; r++) {
                float *y = tile + (size_t)r * (size_t)n;
                size_t row = (size_t)job->rows[t->from + r];
                if (job->down.scale != 1)
                    ops->scale(y, y, job->down.scale, n);
                if (!ops->routed_add(b->sum + row * (size_t)b->embd + (size_t)c0, y,
                                     job->weights[t->from + r], n))
                    cpu_first_bad(&b->range_task, k);
            }
        }
    }
}

/* A piece that gives every thread several items, in steps of 16, between 16 and `most`. */
static int piece_of(const struct cpu_backend *c, double all, int most)
{
    double piece = all / (8.0 * c->threads);
    return piece >= most ? most : ((int)piece / 16 + 1) * 16;
}

static void place_forms(struct batch *b)
{
    struct cpu_scratch *s = &b->c->scratch;
    b->in = (struct cpu_acts){.x = s->rows, .x_stride = (size_t)b->embd, .exact = b->exact};
    cpu_act_place(&b->in.block32, s->acts32, s->entries, b->embd, 32);
    cpu_act_place(&b->in.block256, s->acts256, s->entries, b->embd, 256);
    b->mid = (struct cpu_acts){.x = s->gate, .x_stride = (size_t)b->width, .exact = b->exact};
    cpu_act_place(&b->mid.block32, s->mid32, s->entries, b->width, 32);
    cpu_act_place(&b->mid.block256, s->mid256, s->entries, b->width, 256);
}

static void report(struct batch *b)
{
    const struct expert_task *tasks = b->c->scratch.tasks;
    if (b->bad_slot != INT_MAX) {
        int k = 0;
        while (b->bad_slot >= tasks[k].slot + tasks[k].n)
            k++;
        cpu_problem(b->c, "activations for expert %d are not finite", tasks[k].job->expert);
    } else if (b->bad_task != INT_MAX) {
        cpu_problem(b->c, "activations inside expert %d are not finite",
                    tasks[b->bad_task].job->expert);
    } else if (b->range_task != INT_MAX) {
        cpu_problem(b->c, "an output of expert %d is not a number below 2^19 in size",
                    tasks[b->range_task].job->expert);
    }
}

static void run_batch(struct batch *b)
{
    struct cpu_backend *c = b->c;
    double products = (double)b->n_entries * b->embd * b->width;
    place_forms(b);
    lap_bytes(b);
    lap(b, 0, LAP_ROUND);
    cpu_split(c, (size_t)b->n_slots, (double)b->n_slots * b->embd * 8, round_part, b);
    b->in.packed = b->mid.packed = b->has_tiles;
    if (b->has_tiles)
        cpu_split(c, (size_t)b->n_tasks, (double)b->n_slots * b->embd, pack_in_part, b);
    b->piece = piece_of(c, (double)b->width * b->n_tasks, PRODUCT_ROWS_MOST);
    lap(b, 0, b->gate_lap);
    cpu_split(c, (size_t)b->n_tasks * (size_t)pieces(b->width, b->piece), products * 2,
              product_part, b);
    lap(b, 0, LAP_SWIGLU);
    cpu_split(c, (size_t)b->n_entries, (double)b->n_entries * b->width * 16, middle_part, b);
    if (b->has_tiles)
        cpu_split(c, (size_t)b->n_tasks, (double)b->n_entries * b->width, pack_mid_part, b);
    b->piece = piece_of(c, b->embd, EXPERT_COLUMNS);
    lap(b, 0, b->down_lap);
    cpu_split(c, (size_t)pieces(b->embd, b->piece), products, down_part, b);
    report(b);
    b->n_tasks = b->n_slots = b->n_entries = 0;
    b->in_forms = b->mid_forms = 0;
    b->has_tiles = false;
    b->bad_slot = b->bad_task = b->range_task = INT_MAX;
}

void cpu_experts(struct backend *base, const float *x, int n_embd, const struct expert_job *jobs,
                 int n_jobs, int64_t *sum)
{
    struct cpu_backend *c = cpu_of(base);
    if (n_jobs <= 0)
        return;
    if (n_embd > c->limits.embd || jobs[0].gate.n_out > c->limits.expert_width) {
        cpu_problem(c, "experts of %d x %d values, more than the %d x %d reserved", n_embd,
                    jobs[0].gate.n_out, c->limits.embd, c->limits.expert_width);
        return;
    }
    struct batch b = {.c = c,
                      .x = x,
                      .sum = sum,
                      .embd = n_embd,
                      .width = jobs[0].gate.n_out,
                      .exact = base->exact_activations,
                      .bad_slot = INT_MAX,
                      .bad_task = INT_MAX,
                      .range_task = INT_MAX};
    if (base->laps) {
        b.gate_lap = cpu_lap_of(base, &jobs[0].gate);
        b.up_lap = cpu_lap_of(base, &jobs[0].up);
        b.down_lap = cpu_lap_of(base, &jobs[0].down);
    }
    for (int i = 0; i < n_jobs; i++) {
        for (int from = 0; from < jobs[i].n;) {
            int n = add_task(&b, &jobs[i], from);
            if (n == 0)
                run_batch(&b); /* full */
            from += n;
        }
    }
    if (b.n_tasks)
        run_batch(&b);
}

struct routed_job {
    const struct cpu_ops *ops;
    int64_t *sum;
    size_t count;
    float *out;
};

#define ROUTED_BLOCK 1024

static void routed_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct routed_job *j = ctx;
    for (size_t i = first; i < end; i++) {
        size_t at = i * ROUTED_BLOCK, left = j->count - at;
        j->ops->routed_out(j->sum + at, (int)(left < ROUTED_BLOCK ? left : ROUTED_BLOCK),
                           j->out + at);
    }
}

void cpu_routed(struct backend *b, int64_t *sum, size_t count, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    struct routed_job j = {&c->ops, sum, count, out};
    backend_lap_bytes(b, LAP_ROUTED, count * (sizeof *sum + sizeof *out));
    cpu_split(c, (count + ROUTED_BLOCK - 1) / ROUTED_BLOCK, (double)count * 4, routed_part, &j);
}
