/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts and their order-free sum (numerics.md section 1, qwen4exp.md 2.7).
 *
 * Jobs are cut into batches of as many (job, row) pairs, "entries", as the scratch holds. The rows
 * of x of a batch are rounded; all else is one step of all threads. Its first items are pieces of the
 * gate and up products with silu(gate) * up; who ends the last piece of a job rounds that job's rows.
 * Its last items are columns of the down products, which wait for all jobs and are added to the
 * sums: a thread owns the columns, so no element is ever touched by two.
 * Who rounds rows packs them where a job has enough of them for tiles; such a job starts at a multiple
 * of CPU_TILE_ROWS.
 * The shared expert is a batch of one job for all rows, whose results are no sums. */
#include <stdio.h>
#include <string.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "cpu/state.h"

/* Weight rows of one item of the gate and up products. */
#define PRODUCT_ROWS_MOST 64
/* Rows of a task, as decoding has them. */
#define FEW_ROWS 8

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
    int most_rows;   /* of a task */
    bool has_packed; /* a task has rows enough for tiles */
    int slots_each;  /* slots that are rounded together */
    int piece, columns;    /* weight rows of an item of the first kind, columns of one of the last */
    size_t first_items;    /* of the first kind */
    atomic_int tasks_done; /* whose rows are rounded */
    const struct tensor *shared_scale; /* of the shared expert, with its results; NULL: routed */
    float *shared_out;
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

/* The forms in which `rows` rows of a job are read packed, by the first products or by the last. */
static unsigned packed_in(const struct batch *b, const struct expert_job *job, int rows)
{
    const struct tensor *w[] = {&job->gate, &job->up, b->shared_scale};
    unsigned forms = 0;
    for (int i = 0; i < 3 && w[i]; i++) {
        struct cpu_weight weight = weight_of(w[i]);
        if (cpu_reads_packed(&b->c->linear, &weight, rows))
            forms |= form_of(b, w[i]);
    }
    return forms & (FORM_32 | FORM_256);
}

static unsigned packed_mid(const struct batch *b, const struct expert_job *job, int rows)
{
    struct cpu_weight down = weight_of(&job->down);
    unsigned form = cpu_reads_packed(&b->c->linear, &down, rows) ? form_of(b, &job->down) : 0;
    return form & (FORM_32 | FORM_256);
}

