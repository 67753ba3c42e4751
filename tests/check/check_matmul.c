/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix kernels (cpu/matmul.h): rounding, unpacking and dots of every type against C. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "base/mem.h"
#include "cpu/linear.h"

#define MOST_N 2560
#define MOST_ROWS 65
#define UNWRITTEN 0x7fc0a5a5u /* a NaN that no kernel makes */

/* The tables are walked entry by entry; this fails to build when the struct gets an entry that
 * the functions below do not know: eight arrays by type and one of two functions, five integer
 * dots, the tile of floats, the packing of tiles and the rounding. */
_Static_assert(sizeof(struct cpu_matmul) == (10 * TENSOR_TYPES + 8) * sizeof(void (*)(void)),
               "a kernel of struct cpu_matmul is not checked");

static struct cpu_matmul c_table, table;

/* --- weight rows --- */

enum fill { FILL_ORDINARY, FILL_MANY_ZEROS, FILL_MANY_ONES, FILL_RAW, FILLS };

/* Random blocks. All but FILL_RAW are drawn until their values are of ordinary size, so that sums
 * are finite and every block counts. That takes long, so only so many are drawn and the others of
 * a row are copies. */
#define DRAWN_BLOCKS 8

static void fill_blocks(struct check *c, uint32_t type, uint8_t *blocks, int n, enum fill fill)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    float values[256];
    const uint8_t *first = blocks;
    if (fill == FILL_RAW) {
        check_fill_hostile(c, type, blocks, n);
        return;
    }
    for (int i = 0; i < n; i += info->block_values, blocks += info->block_bytes) {
        if (i >= DRAWN_BLOCKS * info->block_values) {
            memcpy(blocks, first + check_below(c, DRAWN_BLOCKS) * info->block_bytes,
                   info->block_bytes);
            continue;
        }
        for (int tries = 0; tries < 3000; tries++) {
            check_fill_bytes(c, blocks, info->block_bytes);
            for (int k = 0; k < info->block_bytes; k++) {
                if (fill != FILL_ORDINARY && check_below(c, 5))
                    blocks[k] = fill == FILL_MANY_ONES ? 0xff : 0;
            }
            quant_decode(type, blocks, values, info->block_values);
            float most = 0;
            bool finite = true;
            for (int k = 0; k < info->block_values; k++) {
                finite = finite && isfinite(values[k]);
                most = fmaxf(most, fabsf(values[k]));
            }
            if (finite && most < 16 && (most > 0x1p-16f || fill == FILL_MANY_ZEROS))
                break;
        }
    }
}

/* Blocks that rows have, in blocks of the type: all tails of the eight chains, and real lengths. */
static const int lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 17, 20, 80, 0};
static const int float_lengths[] = {1,  7,  15, 16,  17,  31,  32,   33, 63,
                                    64, 65, 95, 160, 640, 999, 2560, 0};

/* --- unpacked rows --- */

struct row_memory {
    struct quant_row row;
    struct check_buffer w, d, dmin, m, d16;
};

static struct row_memory row_new(int n)
{
    size_t values = (size_t)(n + 255) / 256 * 256;
    struct row_memory r = {.w = check_buffer_new(values * 2, 0),
                           .d = check_buffer_new(values / 32 * 4, 0),
                           .dmin = check_buffer_new(values / 32 * 4, 0),
                           .m = check_buffer_new(values / 16 * 2, 0),
                           .d16 = check_buffer_new(values / 16 * 4, 0)};
    r.row = (struct quant_row){(int16_t *)r.w.data, (float *)r.d.data, (float *)r.dmin.data,
                               (int16_t *)r.m.data, (float *)r.d16.data};
    return r;
}

static bool row_intact(const struct row_memory *r)
{
    return check_buffer_intact(&r->w) && check_buffer_intact(&r->d) &&
           check_buffer_intact(&r->dmin) && check_buffer_intact(&r->m) &&
           check_buffer_intact(&r->d16);
}

static void row_free(struct row_memory *r)
{
    check_buffer_free(&r->w);
    check_buffer_free(&r->d);
    check_buffer_free(&r->dmin);
    check_buffer_free(&r->m);
    check_buffer_free(&r->d16);
}

static bool same_row(uint32_t type, const struct quant_row *a, const struct quant_row *b, int n)
{
    const struct quant_traits *t = quant_traits(type);
    size_t blocks = (size_t)(n / cpu_act_block(type)), sixteens = (size_t)n / 16;
    if (memcmp(a->w, b->w, (size_t)n * 2))
        return false;
    if (t->has_d16)
        return check_same(a->d16, b->d16, sixteens);
    if (!check_same(a->d, b->d, blocks))
        return false;
    return !t->has_min ||
           (check_same(a->dmin, b->dmin, blocks) && !memcmp(a->m, b->m, sixteens * 2));
}

static void check_unpack(struct check *c, uint32_t type, const char *isa)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    for (int i = 0; lengths[i] && lengths[i] * info->block_values <= MOST_N; i++) {
        int n = lengths[i] * info->block_values;
        for (enum fill fill = 0; fill < FILLS; fill++) {
            size_t bytes = tensor_row_bytes(type, (uint64_t)n), offset = check_below(c, 64);
            struct row_memory expected = row_new(n), got = row_new(n);
            uint8_t *edge = check_edge(0, bytes);
            struct check_buffer inside = check_buffer_new(bytes, offset);
            fill_blocks(c, type, edge, n, fill);
            memcpy(inside.data, edge, bytes);
            c_table.unpack[type](edge, n, &expected.row);
            table.unpack[type](edge, n, &got.row);
            check_ok(c, same_row(type, &expected.row, &got.row, n) && row_intact(&got),
                     "%s unpack %s, n %d, fill %d", isa, info->name, n, fill);
            table.unpack[type](inside.data, n, &got.row);
            check_ok(c, same_row(type, &expected.row, &got.row, n) && row_intact(&got),
                     "%s unpack %s, n %d, fill %d, offset %zu", isa, info->name, n, fill, offset);
            row_free(&expected);
            row_free(&got);
            check_buffer_free(&inside);
        }
    }
}

