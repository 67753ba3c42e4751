/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/linear.h"

#include <limits.h>
#include <stdatomic.h>

#include "base/mem.h"

/* Unpacked weight rows that are multiplied with a few activation rows before the next few: what
 * they need together stays in the L2 cache. */
#define GROUP_ROWS 16
#define GROUP_BYTES (128 * 1024)
/* Activation rows of a pass over such a group; they stay in the L1 cache. */
#define PASS_ROWS 4
/* Bytes of float activations that are multiplied with a chunk's weights before the next, in the L2
 * cache, and of how many rows they are a multiple: what tiles take at once. */
#define FLOAT_X_BYTES (768 * 1024)
#define FLOAT_X_ROWS 12
/* Activation rows from which on weights that are not float32 are made so for tiles: up to 4 take the
 * same time one weight row after the other, and up to 8 less in windows, where a kernel has them. */
#define WIDEN_ROWS_LEAST 5
#define WINDOW_ROWS_FLOAT 8
/* Activation rows up to which weights of 256-value blocks are multiplied straight from their bytes;
 * blocks of 32 values always are, where there is such a kernel: there the sums cost more than the
 * decoding. Measured in the L2 cache: Q8_0 37 G products a second against 29 of a tile of 64 rows,
 * Q4_K 30 against 52. */
#define DIRECT_ROWS_256 2
#define WINDOW_ROWS_256 8 /* where a kernel takes several of them at once */
/* Activation rows from which on products are made by tiles and panels, and from which on these are
 * faster than windows where there are any. Windows of blocks of 32 are faster as long as there are any
 * (8 rows), but for few types and sets (Q5_0 and Q5_1 without VNNI); for blocks of 256 tiles took longer
 * for 5 rows, with weights in the L2 cache and whatever the set and the type: half as long again on
 * average. On ARM a window of 8 takes fewer instructions than a tile for every type. */
#define TILE_ROWS_LEAST 5
#define TILE_ROWS_32 9
#if defined(__aarch64__)
#define TILE_ROWS_256 9
#else
#define TILE_ROWS_256 TILE_ROWS_LEAST
#endif
/* Bytes of weight records that one worker holds, of the L2 cache. */
#define TILE_W_BYTES (320 * 1024)
/* Weight rows of a chunk: enough to make the cost of handing one out small. */
#define CHUNK_ROWS_LEAST 16
#define CHUNK_ROWS_MOST 64
/* Chunks a thread should find, so that threads end together. */
#define CHUNKS_A_THREAD 8
/* Tiles of activation rows a thread from which on who rounds a tile also packs it; fewer would leave
 * threads without rows to round. */
#define TILES_A_THREAD 2

/* How far direct kernels ask for weights ahead. */
#define START_BYTES 2048

#define ALIGN 64

struct cpu_row_scratch {
    struct quant_row row[GROUP_ROWS];
    float *decoded;   /* [max_n], exact activations */
    int rows;         /* of row[] that have memory */
    uint8_t *records; /* of weight rows, for tiles */
};

static size_t aligned(size_t bytes)
{
    return mem_round_up(bytes, ALIGN);
}

