/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose hyper-parameters, tensor tables and weights are not what they should be: opening
 * refuses them or keeps within bounds, and a model that opens can be run. The input is not a file
 * but a list of edits to a golden model, since almost every change to the bytes of a file is caught
 * by the GGUF reader already. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../unit/model/plain.h"
#include "base/file.h"
#include "base/mem.h"
#include "cpu/backend.h"
#include "fuzz.h"

#define MEMORY_MOST ((size_t)64 << 20) /* of opening; larger models are not run */
#define OPEN_SECONDS_MOST 5
#define PLACES_MOST 8192

/* Numbers that can be edited. */
struct place {
    uint64_t at;
    size_t bytes;
};

struct places {
    struct place list[PLACES_MOST];
    size_t n;
};

/* A golden model in memory, and where its numbers are. */
struct original {
    uint8_t *bytes;
    size_t size;
    int fd; /* a file in memory with the same content, edited and put back */
    char path[64];
    struct places keys, elements, tensors;
};

static const char *const names[] = {"q4e_plain", "q4e_sparse", "q4e_ngram", "q4e_fused",
                                    "q3m_plain", "q3m_yarn",   "q3n_plain", "q3n_legacy",
                                    "q35_plain", "q35_fused",  "q35_q4km"};
#define MODELS (sizeof names / sizeof *names)

static void add(struct places *p, uint64_t at, size_t bytes)
{
    fuzz_require(p->n < PLACES_MOST);
    p->list[p->n++] = (struct place){at, bytes};
}

static void find_keys(struct original *o, const struct gguf_file *g)
{
    for (size_t i = 0; i < gguf_key_count(g); i++) {
        const struct gguf_key *k = gguf_key_at(g, i);
        if (strncmp(k->name, "q", 1)) /* ARCH.*, not tokenizer.* or general.* */
            continue;
        if (k->type == GGUF_ARRAY)
            for (uint64_t j = 0; j < k->count; j++)
                add(&o->elements, k->offset + j * (k->bytes / k->count), k->bytes / k->count);
        else if (k->type != GGUF_STRING)
            add(&o->keys, k->offset, (size_t)k->bytes);
    }
}

/* A tensor's entry is: length and name, number of dimensions, dimensions, type, offset. */
static void find_tensors(struct original *o, const struct gguf_file *g)
{
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t n = strlen(t->name);
        const uint8_t *name = memmem(o->bytes, gguf_part_header_bytes(g, 0), t->name, n);
        while (name && name[n] != t->n_dims) /* "blk.1" also begins "blk.10" */
            name = memmem(name + 1, o->size - (size_t)(name + 1 - o->bytes), t->name, n);
        fuzz_require(name);
        uint64_t at = (uint64_t)(name - o->bytes) + n;
        add(&o->tensors, at, 4);
        for (uint32_t d = 0; d < t->n_dims; d++)
            add(&o->tensors, at + 4 + 8 * (uint64_t)d, 8);
        add(&o->tensors, at + 4 + 8 * (uint64_t)t->n_dims, 4);
    }
}

static struct original *load(size_t which)
{
    static struct original all[MODELS];
    struct original *o = &all[which];
    char path[512];
    if (o->bytes)
        return o;
    snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", names[which]);
    char *bytes = file_read_all(path, (size_t)1 << 24, &o->size, NULL);
    fuzz_require(bytes);
    o->bytes = malloc(o->size); /* not counted as the library's memory */
    fuzz_require(o->bytes);
    memcpy(o->bytes, bytes, o->size);
    mem_free(bytes);
    o->fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(o->path, sizeof o->path, "/proc/self/fd/%d", o->fd);
    fuzz_require(pwrite(o->fd, o->bytes, o->size, 0) == (ssize_t)o->size);
    struct gguf_file *g = gguf_open(path, NULL);
    fuzz_require(g);
    find_keys(o, g);
    find_tensors(o, g);
    gguf_close(g);
    return o;
}

/* ---- edits ---- */

struct bytes {
    const uint8_t *at;
    size_t left;
};

static uint64_t take(struct bytes *in, int n)
{
    uint64_t v = 0;
    for (; n && in->left; n--, in->left--)
        v = v << 8 | *in->at++;
    return v;
}