/* --- activations --- */

struct act_memory {
    struct quant_act act;
    struct check_buffer memory;
};

static struct act_memory act_new(int rows, int n, int block)
{
    struct act_memory a = {.memory = check_buffer_new(cpu_act_bytes(rows, n, block), 0)};
    cpu_act_place(&a.act, a.memory.data, rows, n, block);
    return a;
}

static void check_round(struct check *c, const char *isa, int block)
{
    for (int i = 0; lengths[i] && lengths[i] * block <= MOST_N; i++) {
        int n = lengths[i] * block;
        for (enum check_values kind = 0; kind < CHECK_VALUES; kind++) {
            struct act_memory expected = act_new(3, n, block), got = act_new(3, n, block);
            float *x = check_edge(0, (size_t)n * sizeof *x);
            bool ok = true;
            for (int row = 0; row < 3; row++) {
                check_fill(c, x, (size_t)n, kind);
                if (row == 1 && kind == CHECK_ORDINARY) { /* exact halves: to even */
                    for (int k = 0; k < n; k++)
                        x[k] = k % block ? (float)check_below(c, 253) * 0.5f - 63.0f : 127.0f;
                }
                if (row == 2 && kind == CHECK_ORDINARY) { /* as close to halves as there is */
                    for (int k = 0; k < n; k++) {
                        float half = ((float)check_below(c, 253) * 0.5f - 63.0f) * (12.7f / 127);
                        x[k] = k % block ? nextafterf(half, k % 2 ? 1e9f : -1e9f) : 12.7f;
                    }
                }
                ok = quant_round_row(x, n, &expected.act, row) && ok;
                ok = table.round(x, n, &got.act, row) && ok;
            }
            ok = ok && check_buffer_intact(&got.memory) &&
                 !memcmp(expected.memory.data, got.memory.data, got.memory.bytes);
            check_ok(c, ok, "%s round to blocks of %d, n %d, values %d", isa, block, n, kind);
            for (int bad = 0; bad < 3; bad++) {
                static const float values[] = {INFINITY, -INFINITY, NAN};
                x[check_below(c, (uint32_t)n)] = values[bad];
                check_ok(c, !table.round(x, n, &got.act, 0),
                         "%s round to blocks of %d, n %d: %g is not refused", isa, block, n,
                         (double)values[bad]);
            }
            check_buffer_free(&expected.memory);
            check_buffer_free(&got.memory);
        }
    }
}

/* --- dots --- */

/* MOST_ROWS rows of n rounded values, ordinary ones and those at the edges; the same for all types
 * that take such blocks, since they are many. */
static const struct quant_act *rounded_rows(struct check *c, int n, int block)
{
    static struct act_memory known[64];
    static int count;
    for (int i = 0; i < count; i++) {
        if (known[i].act.n == n && known[i].act.block == block)
            return &known[i].act;
    }
    if (count == sizeof known / sizeof *known)
        check_buffer_free(&known[--count].memory);
    struct act_memory *acts = &known[count++];
    float *x = malloc((size_t)n * sizeof *x);
    *acts = act_new(MOST_ROWS, n, block);
    for (int t = 0; t < MOST_ROWS; t++) {
        check_fill(c, x, (size_t)n,
                   t % 4 ? CHECK_ORDINARY : (enum check_values)(t / 4 % CHECK_VALUES));
        quant_round_row(x, n, &acts->act, t);
    }
    free(x);
    return &acts->act;
}

/* y has room for `rows` results, y_stride apart; what lies between must stay. */
static bool same_results(const float *expected, const struct check_buffer *y, int rows,
                         int y_stride)
{
    const float *got = (const float *)y->data;
    const uint32_t *bits = (const uint32_t *)y->data;
    for (int i = 0; i < rows * y_stride; i++) {
        if (i % y_stride ? bits[i] != UNWRITTEN : !check_same(&expected[i / y_stride], &got[i], 1))
            return false;
    }
    return check_buffer_intact(y);
}

static struct check_buffer results_new(int rows, int y_stride)
{
    struct check_buffer y = check_buffer_new((size_t)(rows * y_stride) * 4, 4);
    for (int i = 0; i < rows * y_stride; i++)
        ((uint32_t *)y.data)[i] = UNWRITTEN;
    return y;
}

static cpu_dot_int_fn *dot_of(const struct cpu_matmul *m, uint32_t type)
{
    const struct quant_traits *t = quant_traits(type);
    if (t->form == QUANT_INT256)
        return t->has_min ? m->dot_int256_min : m->dot_int256;
    return t->has_d16 ? m->dot_int32_d16 : t->has_min ? m->dot_int32_min : m->dot_int32;
}