static size_t padded(int n)
{
    return mem_round_up((size_t)n, 256);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* --- memory --- */

struct cpu_tile_layout cpu_tile_layout(int n)
{
    struct cpu_tile_layout l = {.n = n};
    size_t values = padded(n);
    l.scale = values;
    l.start = l.scale + values / 16 * sizeof(int32_t);
    l.d = l.start + values / 32 * sizeof(int32_t);
    l.dmin = l.d + values / 32 * sizeof(float);
    l.m = l.dmin + values / 256 * sizeof(float);
    l.bytes = aligned(l.m + values / 16 * sizeof(int16_t));
    return l;
}

size_t cpu_tile_acts_bytes(int n)
{
    size_t values = CPU_TILE_ROWS * padded(n);
    return values + values / 32 * sizeof(float) + (values / 16 + values / 32) * sizeof(int16_t);
}

void cpu_tile_acts_place(struct cpu_tile_acts *a, void *memory, int n)
{
    size_t values = CPU_TILE_ROWS * padded(n);
    a->q = memory;
    a->d = (float *)(a->q + values);
    a->bsum16 = (int16_t *)(a->d + values / 32);
    a->bsum32 = a->bsum16 + values / 16;
}

/* Partial sums, and for all rows up to a byte for each code and two floats for 32 of them, and a line
 * between rows; at least one block of 256 values, split. */
size_t cpu_panel_bytes(int n)
{
    size_t values = padded(n) < 512 ? 512 : padded(n);
    return CPU_PANEL_W_ROWS * (values + values / 32 * 2 * sizeof(float) + ALIGN) +
           CPU_PANEL_W_ROWS * sizeof(float) * (4 * CPU_PANEL_ROWS + 2 * CPU_TILE_ROWS);
}

static size_t tiles_of(int rows)
{
    return mem_round_up((size_t)rows, CPU_TILE_ROWS) / CPU_TILE_ROWS;
}

size_t cpu_act_bytes(int rows, int n, int block)
{
    size_t values = (size_t)rows * padded(n);
    return aligned(values * sizeof(int16_t)) + aligned(values / (size_t)block * sizeof(float)) +
           aligned(values / 16 * sizeof(int16_t)) + tiles_of(rows) * cpu_tile_acts_bytes(n);
}

void cpu_act_place(struct quant_act *a, void *memory, int rows, int n, int block)
{
    size_t values = (size_t)rows * padded(n);
    uint8_t *p = memory;
    *a = (struct quant_act){.n = n, .rows = rows, .block = block, .stride = (int)padded(n)};
    a->q = (int16_t *)p;
    p += aligned(values * sizeof(int16_t));
    a->d = (float *)p;
    p += aligned(values / (size_t)block * sizeof(float));
    a->bsum = (int16_t *)p;
    a->tiles = p + aligned(values / 16 * sizeof(int16_t));
}

static int group_rows(int max_n)
{
    size_t rows = GROUP_BYTES / (padded(max_n) * sizeof(int16_t));
    return rows < 1 ? 1 : rows > GROUP_ROWS ? GROUP_ROWS : (int)rows;
}

static size_t row_bytes(int n)
{
    size_t values = padded(n);
    return aligned(values * sizeof(int16_t)) + 2 * aligned(values / 32 * sizeof(float)) +
           aligned(values / 16 * sizeof(int16_t)) + aligned(values / 16 * sizeof(float));
}

static uint8_t *row_place(struct quant_row *row, uint8_t *p, int n)
{
    size_t values = padded(n);
    row->w = (int16_t *)p;
    p += aligned(values * sizeof(int16_t));
    row->d = (float *)p;
    p += aligned(values / 32 * sizeof(float));
    row->dmin = (float *)p;
    p += aligned(values / 32 * sizeof(float));
    row->m = (int16_t *)p;
    p += aligned(values / 16 * sizeof(int16_t));
    row->d16 = (float *)p;
    return p + aligned(values / 16 * sizeof(float));
}

/* Weight rows of a tile's group, a multiple of CPU_TILE_W_ROWS. */
static int tile_group(int n)
{
    size_t rows = TILE_W_BYTES / cpu_tile_layout(n).bytes / CPU_TILE_W_ROWS * CPU_TILE_W_ROWS;
    return rows < CPU_TILE_W_ROWS   ? CPU_TILE_W_ROWS
           : rows > CHUNK_ROWS_MOST ? CHUNK_ROWS_MOST
                                    : (int)rows;
}

static size_t records_bytes(int max_n)
{
    size_t rows = CPU_TILE_W_ROWS * cpu_tile_layout(max_n).bytes;
    size_t least = rows < TILE_W_BYTES ? TILE_W_BYTES : rows, panel = cpu_panel_bytes(max_n);
    return aligned(least < panel ? panel : least);
}

static size_t worker_bytes(int max_n)
{
    return (size_t)group_rows(max_n) * row_bytes(max_n) + aligned(padded(max_n) * sizeof(float)) +
           records_bytes(max_n);
}

size_t cpu_linear_scratch_bytes(int max_rows, int max_n, int threads)
{
    return cpu_act_bytes(max_rows, max_n, 32) + cpu_act_bytes(max_rows, max_n, 256) +
           aligned((size_t)threads * sizeof(struct cpu_row_scratch)) +
           (size_t)threads * worker_bytes(max_n);
}

bool cpu_linear_ctx_init(struct cpu_linear_ctx *ctx, struct pool *pool,
                         const struct cpu_matmul *table, int max_rows, int max_n, struct err *e)
{
    int threads = pool_threads(pool);
    *ctx = (struct cpu_linear_ctx){
        .pool = pool, .table = table, .max_rows = max_rows, .max_n = max_n, .threads = threads};
    ctx->memory = mem_alloc(cpu_linear_scratch_bytes(max_rows, max_n, threads),
                            "scratch of matrix products", e);
    if (!ctx->memory)
        return false;
    uint8_t *p = ctx->memory;
    cpu_act_place(&ctx->acts.block32, p, max_rows, max_n, 32);
    p += cpu_act_bytes(max_rows, max_n, 32);
    cpu_act_place(&ctx->acts.block256, p, max_rows, max_n, 256);
    p += cpu_act_bytes(max_rows, max_n, 256);
    ctx->scratch = (struct cpu_row_scratch *)p;
    p += aligned((size_t)threads * sizeof(struct cpu_row_scratch));
    for (int i = 0; i < threads; i++) {
        struct cpu_row_scratch *s = &ctx->scratch[i];
        s->rows = group_rows(max_n);
        for (int r = 0; r < s->rows; r++)
            p = row_place(&s->row[r], p, max_n);
        s->decoded = (float *)p;
        p += aligned(padded(max_n) * sizeof(float));
        s->records = p;
        p += records_bytes(max_n);
    }
    return true;
}

void cpu_linear_ctx_free(struct cpu_linear_ctx *ctx)
{
    mem_free(ctx->memory);
    *ctx = (struct cpu_linear_ctx){0};
}

/* --- a range of weight rows on one thread --- */

int cpu_act_block(uint32_t type)
{
    switch (quant_traits(type)->form) {
    case QUANT_INT32:
        return 32;
    case QUANT_INT256:
        return 256;
    default:
        return 0;
    }
}

bool cpu_act_round(const struct cpu_linear_ctx *ctx, const float *x, struct quant_act *a, int row)
{
    return ctx->table->round(x, a->n, a, row);
}

static struct cpu_tile_acts tile_at(const struct quant_act *a, int t)
{
    struct cpu_tile_acts tile;
    size_t at = (size_t)(t / CPU_TILE_ROWS) * cpu_tile_acts_bytes(a->n);
    cpu_tile_acts_place(&tile, (uint8_t *)a->tiles + at, a->n);
    return tile;
}

bool cpu_reads_packed(const struct cpu_linear_ctx *ctx, const struct cpu_weight *w, int rows)
{
    const struct cpu_matmul *table = ctx->table;
    int block = cpu_act_block(w->type), least = TILE_ROWS_LEAST;
    if (table->window[w->type] && w->n_in <= CPU_DIRECT_MOST_N)
        least = block == 32 ? TILE_ROWS_32 : TILE_ROWS_256;
    return block && rows >= least && (table->panel[w->type] || table->tile[w->type].unpack);
}

void cpu_act_pack(const struct cpu_linear_ctx *ctx, const struct quant_act *a, int t0, int rows)
{
    for (int t = 0; ctx->table->tile_pack && t < rows; t += CPU_TILE_ROWS) {
        struct cpu_tile_acts tile = tile_at(a, t0 + t);
        ctx->table->tile_pack(a, t0 + t, smaller(CPU_TILE_ROWS, rows - t), &tile);
    }
}

static cpu_dot_int_fn *dot_int(const struct cpu_matmul *table, uint32_t type)
{
    const struct quant_traits *t = quant_traits(type);
    if (t->form == QUANT_INT256)
        return t->has_min ? table->dot_int256_min : table->dot_int256;
    if (t->has_d16)
        return table->dot_int32_d16;
    return t->has_min ? table->dot_int32_min : table->dot_int32;
}

/* A weight row in float32. */
static void widen_row(const struct cpu_linear_ctx *ctx, const struct cpu_weight *w, const void *row,
                      float *out)
{
    if (ctx->table->widen[w->type])
        ctx->table->widen[w->type](row, w->n_in, out);
    else
        quant_decode(w->type, row, out, (uint64_t)w->n_in);
}

/* Tiles: weight rows that are not float32 are made so once for many activation rows. */
static void float_tiles(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w,
                        int r0, int r1, const struct cpu_acts *x, int t0, int rows, float *y,
                        size_t y_stride)
{
    float *wide = (float *)ctx->scratch[worker].records;
    size_t bytes = tensor_row_bytes(w->type, (uint64_t)w->n_in);
    bool is_wide = w->type == TYPE_F32;
    /* Rows apart by a power of two would share few lines of the L1 cache. */
    size_t stride = is_wide ? (size_t)w->n_in : mem_round_up((size_t)w->n_in, 16) + 16;
    size_t room = records_bytes(ctx->max_n) / (stride * sizeof *wide);
    int group = is_wide || room > GROUP_ROWS ? GROUP_ROWS : (int)room;
    size_t some = FLOAT_X_BYTES / (sizeof *x->x * (size_t)w->n_in) / FLOAT_X_ROWS * FLOAT_X_ROWS;
    int pass = some < FLOAT_X_ROWS ? FLOAT_X_ROWS : some > INT_MAX ? INT_MAX : (int)some;
    for (int t = 0; t < rows; t += pass) {
        for (int g = r0; g < r1; g += group) {
            const uint8_t *first = (const uint8_t *)w->data + (size_t)g * bytes;
            int n = smaller(group, r1 - g);
            for (int r = 0; !is_wide && r < n; r++)
                widen_row(ctx, w, first + (size_t)r * bytes, wide + (size_t)r * stride);
            ctx->table->tile_float(is_wide ? (const float *)(const void *)first : wide, stride, n,
                                   x->x + (size_t)(t0 + t) * x->x_stride, x->x_stride, w->n_in,
                                   smaller(pass, rows - t), y + (size_t)t * y_stride + (g - r0),
                                   y_stride);
        }
    }
}

/* Weight rows of a float type, and with exact activations of any type (decoded first). */
static void float_rows(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w,
                       int r0, int r1, const struct cpu_acts *x, int t0, int rows, float *y,
                       size_t y_stride)
{
    size_t bytes = tensor_row_bytes(w->type, (uint64_t)w->n_in);
    bool decode = quant_traits(w->type)->form != QUANT_FLOAT;
    cpu_dot_float_fn *dot = ctx->table->dot_float[decode ? TYPE_F32 : w->type];
    float *decoded = ctx->scratch[worker].decoded;
    cpu_window_float_fn *window = decode ? NULL : ctx->table->window_float[w->type];
    int least = w->type == TYPE_F32 ? 2 : window ? WINDOW_ROWS_FLOAT + 1 : WIDEN_ROWS_LEAST;
    if (ctx->table->tile_float && rows >= least && r1 - r0 > 1) {
        float_tiles(ctx, worker, w, r0, r1, x, t0, rows, y, y_stride);
        return;
    }
    for (int t = 0; window && rows > 1 && t < rows; t += CPU_WINDOW_FLOAT_ROWS)
        window((const uint8_t *)w->data + (size_t)r0 * bytes, r1 - r0,
               x->x + (size_t)(t0 + t) * x->x_stride, x->x_stride, w->n_in,
               smaller(CPU_WINDOW_FLOAT_ROWS, rows - t), y + (size_t)t * y_stride, y_stride);
    if (window && rows > 1)
        return;
    for (int r = r0; r < r1; r++) {
        const void *row = (const uint8_t *)w->data + (size_t)r * bytes;
        if (decode)
            quant_decode(w->type, row, decoded, (uint64_t)w->n_in);
        dot(decode ? decoded : row, x->x + (size_t)t0 * x->x_stride, x->x_stride, w->n_in, rows,
            y + (r - r0), y_stride);
    }
}

/* Kernels ask for weights some way ahead of where they are; the first ones nobody has asked for. */
static void prefetch_start(const uint8_t *w, size_t bytes)
{
    for (size_t i = 0; i < bytes && i < START_BYTES; i += 64)
        __builtin_prefetch(w + i);
}

/* Straight from the file's bytes; without a kernel for several activation rows one after the other:
 * after the first the weights come from the L2 cache. */
static void direct_rows(const struct cpu_matmul *table, const struct cpu_weight *w, int r0, int r1,
                        const struct quant_act *x, int t0, int rows, float *y, size_t y_stride)
{
    size_t bytes = tensor_row_bytes(w->type, (uint64_t)w->n_in);
    int group = bytes < GROUP_BYTES ? (int)(GROUP_BYTES / bytes) : 1;
    cpu_window_fn *window = table->window[w->type];
    cpu_direct_fn *direct = table->direct[w->type];
    if (w->n_in <= CPU_SHORT_N && table->direct_short[w->type])
        direct = table->direct_short[w->type];
    for (int g = r0; g < r1; g += group) {
        const uint8_t *first = (const uint8_t *)w->data + (size_t)g * bytes;
        int n = smaller(group, r1 - g);
        if (g == r0)
            prefetch_start(first, (size_t)n * bytes);
        if (window && rows > 1) {
            window(first, n, x, t0, rows, y + (g - r0), y_stride);
            continue;
        }
        for (int t = 0; t < rows; t++)
            direct(first, n, x, t0 + t, y + (size_t)t * y_stride + (g - r0));
    }
}

/* Tiles: weight rows are taken apart once for all activation rows, which are packed. */
static void tile_rows(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w,
                      int r0, int r1, const struct quant_act *x, int t0, int rows, float *y,
                      size_t y_stride)
{
    const struct cpu_tile *tile = &ctx->table->tile[w->type];
    struct cpu_row_scratch *s = &ctx->scratch[worker];
    struct cpu_tile_layout l = cpu_tile_layout(w->n_in);
    size_t bytes = tensor_row_bytes(w->type, (uint64_t)w->n_in);
    /* With one tile a few weight rows at a time stay in the L1 cache between both steps. */
    int group = rows <= CPU_TILE_ROWS ? CPU_TILE_W_ROWS : tile_group(w->n_in);
    for (int g = r0; g < r1; g += group) {
        int n = smaller(group, r1 - g);
        for (int r = 0; r < n; r++)
            tile->unpack((const uint8_t *)w->data + (size_t)(g + r) * bytes, &l,
                         s->records + (size_t)r * l.bytes);
        for (int t = 0; t < rows; t += CPU_TILE_ROWS) {
            int lanes = smaller(CPU_TILE_ROWS, rows - t);
            struct cpu_tile_acts packed = tile_at(x, t0 + t);
            for (int r = 0; r < n; r += CPU_TILE_W_ROWS)
                tile->multiply(s->records + (size_t)r * l.bytes, smaller(CPU_TILE_W_ROWS, n - r),
                               &l, &packed, lanes, y + (size_t)t * y_stride + (g - r0 + r),
                               y_stride);
        }
    }
}

/* Panels: kernels that take weight rows apart and multiply them with all activation rows. */
static void panel_rows(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w,
                       int r0, int r1, const struct quant_act *x, int t0, int rows, float *y,
                       size_t y_stride)
{
    size_t bytes = tensor_row_bytes(w->type, (uint64_t)w->n_in);
    struct cpu_tile_acts tiles[CPU_PANEL_ROWS / CPU_TILE_ROWS];
    for (int t = 0; t < rows; t += CPU_PANEL_ROWS) {
        int some = smaller(CPU_PANEL_ROWS, rows - t);
        for (int i = 0; i < some; i += CPU_TILE_ROWS)
            tiles[i / CPU_TILE_ROWS] = tile_at(x, t0 + t + i);
        for (int g = r0; g < r1; g += CPU_PANEL_W_ROWS)
            ctx->table->panel[w->type]((const uint8_t *)w->data + (size_t)g * bytes,
                                       smaller(CPU_PANEL_W_ROWS, r1 - g), w->n_in, tiles, some,
                                       ctx->scratch[worker].records,
                                       y + (size_t)t * y_stride + (g - r0), y_stride);
    }
}

static void int_rows(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w,
                     int r0, int r1, const struct quant_act *x, bool packed, int t0, int rows,
                     float *y, size_t y_stride)
{
    size_t bytes = tensor_row_bytes(w->type, (uint64_t)w->n_in);
    quant_unpack_fn *unpack = ctx->table->unpack[w->type];
    cpu_dot_int_fn *dot = dot_int(ctx->table, w->type);
    struct cpu_row_scratch *s = &ctx->scratch[worker];
    bool has_direct = ctx->table->direct[w->type] && w->n_in <= CPU_DIRECT_MOST_N;
    if (packed && t0 % CPU_TILE_ROWS == 0 && cpu_reads_packed(ctx, w, rows)) {
        (ctx->table->panel[w->type] ? panel_rows : tile_rows)(ctx, worker, w, r0, r1, x, t0, rows,
                                                              y, y_stride);
        return;
    }
    int most = x->block == 32                  ? rows
               : ctx->table->window[w->type] ? WINDOW_ROWS_256
                                             : DIRECT_ROWS_256;
    if (has_direct && rows <= most) {
        direct_rows(ctx->table, w, r0, r1, x, t0, rows, y, y_stride);
        return;
    }
    /* Few activation rows: one weight row at a time stays in the L1 cache between both steps. */
    int group = rows <= PASS_ROWS ? 1 : s->rows;
    for (int g = r0; g < r1; g += group) {
        int end = smaller(g + group, r1);
        for (int r = g; r < end; r++)
            unpack((const uint8_t *)w->data + (size_t)r * bytes, w->n_in, &s->row[r - g]);
        for (int t = 0; t < rows; t += PASS_ROWS) {
            for (int r = g; r < end; r++)
                dot(&s->row[r - g], x, t0 + t, smaller(PASS_ROWS, rows - t),
                    y + (size_t)t * y_stride + (r - r0), y_stride);
        }
    }
}

void cpu_rows(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w, int r0,
              int r1, const struct cpu_acts *x, int t0, int rows, float *y, size_t y_stride)
{
    int block = x->exact ? 0 : cpu_act_block(w->type);
    if (block == 0)
        float_rows(ctx, worker, w, r0, r1, x, t0, rows, y, y_stride);
    else
        int_rows(ctx, worker, w, r0, r1, block == 32 ? &x->block32 : &x->block256, x->packed, t0,
                 rows, y, y_stride);
}

/* --- all threads --- */

struct step {
    struct cpu_linear_ctx *ctx;
    const float *x;
    size_t x_stride;
    int rows, chunk_rows, n_products;
    const struct cpu_product *p;
    size_t y_row; /* first row of y */
    bool need32, need256; /* of the rounded forms */
    bool pack32, pack256;
    atomic_bool bad; /* inf or NaN in x */
};

static void pack_tile(const struct step *s, int t, int rows)
{
    const struct cpu_acts *acts = &s->ctx->acts;
    if (s->pack32)
        cpu_act_pack(s->ctx, &acts->block32, t, rows);
    if (s->pack256)
        cpu_act_pack(s->ctx, &acts->block256, t, rows);
}

static bool round_at(const struct step *s, int t)
{
    const float *x = s->x + (size_t)t * s->x_stride;
    struct cpu_acts *acts = &s->ctx->acts;
    return (!s->need32 || cpu_act_round(s->ctx, x, &acts->block32, t)) &&
           (!s->need256 || cpu_act_round(s->ctx, x, &acts->block256, t));
}

static void round_chunk(void *context, int chunk, int worker)
{
    struct step *s = context;
    if (!round_at(s, chunk))
        atomic_store_explicit(&s->bad, true, memory_order_relaxed);
}

/* A chunk is a tile: the rows of two threads do not share a line of memory. */
static void pack_chunk(void *context, int chunk, int worker)
{
    const struct step *s = context;
    int t = chunk * CPU_TILE_ROWS;
    pack_tile(s, t, smaller(CPU_TILE_ROWS, s->rows - t));
}

/* Both, while the codes are in the cache. */
static void round_and_pack_chunk(void *context, int chunk, int worker)
{
    struct step *s = context;
    int t = chunk * CPU_TILE_ROWS, rows = smaller(CPU_TILE_ROWS, s->rows - t);
    for (int i = 0; i < rows; i++) {
        if (!round_at(s, t + i)) {
            atomic_store_explicit(&s->bad, true, memory_order_relaxed);
            return;
        }
    }
    pack_tile(s, t, rows);
}

static int chunks_of(const struct step *s, const struct cpu_product *p)
{
    return (p->w.n_out + s->chunk_rows - 1) / s->chunk_rows;
}

static void product_chunk(void *context, int chunk, int worker)
{
    struct step *s = context;
    const struct cpu_product *p = s->p;
    for (; chunk >= chunks_of(s, p); p++)
        chunk -= chunks_of(s, p);
    int r0 = chunk * s->chunk_rows, r1 = smaller(r0 + s->chunk_rows, p->w.n_out);
    if (s->ctx->laps)
        laps_switch(s->ctx->laps, worker, p->lap);
    cpu_rows(s->ctx, worker, &p->w, r0, r1, &s->ctx->acts, 0, s->rows,
             p->y + s->y_row * p->y_stride + r0, p->y_stride);
}

/* Which forms of s->rows rows a product will read packed. */
static void choose_packed(struct step *s)
{
    s->pack32 = s->pack256 = false;
    for (int i = 0; i < s->n_products; i++) {
        const struct cpu_weight *w = &s->p[i].w;
        bool is_packed = !s->ctx->acts.exact && cpu_reads_packed(s->ctx, w, s->rows);
        s->pack32 |= is_packed && cpu_act_block(w->type) == 32;
        s->pack256 |= is_packed && cpu_act_block(w->type) == 256;
    }
}

/* Rounds and packs at most max_rows rows of x. */
static bool prepare(struct step *s, int n_in, struct err *e)
{
    struct cpu_linear_ctx *ctx = s->ctx;
    if (s->need32)
        cpu_act_place(&ctx->acts.block32, ctx->acts.block32.q, s->rows, n_in, 32);
    if (s->need256)
        cpu_act_place(&ctx->acts.block256, ctx->acts.block256.q, s->rows, n_in, 256);
    if (ctx->laps)
        laps_switch(ctx->laps, 0, LAP_ROUND);
    choose_packed(s);
    ctx->acts.packed = s->pack32 || s->pack256;
    int tiles = (int)tiles_of(s->rows);
    bool together = ctx->acts.packed && tiles >= TILES_A_THREAD * ctx->threads;
    if (together)
        pool_run(ctx->pool, round_and_pack_chunk, s, tiles);
    else if (s->need32 || s->need256)
        pool_run(ctx->pool, round_chunk, s, s->rows);
    if (atomic_load(&s->bad))
        return err_set(e, ERR_NUMERIC, "activations: not a finite number");
    if (ctx->acts.packed && !together)
        pool_run(ctx->pool, pack_chunk, s, tiles);
    return true;
}

static void count_bytes(const struct cpu_linear_ctx *ctx, const struct cpu_weight *w, int lap)
{
    if (ctx->laps)
        laps_add_bytes(ctx->laps, lap,
                       tensor_row_bytes(w->type, (uint64_t)w->n_in) * (uint64_t)w->n_out);
}

/* All products for at most max_rows rows of x. */
static bool slice(struct step *s, int n_in, struct err *e)
{
    if (!prepare(s, n_in, e))
        return false;
    int chunks = 0;
    for (int i = 0; i < s->n_products; i++) {
        chunks += chunks_of(s, &s->p[i]);
        count_bytes(s->ctx, &s->p[i].w, s->p[i].lap);
    }
    pool_run(s->ctx->pool, product_chunk, s, chunks);
    return true;
}

const struct cpu_acts *cpu_linear_prepare(struct cpu_linear_ctx *ctx, const float *x,
                                          size_t x_stride, int rows, const struct cpu_weight *w,
                                          int lap, bool exact_activations, struct err *e)
{
    int block = exact_activations ? 0 : cpu_act_block(w->type);
    const struct cpu_product p = {.w = *w};
    struct step s = {.ctx = ctx,
                     .x = x,
                     .x_stride = x_stride,
                     .rows = rows,
                     .p = &p,
                     .n_products = 1,
                     .need32 = block == 32,
                     .need256 = block == 256};
    if (rows > ctx->max_rows) {
        err_set(e, ERR_NUMERIC, "%d rows, more than the %d reserved", rows, ctx->max_rows);
        return NULL;
    }
    ctx->acts.exact = exact_activations;
    ctx->acts.x = x;
    ctx->acts.x_stride = x_stride;
    if (!prepare(&s, w->n_in, e))
        return NULL;
    count_bytes(ctx, w, lap);
    return &ctx->acts;
}

bool cpu_linear(struct cpu_linear_ctx *ctx, const float *x, size_t x_stride, int rows,
                const struct cpu_product *p, int n_products, bool exact_activations, struct err *e)
{
    struct step s = {.ctx = ctx, .x_stride = x_stride, .p = p, .n_products = n_products};
    int64_t total = 0;
    for (int i = 0; i < n_products; i++) {
        int block = exact_activations ? 0 : cpu_act_block(p[i].w.type);
        s.need32 |= block == 32;
        s.need256 |= block == 256;
        total += p[i].w.n_out;
    }
    int64_t chunk_rows = total / (CHUNKS_A_THREAD * ctx->threads);
    s.chunk_rows = chunk_rows < CHUNK_ROWS_LEAST  ? CHUNK_ROWS_LEAST
                   : chunk_rows > CHUNK_ROWS_MOST ? CHUNK_ROWS_MOST
                                                  : (int)chunk_rows;
    ctx->acts.exact = exact_activations;
    for (int t = 0; t < rows; t += ctx->max_rows) {
        s.x = ctx->acts.x = x + (size_t)t * x_stride;
        ctx->acts.x_stride = x_stride;
        s.rows = smaller(ctx->max_rows, rows - t);
        s.y_row = (size_t)t;
        if (!slice(&s, p[0].w.n_in, e))
            return false;
    }
    return true;
}
