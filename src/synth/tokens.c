/* SPDX-License-Identifier: Apache-2.0 */
#include "synth/tokens.h"

#include <string.h>

#include "base/mem.h"

enum { POOL = 4096 };
#define SPECIAL_NORM 0.5f /* of their rows of the head */
enum purpose { BASIS, TOPICS, OWN, SPECIAL, TEXT, ROUTERS, JOINS = 1 << 30 };

static int64_t common(int64_t a, int64_t b)
{
    return b ? common(b, a % b) : a;
}

/* x with a * x mod n = 1, by trying: n is small. */
static int64_t inverse(int64_t a, int64_t n)
{
    int64_t r0 = n, r1 = a % n, x0 = 0, x1 = 1;
    while (r1) {
        int64_t q = r0 / r1, r = r0 - q * r1, x = x0 - q * x1;
        r0 = r1;
        r1 = r;
        x0 = x1;
        x1 = x;
    }
    return x0 < 0 ? x0 + n : x0;
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void scale(float *x, int n, double by)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * by);
}

static void add_scaled(float *to, const float *x, int n, float by)
{
    for (int i = 0; i < n; i++)
        to[i] += by * x[i];
}

/* Gram-Schmidt on random vectors. */
static void make_basis(struct tokens *t)
{
    int d = t->shape->embd;
    struct synth_random r = random_stream(t->seed, BASIS);
    for (int i = 0; i <= SYNTH_TOPICS; i++) {
        float *x = t->basis + (size_t)i * (size_t)d;
        random_normal(&r, x, d, 1);
        for (int j = 0; j < i; j++) {
            const float *y = t->basis + (size_t)j * (size_t)d;
            add_scaled(x, y, d, (float)-dot(x, y, d));
        }
        scale(x, d, 1 / sqrt(dot(x, x, d)));
    }
}

static void make_topics(struct tokens *t)
{
    float rho = fmath_exp((float)(-1 / SYNTH_TOPIC_LENGTH)), step = sqrtf(1 - rho * rho);
    struct synth_random r = random_stream(t->seed, TOPICS);
    float v[SYNTH_TOPICS], change[SYNTH_TOPICS];
    random_normal(&r, v, SYNTH_TOPICS, 1);
    for (int64_t i = 0; i < t->n; i++) {
        random_normal(&r, change, SYNTH_TOPICS, step);
        for (int j = 0; j < SYNTH_TOPICS; j++)
            v[j] = rho * v[j] + change[j];
        memcpy(t->topic + i * SYNTH_TOPICS, v, sizeof v);
    }
}

static void make_vectors(struct tokens *t)
{
    int d = t->shape->embd;
    struct synth_random r = random_stream(t->seed, OWN);
    for (int i = 0; i < POOL; i++) {
        float *x = t->own + (size_t)i * (size_t)d;
        random_normal(&r, x, d, 1);
        scale(x, d, 1 / sqrt(dot(x, x, d)));
    }
    r = random_stream(t->seed, SPECIAL);
    random_normal(&r, t->special, SYNTH_SPECIAL * d, (float)(1 / sqrt(d)));
}

bool tokens_create(struct tokens *t, const struct synth_shape *s, int layers, int vocab,
                   uint64_t seed, struct err *e)
{
    size_t d = (size_t)s->embd, n = (size_t)(vocab - SYNTH_SPECIAL);
    *t = (struct tokens){.shape = s, .seed = seed, .n = (int64_t)n, .step = 40503};
    while (common(t->step, t->n) != 1)
        t->step += 2;
    t->back = inverse(t->step, t->n);
    double growth = sqrt(1 + 2 * layers * SYNTH_BLOCK_OUT * SYNTH_BLOCK_OUT);
    t->head_norm = (float)(s->head_norm * growth);
    t->basis = mem_alloc_array((1 + SYNTH_TOPICS) * d, sizeof(float), "topics", e);
    t->topic = mem_alloc_array(n * SYNTH_TOPICS, sizeof(float), "topics", e);
    t->own = mem_alloc_array(POOL * d, sizeof(float), "token vectors", e);
    t->special = mem_alloc_array(SYNTH_SPECIAL * d, sizeof(float), "token vectors", e);
    if (!t->basis || !t->topic || !t->own || !t->special)
        return false;
    make_basis(t);
    make_topics(t);
    make_vectors(t);
    return true;
}

void tokens_free(struct tokens *t)
{
    mem_free(t->basis);
    mem_free(t->topic);
    mem_free(t->own);
    mem_free(t->special);
}

/* to += by * the own vector of an id: one of the pool, rotated by what the id has beyond it. */
static void add_own(const struct tokens *t, int64_t id, float by, float *to)
{
    int d = t->shape->embd, shift = (int)((id >> 12) * 37 % d);
    const float *x = t->own + (size_t)(id & (POOL - 1)) * (size_t)d;
    add_scaled(to, x + shift, d - shift, by);
    add_scaled(to + (d - shift), x, shift, by);
}