static void check_dot_int_rows(struct check *c, uint32_t type, const char *isa,
                               const struct quant_row *row, int n, enum fill fill,
                               const struct quant_act *acts)
{
    float expected[MOST_ROWS];
    for (int i = 0; check_row_counts[i]; i++) {
        int rows = check_row_counts[i];
        int t0 = (int)check_below(c, (uint32_t)(MOST_ROWS - rows + 1)), y_stride = 1 + rows % 3;
        struct check_buffer y = results_new(rows, y_stride);
        dot_of(&c_table, type)(row, acts, t0, rows, expected, 1);
        dot_of(&table, type)(row, acts, t0, rows, (float *)y.data, (size_t)y_stride);
        check_ok(c, same_results(expected, &y, rows, y_stride),
                 "%s dot of %s, n %d, %d rows from %d, fill %d", isa, tensor_type_info(type)->name,
                 n, rows, t0, fill);
        check_buffer_free(&y);
    }
}

static void check_dot_int(struct check *c, uint32_t type, const char *isa)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    uint8_t *blocks = malloc(tensor_row_bytes(type, MOST_N));
    for (int i = 0; lengths[i] && lengths[i] * info->block_values <= MOST_N; i++) {
        int n = lengths[i] * info->block_values;
        const struct quant_act *acts = rounded_rows(c, n, cpu_act_block(type));
        for (enum fill fill = 0; fill < FILLS; fill++) {
            struct row_memory row = row_new(n);
            fill_blocks(c, type, blocks, n, fill);
            c_table.unpack[type](blocks, n, &row.row);
            check_dot_int_rows(c, type, isa, &row.row, n, fill, acts);
            row_free(&row);
        }
    }
    free(blocks);
}

enum { MOST_DIRECT_ROWS = 11 }; /* more than kernels take at once */

/* Weight rows that end where memory ends, times one activation row. */
static void check_direct_rows(struct check *c, uint32_t type, const char *isa, int n, int w_rows,
                              enum fill fill, const struct quant_act *acts)
{
    size_t bytes = tensor_row_bytes(type, (uint64_t)n);
    uint8_t *w = check_edge(0, bytes * (size_t)w_rows);
    float expected[MOST_DIRECT_ROWS];
    struct row_memory row = row_new(n);
    struct check_buffer y = results_new(w_rows, 1);
    int t = (int)check_below(c, MOST_ROWS);
    fill_blocks(c, type, w, n * w_rows, fill);
    for (int r = 0; r < w_rows; r++) {
        c_table.unpack[type](w + (size_t)r * bytes, n, &row.row);
        dot_of(&c_table, type)(&row.row, acts, t, 1, &expected[r], 1);
    }
    cpu_direct_fn *const direct[] = {table.direct[type],
                                     n <= CPU_SHORT_N ? table.direct_short[type] : NULL};
    for (int i = 0; i < 2 && direct[i]; i++) {
        for (int r = 0; r < w_rows; r++)
            ((uint32_t *)y.data)[r] = UNWRITTEN;
        direct[i](w, w_rows, acts, t, (float *)y.data);
        check_ok(c, same_results(expected, &y, w_rows, 1), "%s direct%s %s, n %d, %d rows, fill %d",
                 isa, i ? " short" : "", tensor_type_info(type)->name, n, w_rows, fill);
    }
    row_free(&row);
    check_buffer_free(&y);
}

/* The same for several activation rows. */
static void check_window_rows(struct check *c, uint32_t type, const char *isa, int n, int rows,
                              enum fill fill, const struct quant_act *acts)
{
    int w_rows = 1 + 3 * rows % MOST_DIRECT_ROWS, y_stride = w_rows + rows % 2;
    int t0 = (int)check_below(c, (uint32_t)(MOST_ROWS - rows + 1));
    size_t bytes = tensor_row_bytes(type, (uint64_t)n);
    uint8_t *w = check_edge(0, bytes * (size_t)w_rows);
    struct row_memory row = row_new(n);
    struct check_buffer y = check_buffer_new((size_t)(rows * y_stride) * 4, 4);
    float *got = (float *)y.data, column[8];
    for (int k = 0; k < rows * y_stride; k++)
        ((uint32_t *)y.data)[k] = UNWRITTEN;
    fill_blocks(c, type, w, n * w_rows, fill);
    table.window[type](w, w_rows, acts, t0, rows, got, (size_t)y_stride);
    bool ok = check_buffer_intact(&y);
    for (int r = 0; r < y_stride; r++) {
        if (r < w_rows) {
            c_table.unpack[type](w + (size_t)r * bytes, n, &row.row);
            dot_of(&c_table, type)(&row.row, acts, t0, rows, column, 1);
        }
        for (int t = 0; t < rows; t++) {
            uint32_t bits;
            memcpy(&bits, &got[t * y_stride + r], 4);
            ok = ok && (r < w_rows ? check_same(&column[t], &got[t * y_stride + r], 1)
                                   : bits == UNWRITTEN);
        }
    }
    check_ok(c, ok, "%s window %s, n %d, %d x %d rows from %d, fill %d", isa,
             tensor_type_info(type)->name, n, w_rows, rows, t0, fill);
    row_free(&row);
    check_buffer_free(&y);
}

static void check_direct(struct check *c, uint32_t type, const char *isa)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    for (int i = 0; lengths[i] && lengths[i] * info->block_values <= MOST_N; i++) {
        int n = lengths[i] * info->block_values;
        const struct quant_act *acts = rounded_rows(c, n, cpu_act_block(type));
        for (enum fill fill = 0; fill < FILLS; fill++) {
            for (int w_rows = 1; w_rows <= MOST_DIRECT_ROWS; w_rows += w_rows < 8 ? 1 : 3)
                check_direct_rows(c, type, isa, n, w_rows, fill, acts);
            for (int rows = 1; rows <= 8 && table.window[type]; rows++)
                check_window_rows(c, type, isa, n, rows, fill, acts);
        }
    }
}

