/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hparams.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

struct full_key {
    char text[128];
};

static struct full_key full(const struct hparams *h, const char *name)
{
    struct full_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", h->arch, name);
    return k;
}

bool hparam_refuse(struct hparams *h, const char *name, const char *what, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    return err_set(h->e, ERR_FORMAT, "%s: key \"%s.%s\": %s", gguf_part_path(h->file, 0), h->arch,
                   name, text);
}

bool hparam_has(const struct hparams *h, const char *name)
{
    return gguf_key_find(h->file, full(h, name).text) != NULL;
}

static int in_range(struct hparams *h, const char *name, int64_t v, int64_t least, int64_t most)
{
    if (v < least || v > most) {
        hparam_refuse(h, name, "%lld is not in %lld..%lld", (long long)v, (long long)least,
                      (long long)most);
        v = least;
    }
    return (int)v;
}

int hparam_int(struct hparams *h, const char *name, int64_t least, int64_t most)
{
    int64_t v = least;
    if (!gguf_get_i64(h->file, full(h, name).text, true, &v, h->e))
        return (int)least;
    return in_range(h, name, v, least, most);
}

int hparam_int_or(struct hparams *h, const char *name, int64_t least, int64_t most, int missing)
{
    return hparam_has(h, name) ? hparam_int(h, name, least, most) : missing;
}

void hparam_key(const struct hparams *h, const char *name, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s.%s", h->arch, name);
}

float hparam_float(struct hparams *h, const char *name)
{
    double v = 0;
    if (!gguf_get_f64(h->file, full(h, name).text, true, &v, h->e))
        return 0;
    if (!isfinite((float)v))
        hparam_refuse(h, name, "%g is not a finite number", v);
    return (float)v;
}

float hparam_positive(struct hparams *h, const char *name)
{
    float v = hparam_float(h, name);
    if (!(v > 0)) {
        hparam_refuse(h, name, "%g is not a positive number", (double)v);
        v = 1;
    }
    return v;
}

void hparam_ints(struct hparams *h, const char *name, int n, int64_t least, int64_t most, int *out)
{
    int64_t *v = mem_alloc_array((size_t)n, sizeof *v, name, h->e);
    bool ok = v && gguf_fill_i64(h->file, full(h, name).text, true, v, (size_t)n, h->e);
    for (int i = 0; i < n; i++)
        out[i] = ok ? in_range(h, name, v[i], least, most) : (int)least;
    mem_free(v);
}

int hparam_largest(struct hparams *h, const char *name, int n, int64_t least, int64_t most)
{
    int found = (int)least;
    int *v = mem_alloc_array((size_t)n, sizeof *v, name, h->e);
    if (!v)
        return found;
    hparam_ints(h, name, n, least, most, v);
    for (int i = 0; i < n; i++)
        found = v[i] > found ? v[i] : found;
    mem_free(v);
    return found;
}

void hparam_u64s(struct hparams *h, const char *name, int n, uint64_t *out)
{
    uint64_t *v = NULL;
    size_t count = 0;
    bool ok = gguf_get_u64_array(h->file, full(h, name).text, true, 1 << 16, &v, &count, h->e);
    if (ok && count < (size_t)n)
        ok = hparam_refuse(h, name, "%zu values, expected at least %d", count, n);
    for (int i = 0; i < n; i++)
        out[i] = ok ? v[i] : 1;
    mem_free(v);
}

int hparam_count(const struct hparams *h, const char *name)
{
    const struct gguf_key *k = gguf_key_find(h->file, full(h, name).text);
    if (!k)
        return 0;
    if (k->type != GGUF_ARRAY)
        return 1;
    return k->count > HPARAM_SIZE_MOST ? HPARAM_SIZE_MOST : (int)k->count;
}