/* Adds rows `from` on of a job, as many as fit, to the batch. Returns how many. */
static int add_task(struct batch *b, const struct expert_job *job, int from)
{
    struct cpu_scratch *s = &b->c->scratch;
    int left = job->n - from, slot = b->n_slots, entry = b->n_entries;
    if (packed_in(b, job, left) || packed_mid(b, job, left)) {
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
    s->tasks[b->n_tasks++] = (struct expert_task){job, from, n, slot, entry, 0};
    b->n_slots = slot + n;
    b->n_entries = entry + n;
    b->most_rows = n > b->most_rows ? n : b->most_rows;
    for (int i = slot; packed_in(b, job, n) && i < slot + n; i += CPU_TILE_ROWS)
        s->tile_task[i / CPU_TILE_ROWS] = b->n_tasks; /* one more than its number */
    b->has_packed = b->has_packed || packed_in(b, job, n) || packed_mid(b, job, n);
    b->in_forms |= form_of(b, &job->gate) | form_of(b, &job->up);
    b->mid_forms |= form_of(b, &job->down);
    return n;
}

static bool round_slot(struct batch *b, size_t slot)
{
    struct cpu_scratch *s = &b->c->scratch;
    size_t embd = (size_t)b->embd;
    const float *x = b->x + (size_t)s->slot_rows[slot] * embd;
    bool ok = true;
    if (b->in_forms & FORM_FLOAT)
        memcpy(s->rows + slot * embd, x, embd * sizeof(float));
    if (b->in_forms & FORM_32)
        ok &= cpu_act_round(&b->c->linear, x, &b->in.block32, (int)slot);
    if (b->in_forms & FORM_256)
        ok &= cpu_act_round(&b->c->linear, x, &b->in.block256, (int)slot);
    return ok;
}

static void pack_forms(struct batch *b, unsigned forms, const struct cpu_acts *x, int t0, int rows)
{
    if (forms & FORM_32)
        cpu_act_pack(&b->c->linear, &x->block32, t0, rows);
    if (forms & FORM_256)
        cpu_act_pack(&b->c->linear, &x->block256, t0, rows);
}

/* The rows of a task that are in the tile of slots from t0 on. */
static void pack_tile(struct batch *b, const struct expert_task *t, int t0)
{
    int left = t->slot + t->n - t0;
    pack_forms(b, packed_in(b, t->job, t->n), &b->in, t0, left < CPU_TILE_ROWS ? left : CPU_TILE_ROWS);
}

/* Items: slots_each slots, which with tiles are one that is packed while its codes are in the cache. */
static void round_part(void *ctx, size_t first, size_t end, int worker)
{
    struct batch *b = ctx;
    struct cpu_scratch *s = &b->c->scratch;
    for (size_t i = first; i < end; i++) {
        size_t slot = i * (size_t)b->slots_each, until = slot + (size_t)b->slots_each;
        for (; slot < until && slot < (size_t)b->n_slots; slot++) {
            if (s->slot_rows[slot] != NO_ROW && !round_slot(b, slot))
                cpu_first_bad(&b->bad_slot, (int)slot);
        }
        if (b->has_packed && s->tile_task[i])
            pack_tile(b, &s->tasks[s->tile_task[i] - 1], (int)i * CPU_TILE_ROWS);
    }
}

static int pieces(int n, int piece)
{
    return (n + piece - 1) / piece;
}

/* silu(gate) * up of columns r0 .. r1 - 1 of a task's rows, into gate. */
static void gate_up(struct batch *b, const struct expert_task *t, int r0, int r1)
{
    struct cpu_scratch *s = &b->c->scratch;
    const struct cpu_ops *ops = &b->c->ops;
    for (int i = 0; i < t->n; i++) {
        size_t at = (size_t)(t->entry + i) * (size_t)b->width + (size_t)r0;
        float *gate = s->gate + at, *up = s->up + at;
        if (t->job->gate.scale != 1)
            ops->scale(gate, gate, t->job->gate.scale, r1 - r0);
        if (t->job->up.scale != 1)
            ops->scale(up, up, t->job->up.scale, r1 - r0);
        ops->mul_silu(gate, up, gate, r1 - r0);
    }
}

/* Rounds what the down product of a task takes, when all of it is there. */
static void round_middle(struct batch *b, int task)
{
    const struct expert_task *t = &b->c->scratch.tasks[task];
    enum form form = form_of(b, &t->job->down);
    bool ok = true;
    for (int i = 0; i < t->n && form != FORM_FLOAT; i++) {
        int entry = t->entry + i;
        ok &= cpu_act_round(&b->c->linear, b->c->scratch.gate + (size_t)entry * (size_t)b->width,
                            form == FORM_32 ? &b->mid.block32 : &b->mid.block256, entry);
    }
    if (!ok)
        cpu_first_bad(&b->bad_task, task);
    pack_forms(b, packed_mid(b, t->job, t->n), &b->mid, t->entry, t->n);
}

/* A piece of the weight rows of gate and up of one task. */
static void product_item(struct batch *b, size_t item, int worker)
{
    struct cpu_scratch *s = &b->c->scratch;
    int a_task = pieces(b->width, b->piece), task = (int)item / a_task;
    struct expert_task *t = &s->tasks[task];
    int r0 = (int)item % a_task * b->piece;
    int r1 = r0 + b->piece < b->width ? r0 + b->piece : b->width;
    size_t width = (size_t)b->width, at = (size_t)t->entry * width + (size_t)r0;
    struct cpu_weight gate = weight_of(&t->job->gate), up = weight_of(&t->job->up);
    lap(b, worker, b->gate_lap);
    cpu_rows(&b->c->linear, worker, &gate, r0, r1, &b->in, t->slot, t->n, s->gate + at, width);
    lap(b, worker, b->up_lap);
    cpu_rows(&b->c->linear, worker, &up, r0, r1, &b->in, t->slot, t->n, s->up + at, width);
    if (b->shared_scale && r0 == 0) {
        struct cpu_weight scale = weight_of(b->shared_scale);
        cpu_rows(&b->c->linear, worker, &scale, 0, 1, &b->in, t->slot, t->n,
                 s->shared_scale + t->entry, 1);
    }
    lap(b, worker, LAP_SWIGLU);
    gate_up(b, t, r0, r1);
    if (pool_count(&t->pieces_done) < a_task)
        return;
    lap(b, worker, LAP_ROUND);
    round_middle(b, task);
    pool_count(&b->tasks_done);
}

/* What becomes of columns c0 .. of the down product of row r of task k. */
static void take_down(struct batch *b, int k, int r, float *y, int c0, int n)
{
    const struct cpu_ops *ops = &b->c->ops;
    const struct expert_task *t = &b->c->scratch.tasks[k];
    const struct expert_job *job = t->job;
    size_t at = (size_t)job->rows[t->from + r] * (size_t)b->embd + (size_t)c0;
    if (job->down.scale != 1)
        ops->scale(y, y, job->down.scale, n);
    if (b->shared_scale) {
        float scale = b->c->scratch.shared_scale[t->entry + r];
        if (b->shared_scale->scale != 1)
            scale *= b->shared_scale->scale;
        ops->scale(b->shared_out + at, y, fmath_sigmoid(scale), n);
    } else if (!ops->routed_add(b->sum + at, y, job->weights[t->from + r], n)) {
        cpu_first_bad(&b->range_task, k);
    }
}

/* Columns of the results. */
static void down_item(struct batch *b, size_t item, int worker)
{
    float *tile = cpu_worker_area(b->c, worker);
    int c0 = (int)item * b->columns;
    int c1 = c0 + b->columns < b->embd ? c0 + b->columns : b->embd, n = c1 - c0;
    for (int k = 0; k < b->n_tasks; k++) {
        const struct expert_task *t = &b->c->scratch.tasks[k];
        struct cpu_weight down = weight_of(&t->job->down);
        cpu_rows(&b->c->linear, worker, &down, c0, c1, &b->mid, t->entry, t->n, tile, (size_t)n);
        for (int r = 0; r < t->n; r++)
            take_down(b, k, r, tile + (size_t)r * (size_t)n, c0, n);
    }
}

static void expert_part(void *ctx, int chunk, int worker)
{
    struct batch *b = ctx;
    size_t item = (size_t)chunk;
    if (item < b->first_items) {
        product_item(b, item, worker);
        return;
    }
    lap(b, worker, LAP_BARRIER);
    pool_wait(&b->tasks_done, b->n_tasks);
    lap(b, worker, b->down_lap);
    down_item(b, item - b->first_items, worker);
}

/* A piece that gives every thread several items, in steps of 16, between 16 and `most`. */
static int piece_of(const struct cpu_backend *c, double all, int most)
{
    double piece = all / (8.0 * c->threads);
    return piece >= most ? most : ((int)piece / 16 + 1) * 16;
}

/* Columns of the down products that a thread makes at once. With few rows they come from memory, and
 * a short stretch of each expert comes slowly: with 64 columns of 640 values (23 KB) at two thirds of
 * the speed of 640 columns. With many, what they give has to stay in the cache. */
static int columns_of(const struct batch *b)
{
    const struct cpu_backend *c = b->c;
    if (b->most_rows > FEW_ROWS)
        return piece_of(c, b->embd, EXPERT_COLUMNS);
    int room = c->scratch.entries * EXPERT_COLUMNS / b->most_rows / 16 * 16;
    int share = (int)mem_round_up((size_t)pieces(b->embd, 2 * c->threads), 16);
    return share < room ? share : room;
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

static const char *name_of(const struct expert_job *job, char name[32])
{
    if (job->expert < 0)
        return "the shared expert";
    snprintf(name, 32, "expert %d", job->expert);
    return name;
}

static void report(struct batch *b)
{
    char name[32];
    const struct expert_task *tasks = b->c->scratch.tasks;
    if (b->bad_slot != INT_MAX) {
        int k = 0;
        while (b->bad_slot >= tasks[k].slot + tasks[k].n)
            k++;
        cpu_problem(b->c, "activations for %s are not finite", name_of(tasks[k].job, name));
    } else if (b->bad_task != INT_MAX) {
        cpu_problem(b->c, "activations inside %s are not finite",
                    name_of(tasks[b->bad_task].job, name));
    } else if (b->range_task != INT_MAX) {
        cpu_problem(b->c, "an output of expert %d is not a number below 2^19 in size",
                    tasks[b->range_task].job->expert);
    }
}

static void run_batch(struct batch *b)
{
    struct cpu_backend *c = b->c;
    place_forms(b);
    lap_bytes(b);
    lap(b, 0, LAP_ROUND);
    b->slots_each = b->has_packed ? CPU_TILE_ROWS : 1;
    cpu_split(c, (size_t)pieces(b->n_slots, b->slots_each), (double)b->n_slots * b->embd * 8,
              round_part, b);
    b->in.packed = b->mid.packed = b->has_packed;
    b->piece = piece_of(c, (double)b->width * b->n_tasks, PRODUCT_ROWS_MOST);
    b->columns = columns_of(b);
    b->first_items = (size_t)b->n_tasks * (size_t)pieces(b->width, b->piece);
    b->tasks_done = 0;
    pool_run(c->pool, expert_part, b, (int)b->first_items + pieces(b->embd, b->columns));
    report(b);
    memset(c->scratch.tile_task, 0,
           (size_t)pieces(b->n_slots, CPU_TILE_ROWS) * sizeof *c->scratch.tile_task);
    b->n_tasks = b->n_slots = b->n_entries = 0;
    b->in_forms = b->mid_forms = 0;
    b->most_rows = 0;
    b->has_packed = false;
    b->bad_slot = b->bad_task = b->range_task = INT_MAX;
}

static bool fits(struct cpu_backend *c, int embd, int width)
{
    if (embd <= c->limits.embd && width <= c->limits.expert_width)
        return true;
    cpu_problem(c, "experts of %d x %d values, more than the %d x %d reserved", embd, width,
                c->limits.embd, c->limits.expert_width);
    return false;
}

static struct batch begin_batch(struct cpu_backend *c, const float *x, int embd,
                                const struct expert_job *job)
{
    struct batch b = {.c = c,
                      .x = x,
                      .embd = embd,
                      .width = job->gate.n_out,
                      .exact = c->base.exact_activations,
                      .bad_slot = INT_MAX,
                      .bad_task = INT_MAX,
                      .range_task = INT_MAX};
    if (c->base.laps) {
        b.gate_lap = cpu_lap_of(&c->base, &job->gate);
        b.up_lap = cpu_lap_of(&c->base, &job->up);
        b.down_lap = cpu_lap_of(&c->base, &job->down);
    }
    return b;
}

static void run_job(struct batch *b, const struct expert_job *job)
{
    for (int from = 0; from < job->n;) {
        int n = add_task(b, job, from);
        if (n == 0)
            run_batch(b); /* full */
        from += n;
    }
}

void cpu_experts(struct backend *base, const float *x, int n_embd, const struct expert_job *jobs,
                 int n_jobs, int64_t *sum)
{
    struct cpu_backend *c = cpu_of(base);
    if (n_jobs <= 0 || !fits(c, n_embd, jobs[0].gate.n_out))
        return;
    struct batch b = begin_batch(c, x, n_embd, &jobs[0]);
    b.sum = sum;
    for (int i = 0; i < n_jobs; i++)
        run_job(&b, &jobs[i]);
    if (b.n_tasks)
        run_batch(&b);
}

void cpu_shared_expert(struct backend *base, const float *x, int rows, int n_embd,
                       const struct tensor *gate, const struct tensor *up,
                       const struct tensor *down, const struct tensor *scale, float *out)
{
    struct cpu_backend *c = cpu_of(base);
    if (!fits(c, n_embd, gate->n_out))
        return;
    const struct expert_job whole = {.gate = *gate, .up = *up, .down = *down, .expert = -1};
    struct batch b = begin_batch(c, x, n_embd, &whole);
    b.shared_scale = scale;
    for (int t = 0; t < rows; t += c->scratch.entries) {
        struct expert_job job = whole;
        job.n = rows - t < c->scratch.entries ? rows - t : c->scratch.entries;
        job.rows = c->scratch.all_rows;
        b.x = x + (size_t)t * (size_t)n_embd;
        b.shared_out = out + (size_t)t * (size_t)n_embd;
        b.in_forms = form_of(&b, scale);
        run_job(&b, &job);
        run_batch(&b);
    }
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