/* --- tiles --- */

struct tile_memory {
    struct check_buffer records, packed;
    struct cpu_tile_layout layout;
    struct cpu_tile_acts acts;
};

static struct tile_memory tile_new(int n)
{
    struct tile_memory m = {.layout = cpu_tile_layout(n)};
    m.records = check_buffer_new(CPU_TILE_W_ROWS * m.layout.bytes, 0);
    m.packed = check_buffer_new(cpu_tile_acts_bytes(n), 0);
    cpu_tile_acts_place(&m.acts, m.packed.data, n);
    return m;
}

static void tile_free(struct tile_memory *m)
{
    check_buffer_free(&m->records);
    check_buffer_free(&m->packed);
}

/* got[t * y_stride + r] against the C kernel; columns behind the last weight row are unwritten. */
static bool product_is_right(uint32_t type, const uint8_t *w, int w_rows, int n,
                             const struct quant_act *acts, int t0, int rows, const float *got,
                             int y_stride)
{
    size_t bytes = tensor_row_bytes(type, (uint64_t)n);
    struct row_memory row = row_new(n);
    bool ok = true;
    for (int r = 0; r < y_stride; r++) {
        float column[MOST_ROWS];
        if (r < w_rows) {
            c_table.unpack[type](w + (size_t)r * bytes, n, &row.row);
            dot_of(&c_table, type)(&row.row, acts, t0, rows, column, 1);
        }
        for (int t = 0; t < rows; t++) {
            uint32_t bits;
            memcpy(&bits, &got[t * y_stride + r], 4);
            ok = ok && (r < w_rows ? check_same(&column[t], &got[t * y_stride + r], 1)
                                   : bits == UNWRITTEN);
        }
    }
    row_free(&row);
    return ok;
}

/* Weight rows that end where memory ends times activation rows. */
static void check_tile_rows(struct check *c, uint32_t type, const char *isa, int n, int w_rows,
                            int rows, enum fill fill, const struct quant_act *acts)
{
    size_t bytes = tensor_row_bytes(type, (uint64_t)n);
    uint8_t *w = check_edge(0, bytes * (size_t)w_rows);
    struct tile_memory tile = tile_new(n);
    int t0 = (int)check_below(c, (uint32_t)(MOST_ROWS - rows + 1)), y_stride = w_rows + rows % 3;
    struct check_buffer y = check_buffer_new((size_t)(rows * y_stride) * 4, 4);
    fill_blocks(c, type, w, n * w_rows, fill);
    table.tile_pack(acts, t0, rows, &tile.acts);
    for (int r = 0; r < w_rows; r++)
        table.tile[type].unpack(w + (size_t)r * bytes, &tile.layout,
                                tile.records.data + (size_t)r * tile.layout.bytes);
    float *got = (float *)y.data;
    for (int i = 0; i < rows * y_stride; i++)
        ((uint32_t *)y.data)[i] = UNWRITTEN;
    table.tile[type].multiply(tile.records.data, w_rows, &tile.layout, &tile.acts, rows, got,
                              (size_t)y_stride);
    bool ok = check_buffer_intact(&y) && check_buffer_intact(&tile.records) &&
              check_buffer_intact(&tile.packed);
    ok = ok && product_is_right(type, w, w_rows, n, acts, t0, rows, got, y_stride);
    check_ok(c, ok, "%s tile %s, n %d, %d x %d rows from %d, fill %d", isa,
             tensor_type_info(type)->name, n, w_rows, rows, t0, fill);
    tile_free(&tile);
    check_buffer_free(&y);
}

static void check_tile(struct check *c, uint32_t type, const char *isa)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    for (int i = 0; lengths[i] && lengths[i] * info->block_values <= MOST_N; i++) {
        int n = lengths[i] * info->block_values;
        const struct quant_act *acts = rounded_rows(c, n, cpu_act_block(type));
        /* Every number of weight rows and of activation rows, and both full. */
        for (enum fill fill = 0; fill < FILLS; fill++) {
            for (int rows = 1; rows <= CPU_TILE_ROWS; rows++)
                check_tile_rows(c, type, isa, n, 1 + rows % CPU_TILE_W_ROWS, rows, fill, acts);
            check_tile_rows(c, type, isa, n, CPU_TILE_W_ROWS, CPU_TILE_ROWS, fill, acts);
        }
    }
}

/* --- panels --- */