void tokens_embed(const struct tokens *t, int64_t id, float *out)
{
    int d = t->shape->embd;
    float length = sqrtf((float)d); /* elements have RMS 1 */
    memset(out, 0, (size_t)d * sizeof *out);
    if (id >= t->n) {
        add_scaled(out, t->special + (id - t->n) * d, d, length);
        return;
    }
    const float *z = t->topic + id * t->back % t->n * SYNTH_TOPICS;
    float by = length * (float)sqrt(SYNTH_E_TOPIC / SYNTH_TOPICS);
    add_own(t, id, length * (float)sqrt(SYNTH_E_TOKEN), out);
    add_scaled(out, t->basis, d, length * (float)sqrt(SYNTH_E_CONST));
    for (int j = 0; j < SYNTH_TOPICS; j++)
        add_scaled(out, t->basis + (size_t)(1 + j) * (size_t)d, d, by * z[j]);
}

void tokens_head(const struct tokens *t, int64_t id, float *out)
{
    int d = t->shape->embd;
    memset(out, 0, (size_t)d * sizeof *out);
    if (id >= t->n) {
        add_scaled(out, t->special + (id - t->n) * d, d, SPECIAL_NORM);
        return;
    }
    int64_t before = (id * t->back + t->n - 1) % t->n;
    add_own(t, before * t->step % t->n, t->head_norm, out);
}

void tokens_router(const struct tokens *t, int layer, int before, int expert, float *out)
{
    const struct synth_shape *s = t->shape;
    struct synth_random r =
        random_stream(t->seed, ROUTERS + (uint64_t)layer * 65536 + (uint64_t)expert);
    double deep = sqrt(1 + 2 * before * SYNTH_BLOCK_OUT *
                               SYNTH_BLOCK_OUT); /* the embedding's share shrinks */
    double length = s->x_rms * sqrt(s->embd);    /* of the vector that enters the router */
    double popular = (double)random_between(&r, -1, 1) * sqrt(3) * SYNTH_R_POPULAR;
    float topic[SYNTH_TOPICS];
    random_normal(&r, topic, SYNTH_TOPICS, 1);
    double by = SYNTH_R_TOPIC / sqrt(dot(topic, topic, SYNTH_TOPICS)) * deep /
                (length * sqrt(SYNTH_E_TOPIC / SYNTH_TOPICS));
    random_normal(&r, out, s->embd, (float)(SYNTH_R_NOISE / (length * sqrt(SYNTH_E_TOKEN))));
    add_scaled(out, t->basis, s->embd, (float)(popular * deep / (length * sqrt(SYNTH_E_CONST))));
    for (int j = 0; j < SYNTH_TOPICS; j++)
        add_scaled(out, t->basis + (size_t)(1 + j) * (size_t)s->embd, s->embd,
                   (float)by * topic[j]);
}

/* ---- The draft layer ------------------------------------------------------------------------ */

static double density(double x)
{
    return 0.39894228 * (double)fmath_exp((float)(-x * x / 2));
}

/* The probability that a normal number around `ahead` is larger than those of all other tokens
 * around 0, of deviation 1 but for the special ones: the integral over x of its density times
 * exp(-n Q(x)), Q being what lies above x. */
static double wins(const struct tokens *t, double ahead)
{
    const double step = 1.0 / 64, special = (double)(SPECIAL_NORM / t->head_norm);
    double others = 0, sum = 0;
    for (int i = 24 * 64; i > 0; i--) { /* from far above downwards, so that Q is exact there */
        double x = (i - 0.5) * step;
        double more = (double)t->n * density(x) + SYNTH_SPECIAL * density(x / special) / special;
        others += more * step / 2;
        sum += others < 80 ? density(x - ahead) * step * (double)fmath_exp((float)-others) : 0;
        others += more * step / 2;
    }
    return sum;
}

double tokens_draft_kept(const struct tokens *t, double right)
{
    if (right >= 1)
        return 1;
    int embd = t->shape->embd;
    double least = 0, most = 16;
    for (int i = 0; i < 20 && right > 0; i++) {
        double middle = (least + most) / 2;
        if (wins(t, middle) < right)
            least = middle;
        else
            most = middle;
    }
    /* Against the row of any other token all that arrives is noise; two blocks have added to it. */
    double noise = sqrt(1 + 2 * SYNTH_BLOCK_OUT * SYNTH_BLOCK_OUT);
    double part = least * noise / sqrt(SYNTH_E_TOKEN * embd);
    double shared = (1 + SYNTH_TOPICS) / (double)embd; /* goes through with the topics */
    double kept = ((part < 1 ? part : 1) - shared) / (1 - shared);
    return rint(kept * 4096) / 4096; /* the same on all machines */
}

void tokens_join(const struct tokens *t, double kept, int row, float *out)
{
    int d = t->shape->embd;
    struct synth_random r = random_stream(t->seed, JOINS + (uint64_t)row);
    double noise = SYNTH_E_TOKEN * (1 - kept * kept); /* half of it of either vector */
    random_normal(&r, out, 2 * d, (float)sqrt(noise / (2 * d)));
    for (int j = 0; j <= SYNTH_TOPICS; j++) {
        const float *x = t->basis + (size_t)j * (size_t)d;
        add_scaled(out, x, d, (float)(1 - kept) * x[row]);
    }
    out[row] += (float)kept;
}

void tokens_text(const struct tokens *t, int n, int32_t *out)
{
    struct synth_random r = random_stream(t->seed, TEXT);
    int64_t place = (int64_t)random_below(&r, (uint64_t)t->n);
    for (int i = 0; i < n; i++) {
        out[i] = (int32_t)(place * t->step % t->n);
        bool jumps = random_unit(&r) <= 0.015f;
        place += jumps ? -1 - (int64_t)random_below(&r, 50) : 1;
        place = (place % t->n + t->n) % t->n;
    }
}