/* Edge cases of integers and floats, neighbours of what is there, or any bits. */
static uint64_t new_number(struct bytes *in, uint64_t old)
{
    static const uint64_t edges[] = {
        0,          1,          2,          3,          5,          8,          16,
        31,         255,        256,        4096,       4097,       65535,      65536,
        1 << 20,    1 << 24,    0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000,
        0x7f800000, 0x7fc00000, 0x00000001, 0x7f7fffff, 0x41200000, UINT64_MAX, 1ull << 62};
    const size_t n = sizeof edges / sizeof *edges;
    size_t choice = (size_t)take(in, 1) % (n + 5);
    const uint64_t other[] = {old + 1, old - 1, old * 2, old / 2};
    return choice < n ? edges[choice] : choice < n + 4 ? other[choice - n] : take(in, 8);
}

static struct place choose(const struct original *o, struct bytes *in)
{
    unsigned kind = (unsigned)take(in, 1) % 16;
    uint64_t which = take(in, 3);
    const struct places *p = kind < 7 ? &o->keys : kind < 9 ? &o->elements : &o->tensors;
    if (kind < 10 && p->n)
        return p->list[which % p->n];
    return (struct place){which % (o->size - 4), 4}; /* anywhere, mostly weights */
}

static void edit(struct original *o, struct bytes *in)
{
    struct place p = choose(o, in);
    uint64_t old = 0;
    memcpy(&old, o->bytes + p.at, p.bytes);
    uint64_t v = new_number(in, old);
    fuzz_require(pwrite(o->fd, &v, p.bytes, (off_t)p.at) == (ssize_t)p.bytes);
}

static void put_back(struct original *o)
{
    fuzz_require(pwrite(o->fd, o->bytes, o->size, 0) == (ssize_t)o->size);
}

/* ---- opening and running ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool keep_logits(void *ctx, int first, int rows, const float *logits, struct err *e)
{
    float *sum = ctx;
    for (int r = 0; r < rows; r++)
        *sum += logits[r];
    return true;
}

/* Small enough to be run here. */
static bool is_small(const struct model *m)
{
    struct backend_limits l;
    model_backend_limits(m, 4, 4, 1024, &l);
    return model_info(m)->trunk_bytes < MEMORY_MOST && model_scratch_bytes(m, 4, 4) < MEMORY_MOST &&
           model_state_bytes(m, 16, KV_F16) < MEMORY_MOST && l.n_in < 1 << 20;
}

/* Two windows of a few ids: logits or an error. */
static void run(const struct original *o)
{
    static const int32_t ids[] = {0, 7, 7, 11, 2, 100};
    const struct plain_how how = {1, 4, 4, false, 64, cpu_isa_best()};
    struct plain p;
    struct err e = {0};
    float sum = 0;
    if (!plain_open(&p, o->path, &how, &e)) {
        fuzz_require(e.code != ERR_NONE);
        return;
    }
    struct model_state *s = model_state_create(p.model, 16, KV_F16, &e);
    struct expert_source x = plain_experts(&p);
    struct row_source rows = plain_rows(&p);
    bool ok = s != NULL;
    for (int at = 0; ok && at < 6; at += 3) {
        struct batch b = {.ids = ids + at,
                          .rows = 3,
                          .is_band = at == 0,
                          .wanted = LOGITS_ALL,
                          .logits = keep_logits,
                          .logits_ctx = &sum};
        ok = model_forward(p.model, s, &b, &x, &rows, &e);
    }
    fuzz_require(ok == (e.code == ERR_NONE));
    model_state_free(s);
    plain_close(&p);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    struct bytes in = {data, size};
    struct original *o = load((size_t)take(&in, 1) % MODELS);
    size_t before = mem_in_use();
    unsigned edits = (unsigned)take(&in, 1) % 8; /* mostly one: two are rarely both survived */
    edits = edits < 6 ? 1 : edits - 4;
    for (; edits && in.left; edits--)
        edit(o, &in);
    struct err e = {0};
    struct gguf_file *g = gguf_open(o->path, &e);
    if (g) {
        double start = seconds();
        struct model *m = model_open(g, &e);
        fuzz_require(seconds() - start < OPEN_SECONDS_MOST);
        fuzz_require(mem_in_use() - before < MEMORY_MOST);
        fuzz_require(m || (e.code != ERR_NONE && strstr(e.text, o->path) == e.text));
        bool small = m && is_small(m);
        model_free(m);
        if (small)
            run(o);
    }
    gguf_close(g);
    put_back(o);
    fuzz_require(mem_in_use() == before);
    return 0;
}