/* Weight rows that end where memory ends times activation rows from t0 on. */
static void check_panel_rows(struct check *c, uint32_t type, const char *isa, int n, int w_rows,
                             int rows, enum fill fill, const struct quant_act *acts)
{
    size_t bytes = tensor_row_bytes(type, (uint64_t)n), tile_bytes = cpu_tile_acts_bytes(n);
    uint8_t *w = check_edge(0, bytes * (size_t)w_rows);
    struct cpu_tile_acts tiles[(MOST_ROWS + CPU_TILE_ROWS - 1) / CPU_TILE_ROWS];
    int n_tiles = (rows + CPU_TILE_ROWS - 1) / CPU_TILE_ROWS;
    int t0 = (int)check_below(c, (uint32_t)(MOST_ROWS - rows + 1)), y_stride = w_rows + rows % 3;
    struct check_buffer y = check_buffer_new((size_t)(rows * y_stride) * 4, 4);
    struct check_buffer packed = check_buffer_new(tile_bytes * (size_t)n_tiles, 0);
    struct check_buffer scratch = check_buffer_new(cpu_panel_bytes(n), 0);
    fill_blocks(c, type, w, n * w_rows, fill);
    for (int i = 0; i < n_tiles; i++) {
        int left = rows - i * CPU_TILE_ROWS;
        cpu_tile_acts_place(&tiles[i], (uint8_t *)packed.data + tile_bytes * (size_t)i, n);
        table.tile_pack(acts, t0 + i * CPU_TILE_ROWS, left < CPU_TILE_ROWS ? left : CPU_TILE_ROWS,
                        &tiles[i]);
    }
    float *got = (float *)y.data;
    for (int i = 0; i < rows * y_stride; i++)
        ((uint32_t *)y.data)[i] = UNWRITTEN;
    table.panel[type](w, w_rows, n, tiles, rows, scratch.data, got, (size_t)y_stride);
    bool ok = check_buffer_intact(&y) && check_buffer_intact(&packed) &&
              check_buffer_intact(&scratch);
    ok = ok && product_is_right(type, w, w_rows, n, acts, t0, rows, got, y_stride);
    check_ok(c, ok, "%s panel %s, n %d, %d x %d rows from %d, fill %d", isa,
             tensor_type_info(type)->name, n, w_rows, rows, t0, fill);
    check_buffer_free(&scratch);
    check_buffer_free(&packed);
    check_buffer_free(&y);
}

static void check_panel(struct check *c, uint32_t type, const char *isa)
{
    static const int shapes[][2] = {{1, 1},  {2, 5},   {15, 15}, {16, 16}, {17, 8},
                                    {31, 17}, {32, 33}, {9, 48},  {32, 64}, {20, 65}};
    const struct tensor_type_info *info = tensor_type_info(type);
    for (int i = 0; lengths[i] && lengths[i] * info->block_values <= MOST_N; i++) {
        int n = lengths[i] * info->block_values;
        const struct quant_act *acts = rounded_rows(c, n, cpu_act_block(type));
        for (enum fill fill = 0; fill < FILLS; fill++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                check_panel_rows(c, type, isa, n, shapes[s][0], shapes[s][1], fill, acts);
        }
    }
}

static void check_dot_float_rows(struct check *c, uint32_t type, const char *isa, int n,
                                 enum fill fill)
{
    float expected[MOST_ROWS];
    uint8_t *w = check_edge(0, tensor_row_bytes(type, (uint64_t)n));
    fill_blocks(c, type, w, n, fill);
    for (int i = 0; check_row_counts[i]; i++) {
        int rows = check_row_counts[i], y_stride = 1 + rows % 3, x_stride = n + rows % 5;
        size_t values = (size_t)((rows - 1) * x_stride + n);
        float *x = check_edge(1, values * sizeof *x);
        check_fill(c, x, values, (enum check_values)(i % CHECK_VALUES));
        struct check_buffer y = results_new(rows, y_stride);
        c_table.dot_float[type](w, x, (size_t)x_stride, n, rows, expected, 1);
        table.dot_float[type](w, x, (size_t)x_stride, n, rows, (float *)y.data, (size_t)y_stride);
        check_ok(c, same_results(expected, &y, rows, y_stride),
                 "%s dot of %s, n %d, %d rows, fill %d", isa, tensor_type_info(type)->name, n, rows,
                 fill);
        check_buffer_free(&y);
    }
}

/* Several weight rows that end where memory ends, times several activation rows. */
static void check_tile_float(struct check *c, const char *isa, int n)
{
    for (int i = 0; i < 28; i++) {
        int w_rows = 1 + i * 5 % 19, rows = 1 + i % 15, y_stride = w_rows + i % 3;
        int x_stride = n + i % 5, w_stride = n + i % 2;
        size_t weights = (size_t)((w_rows - 1) * w_stride + n);
        float *w = check_edge(0, weights * sizeof *w);
        size_t values = (size_t)((rows - 1) * x_stride + n);
        float *x = check_edge(1, values * sizeof *x);
        float expected[15];
        struct check_buffer y = check_buffer_new((size_t)(rows * y_stride) * 4, 4);
        float *got = (float *)y.data;
        for (int k = 0; k < rows * y_stride; k++)
            ((uint32_t *)y.data)[k] = UNWRITTEN;
        check_fill(c, w, weights, i % 3 ? CHECK_ORDINARY : (enum check_values)(i / 3 % CHECK_VALUES));
        check_fill(c, x, values, i % 4 ? CHECK_ORDINARY : (enum check_values)(i % CHECK_VALUES));
        table.tile_float(w, (size_t)w_stride, w_rows, x, (size_t)x_stride, n, rows, got,
                         (size_t)y_stride);
        bool ok = check_buffer_intact(&y);
        for (int r = 0; r < y_stride; r++) {
            if (r < w_rows)
                c_table.dot_float[TYPE_F32](w + (size_t)r * (size_t)w_stride, x, (size_t)x_stride, n,
                                            rows, expected, 1);
            for (int t = 0; t < rows; t++) {
                uint32_t bits;
                memcpy(&bits, &got[t * y_stride + r], 4);
                ok = ok && (r < w_rows ? check_same(&expected[t], &got[t * y_stride + r], 1)
                                       : bits == UNWRITTEN);
            }
        }
        check_ok(c, ok, "%s float tile, n %d, %d x %d rows", isa, n, w_rows, rows);
        check_buffer_free(&y);
    }
}

