/* SPDX-License-Identifier: Apache-2.0 */
#include "text/sample.h"

#include <float.h>
#include <math.h> /* classification only */

#include "base/fmath.h"
#include "base/half.h"
#include "base/mem.h"

/* Below this difference to the largest score (over the temperature) a token cannot matter: 2^22 of
 * them together are less than 2^-24 of the largest one. */
#define NEGLIGIBLE -32.0f

struct sampler {
    size_t n_vocab;
    float *scores;  /* [n_vocab] logits after the penalties */
    uint64_t *heap; /* [n_gathered] tokens not taken yet as a heap, best first; then those taken */
    uint32_t *counts;  /* [n_vocab] all zero between calls */
    size_t n_gathered; /* tokens that top-k leaves, at most n_vocab */
    size_t n_heap;     /* of these in the heap */
    size_t n_taken;    /* behind it, the k-th best at heap[n_gathered - 1 - k] */
    float largest, temp;
};

/* ---- Options ---- */

bool sampling_defaults(const struct gguf_file *g, struct sampling *out, struct err *e)
{
    double temp = 0.7, top_p = 0.9, min_p = 0, repetition = 1;
    uint64_t top_k = 20;
    if (!gguf_get_f64(g, "general.sampling.temp", false, &temp, e) ||
        !gguf_get_u64(g, "general.sampling.top_k", false, &top_k, e) ||
        !gguf_get_f64(g, "general.sampling.top_p", false, &top_p, e) ||
        !gguf_get_f64(g, "general.sampling.min_p", false, &min_p, e) ||
        !gguf_get_f64(g, "general.sampling.penalty_repeat", false, &repetition, e))
        return false;
    *out = (struct sampling){
        .temp = (float)temp,
        .top_k = top_k > INT32_MAX ? INT32_MAX : (int)top_k,
        .top_p = (float)top_p,
        .min_p = (float)min_p,
        .repetition_penalty = (float)repetition,
    };
    struct err range;
    err_clear(&range);
    return sampling_check(out, &range) ||
           err_set(e, ERR_FORMAT, "%s: general.sampling: %s", gguf_part_path(g, 0), range.text);
}

bool sampling_check(const struct sampling *p, struct err *e)
{
    if (!(p->temp >= 0 && p->temp <= FLT_MAX))
        return err_set(e, ERR_USAGE, "temperature is %g, must be 0 or more", (double)p->temp);
    if (p->top_k < 0)
        return err_set(e, ERR_USAGE, "top-k is %d, must be 0 or more", p->top_k);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return err_set(e, ERR_USAGE, "top-p is %g, must be above 0 and at most 1",
                       (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(e, ERR_USAGE, "min-p is %g, must be from 0 to 1", (double)p->min_p);
    if (!(p->repetition_penalty > 0 && p->repetition_penalty <= FLT_MAX))
        return err_set(e, ERR_USAGE, "the repetition penalty is %g, must be above 0",
                       (double)p->repetition_penalty);
    if (!isfinite(p->presence_penalty) || !isfinite(p->frequency_penalty))
        return err_set(e, ERR_USAGE, "the presence and the frequency penalty must be finite");
    return true;
}

/* ---- Random numbers ---- */

/* A one-to-one scrambling of 64 bits in which every bit of the input changes each bit of the output
 * with even chance (xor-shifts and odd multipliers; the constants are those of splitmix64). */
static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Counter-based: the seed is scrambled into a key, key and position are scrambled together. No
 * state goes from one draw to the next, and neighbouring seeds share no sequence. */
double sampling_draw(uint64_t seed, uint64_t position)
{
    uint64_t key = scramble(seed + 0x9e3779b97f4a7c15u);
    return (double)(scramble(scramble(position ^ key) + key) >> 11) * 0x1p-53;
}

/* ---- Work space ---- */

struct sampler *sampler_create(size_t n_vocab, struct err *e)
{
    struct sampler *s = mem_alloc(sizeof *s, "sampler", e);
    if (!s)
        return NULL;
    s->n_vocab = n_vocab;
    s->scores = mem_alloc_array(n_vocab, sizeof *s->scores, "sampler", e);
    s->heap = mem_alloc_array(n_vocab, sizeof *s->heap, "sampler", e);
    s->counts = mem_alloc_array(n_vocab, sizeof *s->counts, "sampler", e);
    if (s->scores && s->heap && s->counts && n_vocab)
        return s;
    if (!n_vocab)
        err_set(e, ERR_FORMAT, "the vocabulary is empty");
    sampler_free(s);
    return NULL;
}

size_t sampler_memory(size_t n_vocab)
{
    struct sampler *s = NULL;
    return sizeof *s + n_vocab * (sizeof *s->scores + sizeof *s->heap + sizeof *s->counts);
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    mem_free(s->scores);
    mem_free(s->heap);
    mem_free(s->counts);
    mem_free(s);
}

/* ---- Scores ---- */

static bool copy_logits(struct sampler *s, const float *logits, struct err *e)
{
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return err_set(e, ERR_NUMERIC, "the logit of token %zu is %s", i,
                           isnan(logits[i]) ? "NaN" : "infinite");
        s->scores[i] = logits[i];
    }
    return true;
}

static bool is_token(const struct sampler *s, int32_t id)
{
    return id >= 0 && (size_t)id < s->n_vocab;
}

/* Penalties on the ids [from, to), each once. A penalty near 0 must not make infinity, and what is
 * infinitely bad stays so whatever a negative one gives it: their difference may be NaN. */
static void penalize(struct sampler *s, const int32_t *ids, size_t from, size_t to,
                     float repetition, float presence, float frequency)
{
    for (size_t i = from; i < to; i++)
        if (is_token(s, ids[i]))
            s->counts[ids[i]]++;
    for (size_t i = from; i < to; i++) {
        if (!is_token(s, ids[i]) || !s->counts[ids[i]])
            continue;
        float *score = &s->scores[ids[i]];
        *score = *score > 0 ? *score / repetition : *score * repetition;
        if (*score >= -FLT_MAX)
            *score -= presence + frequency * (float)s->counts[ids[i]];
        if (*score > FLT_MAX)
            *score = FLT_MAX;
        s->counts[ids[i]] = 0;
    }
}

static bool find_largest(struct sampler *s, int32_t *id, struct err *e)
{
    size_t best = 0;
    for (size_t i = 1; i < s->n_vocab; i++)
        if (s->scores[i] > s->scores[best])
            best = i;
    s->largest = s->scores[best];
    *id = (int32_t)best;
    return isfinite(s->largest) || err_set(e, ERR_NUMERIC, "no logit is finite");
}

/* Probability of a token as a part of the largest one. */
static double weight(const struct sampler *s, size_t id)
{
    float z = (s->scores[id] - s->largest) / s->temp;
    return z < NEGLIGIBLE ? 0 : (double)fmath_exp(z);
}

/* ---- Tokens from the best one down ---- */

/* A key that is larger for the better token: by score, then by lower id. */
static uint64_t key_of(float score, size_t id)
{
    uint32_t bits = half_f32_bits(score + 0.0f); /* -0 and 0 are equal */
    uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (uint32_t)~id;
}

static size_t id_of(uint64_t key)
{
    return (uint32_t)~key;
}

/* Puts a key where heap[i] was free, below it in the heap. */
static void sift_down(uint64_t *heap, size_t n, size_t i, uint64_t key)
{
    for (size_t down; (down = 2 * i + 1) < n; i = down) {
        if (down + 1 < n && heap[down + 1] > heap[down])
            down++;
        if (heap[down] <= key)
            break;
        heap[i] = heap[down];
    }
    heap[i] = key;
}

static void build_heap(uint64_t *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i, heap[i]);
}