/* Weight rows that end where memory ends, times a window. */
static void check_window_float(struct check *c, uint32_t type, const char *isa, int n)
{
    for (int i = 0; i < 8; i++) {
        int w_rows = 1 + i * 3 % 7, rows = 1 + i % CPU_WINDOW_FLOAT_ROWS, y_stride = w_rows + i % 3;
        int x_stride = n + i % 5;
        size_t bytes = tensor_row_bytes(type, (uint64_t)n);
        uint8_t *w = check_edge(0, bytes * (size_t)w_rows);
        size_t values = (size_t)((rows - 1) * x_stride + n);
        float *x = check_edge(1, values * sizeof *x);
        float expected[CPU_WINDOW_FLOAT_ROWS];
        struct check_buffer y = check_buffer_new((size_t)(rows * y_stride) * 4, 4);
        float *got = (float *)y.data;
        for (int k = 0; k < rows * y_stride; k++)
            ((uint32_t *)y.data)[k] = UNWRITTEN;
        fill_blocks(c, type, w, n * w_rows, (enum fill)(i % FILLS));
        check_fill(c, x, values, i % 4 ? CHECK_ORDINARY : (enum check_values)(i % CHECK_VALUES));
        table.window_float[type](w, w_rows, x, (size_t)x_stride, n, rows, got, (size_t)y_stride);
        bool ok = check_buffer_intact(&y);
        for (int r = 0; r < y_stride; r++) {
            if (r < w_rows)
                c_table.dot_float[type](w + (size_t)r * bytes, x, (size_t)x_stride, n, rows,
                                        expected, 1);
            for (int t = 0; t < rows; t++) {
                uint32_t bits;
                memcpy(&bits, &got[t * y_stride + r], 4);
                ok = ok && (r < w_rows ? check_same(&expected[t], &got[t * y_stride + r], 1)
                                       : bits == UNWRITTEN);
            }
        }
        check_ok(c, ok, "%s float window of %s, n %d, %d x %d rows", isa,
                 tensor_type_info(type)->name, n, w_rows, rows);
        check_buffer_free(&y);
    }
}

/* Products that vanish below 0: their sum is -0, unless a kernel adds zeros for values or chains
 * that are not there. Behind rows of x there are NaNs, which count for nothing. */
static void check_vanishing(struct check *c, uint32_t type, const char *isa, int n)
{
    enum { W_ROWS = 3, X_ROWS = 4 };
    size_t bytes = tensor_row_bytes(type, (uint64_t)n), one = bytes / (size_t)n;
    int stride = n + 3;
    uint8_t *w = check_edge(0, bytes * W_ROWS);
    float *x = check_edge(1, ((X_ROWS - 1) * (size_t)stride + (size_t)n) * sizeof *x);
    float expected[W_ROWS * X_ROWS], got[3][W_ROWS * X_ROWS];
    for (size_t i = 0; i < bytes * W_ROWS; i++)
        w[i] = i % one == 0; /* the smallest number there is */
    for (int i = 0; i < (X_ROWS - 1) * stride + n; i++)
        x[i] = i % stride < n ? -0x1p-149f : NAN;
    for (int r = 0; r < W_ROWS; r++) {
        c_table.dot_float[type](w + (size_t)r * bytes, x, (size_t)stride, n, X_ROWS, expected + r,
                                W_ROWS);
        table.dot_float[type](w + (size_t)r * bytes, x, (size_t)stride, n, X_ROWS, got[0] + r,
                              W_ROWS);
    }
    memcpy(got[1], expected, sizeof expected);
    memcpy(got[2], expected, sizeof expected);
    if (table.tile_float && type == TYPE_F32)
        table.tile_float((const float *)(const void *)w, (size_t)n, W_ROWS, x, (size_t)stride, n,
                         X_ROWS, got[1], W_ROWS);
    if (table.window_float[type])
        table.window_float[type](w, W_ROWS, x, (size_t)stride, n, X_ROWS, got[2], W_ROWS);
    check_ok(c, !signbit(expected[0]) == (n < 32), "the sign of %d products that vanish", n);
    for (int k = 0; k < 3; k++)
        check_ok(c, check_same(expected, got[k], W_ROWS * X_ROWS),
                 "%s of %s, n %d: products that vanish, kernel %d", isa,
                 tensor_type_info(type)->name, n, k);
}

static void check_widen(struct check *c, uint32_t type, const char *isa, int n)
{
    uint8_t *w = check_edge(0, tensor_row_bytes(type, (uint64_t)n));
    float *out = check_edge(1, (size_t)n * sizeof *out), expected[MOST_N];
    for (enum fill fill = 0; fill < FILLS; fill++) {
        fill_blocks(c, type, w, n, fill);
        quant_decode(type, w, expected, (uint64_t)n);
        table.widen[type](w, n, out);
        check_ok(c, check_same(expected, out, (size_t)n), "%s widens %s, n %d, fill %d", isa,
                 tensor_type_info(type)->name, n, fill);
    }
}

/* --- packing --- */

/* Rows are packed where kernels read them so, and nowhere else. */
static void check_packing(struct check *c, uint32_t type, const char *isa)
{
    enum { OUT = 3, MOST = 17 };
    static float x[MOST * 512], y[MOST * OUT], again[MOST * OUT];
    static uint8_t weights[OUT * 512 * 4];
    struct err e = {0};
    struct cpu_linear_ctx ctx = {0};
    struct pool *pool = pool_create(1, &e);
    int n = 512;
    if (!pool || !cpu_linear_ctx_init(&ctx, pool, &table, MOST, n, &e)) {
        check_ok(c, false, "packing: %s", e.text);
        pool_free(pool);
        return;
    }
    struct cpu_product p = {{weights, type, n, OUT}, y, OUT, 0};
    const struct quant_act *a = cpu_act_block(type) == 32 ? &ctx.acts.block32 : &ctx.acts.block256;
    check_fill(c, x, sizeof x / sizeof *x, CHECK_ORDINARY);
    fill_blocks(c, type, weights, OUT * n, FILL_ORDINARY);
    for (int rows = 1; rows <= MOST; rows++) {
        size_t bytes = (size_t)(1 + (rows - 1) / CPU_TILE_ROWS) * cpu_tile_acts_bytes(n), same = 0;
        bool is_read = cpu_reads_packed(&ctx, &p.w, rows);
        bool ok = cpu_linear(&ctx, x, (size_t)n, rows, &p, 1, false, &e);
        memset(a->tiles, 0x2a, bytes);
        ok = ok && cpu_linear(&ctx, x, (size_t)n, rows, &p, 1, false, &e);
        while (same < bytes && ((const uint8_t *)a->tiles)[same] == 0x2a)
            same++;
        check_ok(c, ok && is_read == (same < bytes) && is_read == ctx.acts.packed,
                 "%s packs %d rows for %s that are %sread", isa, rows,
                 tensor_type_info(type)->name, is_read ? "" : "not ");
        memset(a->tiles, 0x2a, bytes);
        ctx.acts.packed = true;
        cpu_rows(&ctx, 0, &p.w, 0, OUT, &ctx.acts, 0, rows, again, OUT);
        check_ok(c, check_same(y, again, (size_t)rows * OUT) == !is_read,
                 "%s of %s reads %d rows packed: %d", isa, tensor_type_info(type)->name, rows,
                 is_read);
    }
    cpu_linear_ctx_free(&ctx);
    pool_free(pool);
}

/* --- all of them --- */

/* Types that public releases use are multiplied straight from the file's bytes, at the speed of
 * memory; without such a kernel they would be unpacked first. */
static void check_has_direct(struct check *c, uint32_t type, const char *isa)
{
    bool is_rare = type == TYPE_Q1_0 || type == TYPE_TQ1_0 || type == TYPE_TQ2_0;
    check_ok(c, is_rare || table.direct[type], "%s has a kernel for one row of %s", isa,
             tensor_type_info(type)->name);
}

/* Kernels that this processor never takes, for others of its instruction set have other traits. */
static void check_as(struct check *c, enum cpu_isa isa, struct cpu_traits traits, const char *name)
{
    struct cpu_matmul own = table;
    cpu_matmul_init_as(&table, isa, traits);
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        check_ok(c, table.direct[type] || !own.direct[type], "%s has a kernel for %s", name,
                 tensor_type_info(type)->name);
        if (table.unpack[type] != own.unpack[type])
            check_unpack(c, type, name);
        if (table.direct[type] &&
            (table.direct[type] != own.direct[type] || table.window[type] != own.window[type]))
            check_direct(c, type, name);
        if (table.tile[type].unpack != own.tile[type].unpack)
            check_tile(c, type, name);
    }
    table = own;
}

static void check_other_traits(struct check *c, enum cpu_isa isa)
{
    char name[64];
    struct cpu_traits here = cpu_traits_here(), other = here;
    other.slow_gather = !here.slow_gather;
    snprintf(name, sizeof name, "%s with %s gathers", cpu_isa_name(isa),
             other.slow_gather ? "slow" : "fast");
    check_as(c, isa, other, name);
    other = here;
    other.has_vbmi = false;
    snprintf(name, sizeof name, "%s without VBMI", cpu_isa_name(isa));
    if (isa == CPU_ISA_AVX512 && here.has_vbmi)
        check_as(c, isa, other, name);
}

static void run(struct check *c, enum cpu_isa isa)
{
    const char *name = cpu_isa_name(isa);
    cpu_matmul_init(&c_table, CPU_ISA_C);
    cpu_matmul_init(&table, isa);
    if (isa == CPU_ISA_C)
        return; /* what the others are compared with; tests/unit/cpu proves it */
    check_round(c, name, 32);
    check_round(c, name, 256);
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        enum quant_form form = quant_traits(type)->form;
        if (form == QUANT_INT32 || form == QUANT_INT256) {
            check_unpack(c, type, name);
            check_dot_int(c, type, name);
            check_has_direct(c, type, name);
            if (table.direct[type])
                check_direct(c, type, name);
            /* Two to eight rows would be decoded one by one. AVX2 has tiles for K types instead. */
            check_ok(c, !table.direct[type] || table.window[type] || isa == CPU_ISA_AVX2,
                     "%s has a window kernel for %s", name, tensor_type_info(type)->name);
            if (table.tile[type].unpack)
                check_tile(c, type, name);
            if (table.panel[type])
                check_panel(c, type, name);
            check_packing(c, type, name);
        } else if (form == QUANT_FLOAT) {
            for (int i = 0; float_lengths[i]; i++) {
                for (enum fill fill = 0; fill < FILLS; fill++)
                    check_dot_float_rows(c, type, name, float_lengths[i], fill);
                check_vanishing(c, type, name, float_lengths[i]);
                if (table.tile_float && type == TYPE_F32)
                    check_tile_float(c, name, float_lengths[i]);
                if (table.window_float[type])
                    check_window_float(c, type, name, float_lengths[i]);
                if (table.widen[type])
                    check_widen(c, type, name, float_lengths[i]);
            }
        }
    }
    check_other_traits(c, isa);
}

/* --- benchmark --- */

#define BENCH_N 2560
#define BENCH_SHORT_N 640 /* as the down products of experts have */
#define BENCH_TILE 64
#define BENCH_FEW 64 /* weight rows that stay in the cache */
#define BENCH_BYTES (96 << 20)