/* Makes a heap of the `limit` best tokens. On the way the keys are inverted: then the worst of
 * those kept so far is on top, and most tokens cost one comparison with it. */
static void gather(struct sampler *s, size_t limit)
{
    uint64_t *heap = s->heap;
    for (size_t i = 0; i < limit; i++)
        heap[i] = ~key_of(s->scores[i], i);
    if (limit < s->n_vocab)
        build_heap(heap, limit);
    for (size_t i = limit; i < s->n_vocab; i++) {
        uint64_t inverted = ~key_of(s->scores[i], i);
        if (inverted < heap[0])
            sift_down(heap, limit, 0, inverted);
    }
    for (size_t i = 0; i < limit; i++)
        heap[i] = ~heap[i];
    build_heap(heap, limit);
    s->n_gathered = s->n_heap = limit;
    s->n_taken = 0;
}

/* Id of the k-th best token, k from 0. Those before it have been asked for. */
static size_t ranked(struct sampler *s, size_t k)
{
    while (s->n_taken <= k) {
        uint64_t best = s->heap[0];
        s->n_heap--;
        if (s->n_heap)
            sift_down(s->heap, s->n_heap, 0, s->heap[s->n_heap]);
        s->heap[s->n_heap] = best;
        s->n_taken++;
    }
    return id_of(s->heap[s->n_gathered - 1 - k]);
}

/* How many of the best tokens may be drawn, and the sum of their weights. */
static size_t keep(struct sampler *s, const struct sampling *p, double *sum)
{
    bool few = p->top_k && (size_t)p->top_k < s->n_vocab;
    size_t limit = few ? (size_t)p->top_k : s->n_vocab, n = 0;
    double total = 0, reached = 0;
    gather(s, limit);
    if (few) {
        for (size_t k = 0; k < limit; k++)
            total += weight(s, ranked(s, k));
    } else {
        for (size_t i = 0; i < limit; i++)
            total += weight(s, i);
    }
    *sum = total;
    if (p->top_p >= 1 && p->min_p <= 0)
        return limit;
    while (n < limit && (p->top_p >= 1 || reached < p->top_p * total)) {
        double w = weight(s, ranked(s, n));
        if (n && (w < (double)p->min_p || w == 0))
            break;
        reached += w;
        n++;
    }
    *sum = reached;
    return n;
}

bool sampler_choose(struct sampler *s, const struct sampling *p, const float *logits,
                    const int32_t *ids, size_t n_ids, size_t answer_start, int32_t *id,
                    struct err *e)
{
    if (!copy_logits(s, logits, e))
        return false;
    size_t window = n_ids < SAMPLING_WINDOW ? 0 : n_ids - SAMPLING_WINDOW;
    if (p->repetition_penalty != 1)
        penalize(s, ids, window, n_ids, p->repetition_penalty, 0, 0);
    if (p->presence_penalty != 0 || p->frequency_penalty != 0)
        penalize(s, ids, answer_start, n_ids, 1, p->presence_penalty, p->frequency_penalty);
    if (!find_largest(s, id, e))
        return false;
    if (p->temp == 0)
        return true;
    s->temp = p->temp;
    double sum;
    size_t n = keep(s, p, &sum), k = 0;
    double left = sampling_draw(p->seed, n_ids) * sum - weight(s, ranked(s, 0));
    /* The sums are rounded: the last token that has any weight takes what is left. */
    for (double w; left >= 0 && k + 1 < n && (w = weight(s, ranked(s, k + 1))) > 0; k++)
        left -= w;
    *id = (int32_t)ranked(s, k);
    return true;
}