struct bench {
    struct cpu_linear_ctx ctx;
    struct cpu_weight w;
    struct cpu_acts acts, short_acts; /* of BENCH_N and BENCH_SHORT_N values */
    int weight_rows, rows;
    float *y;
};

static void bench_product(void *context)
{
    struct bench *b = context;
    const struct cpu_acts *x = b->w.n_in == BENCH_N ? &b->acts : &b->short_acts;
    cpu_rows(&b->ctx, 0, &b->w, 0, b->weight_rows, x, 0, b->rows, b->y, (size_t)b->weight_rows);
}

static double bench_seconds(struct bench *b, int weight_rows, int rows)
{
    b->weight_rows = weight_rows;
    b->rows = rows;
    return check_time(bench_product, b, weight_rows > BENCH_FEW ? 7 : 25);
}

/* The same bytes as shorter rows. */
static void bench_short_rows(struct bench *b, uint32_t type, int rows)
{
    if (BENCH_SHORT_N % tensor_type_info(type)->block_values)
        return;
    int many = rows * (BENCH_N / BENCH_SHORT_N);
    b->w.n_in = BENCH_SHORT_N;
    printf("; rows of %d values: %.1f GB/s", BENCH_SHORT_N,
           (double)many * (double)tensor_row_bytes(type, BENCH_SHORT_N) * 1e-9 /
               bench_seconds(b, many, 1));
    b->w.n_in = BENCH_N;
}

/* One row of activations with weights from memory; then 1, 4, 16 and 64 with weights from the
 * cache. */
static void bench_type(struct check *c, struct bench *b, uint32_t type, enum cpu_isa isa)
{
    size_t bytes = tensor_row_bytes(type, BENCH_N);
    int many = isa == CPU_ISA_C ? BENCH_FEW : (int)(BENCH_BYTES / bytes);
    b->w.type = type;
    for (int r = 0; r < BENCH_FEW; r++)
        fill_blocks(c, type, (uint8_t *)b->w.data + (size_t)r * bytes, BENCH_N, FILL_ORDINARY);
    for (int r = BENCH_FEW; r < many; r += BENCH_FEW)
        memcpy((uint8_t *)b->w.data + (size_t)r * bytes, b->w.data,
               bytes * (size_t)(many - r < BENCH_FEW ? many - r : BENCH_FEW));
    double one = bench_seconds(b, many, 1), gb = (double)many * (double)bytes * 1e-9;
    printf("%-8s %-13s %5.1f GB/s (%3.0f %%) %5.1f G weights/s; cached, rows:",
           tensor_type_info(type)->name, cpu_isa_name(isa), gb / one,
           100 * gb / one / c->memory_gb_s, (double)many * BENCH_N / one * 1e-9);
    for (int rows = 1; rows <= (isa == CPU_ISA_C ? 4 : BENCH_TILE); rows *= 4)
        printf(" %d %5.1f", rows,
               (double)BENCH_FEW * BENCH_N * rows / bench_seconds(b, BENCH_FEW, rows) * 1e-9);
    printf(" G MAC/s");
    bench_short_rows(b, type, many);
    printf("\n");
}

static void bench(struct check *c, enum cpu_isa isa)
{
    struct err e = {0};
    struct pool *pool = pool_create(1, &e);
    struct bench b = {.w = {.n_in = BENCH_N}};
    cpu_matmul_init(&table, isa);
    void *weights = mem_map(BENCH_BYTES, "weights", &e); /* large pages, as models have */
    float *x = aligned_alloc(64, sizeof *x * BENCH_N * BENCH_TILE);
    b.y = malloc(sizeof *b.y * BENCH_BYTES / 64);
    if (!pool || !weights || !x || !b.y ||
        !cpu_linear_ctx_init(&b.ctx, pool, &table, BENCH_TILE, BENCH_N, &e)) {
        check_skip(c, "benchmark of products: no memory");
        return;
    }
    check_fill(c, x, (size_t)BENCH_N * BENCH_TILE, CHECK_ORDINARY);
    b.acts = b.ctx.acts;
    b.acts.x = x;
    b.acts.x_stride = BENCH_N;
    for (int t = 0; t < BENCH_TILE; t++) {
        cpu_act_round(&b.ctx, x + t * BENCH_N, &b.acts.block32, t);
        cpu_act_round(&b.ctx, x + t * BENCH_N, &b.acts.block256, t);
    }
    static _Alignas(64) uint8_t memory[1 << 16];
    b.short_acts = (struct cpu_acts){.x = x, .x_stride = BENCH_SHORT_N};
    cpu_act_place(&b.short_acts.block32, memory, 1, BENCH_SHORT_N, 32);
    cpu_act_round(&b.ctx, x, &b.short_acts.block32, 0);
    cpu_act_pack(&b.ctx, &b.acts.block32, 0, BENCH_TILE);
    cpu_act_pack(&b.ctx, &b.acts.block256, 0, BENCH_TILE);
    b.acts.packed = true;
    b.w.data = weights;
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        if (quant_traits(type)->form != QUANT_NONE &&
            check_bench_wanted(c, tensor_type_info(type)->name))
            bench_type(c, &b, type, isa);
    }
    cpu_linear_ctx_free(&b.ctx);
    pool_free(pool);
    mem_unmap(weights, BENCH_BYTES);
    free(x);
    free(b.y);
}

const struct check_area check_area_matmul = {.name = "matmul", .run = run, .bench = bench};
