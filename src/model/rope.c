/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Pair j takes its position from stream j mod 3 while 3 * section lasts; a pair beyond would not
 * turn at all for text. The real files leave none. */
static bool sections_cover(struct hparams *h, int pairs)
{
    int section[4];
    if (!hparam_has(h, "rope.dimension_sections"))
        return true;
    hparam_ints(h, "rope.dimension_sections", 4, 0, 1 << 16, section);
    int all = section[0] + section[1] + section[2] + section[3];
    for (int j = 0; h->e->code == ERR_NONE && j < pairs; j++) {
        int c = all ? j % all : 0;
        if (!all || c >= 3 * section[c % 3])
            return hparam_refuse(h, "rope.dimension_sections",
                                 "%d, %d, %d, %d leave pair %d of %d without a position: not supported",
                                 section[0], section[1], section[2], section[3], j, pairs);
    }
    return h->e->code == ERR_NONE;
}

static double dimension(double base, int n_rot, double context, double turns)
{
    return n_rot * log(context / (turns * 2 * M_PI)) / (2 * log(base));
}

/* YaRN: slow pairs are stretched by the factor, fast ones kept, those between blended. */
static void stretch(float *f, int n_rot, double base, double factor, double context)
{
    double lo = fmax(0, floor(dimension(base, n_rot, context, 32)));
    double hi = fmin(n_rot - 1, ceil(dimension(base, n_rot, context, 1)));
    for (int j = 0; j < n_rot / 2; j++) {
        double exact = pow(base, -2.0 * j / n_rot);
        double keep = 1 - fmin(1, fmax(0, (j - lo) / fmax(0.001, hi - lo)));
        f[j] = (float)(exact / factor * (1 - keep) + exact * keep);
    }
}

static bool scale(struct hparams *h, struct rope *r, float *f, double base, bool understood)
{
    char *type = NULL;
    char key[128];
    bool has_type = hparam_has(h, "rope.scaling.type");
    float factor = hparam_has(h, "rope.scaling.factor") ? hparam_float(h, "rope.scaling.factor")
                   : hparam_has(h, "rope.scale_linear") ? hparam_float(h, "rope.scale_linear")
                                                        : 0;
    hparam_key(h, "rope.scaling.type", key, sizeof key);
    if (has_type && !gguf_get_text(h->file, key, true, &type, NULL, h->e))
        return false;
    bool linear = !type || !strcmp(type, "linear"), yarn = type && !strcmp(type, "yarn");
    bool none = (type && !strcmp(type, "none")) || (linear && (factor == 0 || factor == 1));
    bool known = none || linear || yarn;
    mem_free(type);
    if (h->e->code != ERR_NONE || none)
        return h->e->code == ERR_NONE;
    if (!known || !understood)
        return hparam_refuse(h, "rope.scaling.type", "this scaling of positions is not supported");
    if (!(factor > 0))
        return hparam_refuse(h, "rope.scaling.factor", "%g is not a positive number", (double)factor);
    if (linear) {
        for (int j = 0; j < r->n_rot / 2; j++)
            f[j] = (float)(pow(base, -2.0 * j / r->n_rot) / (double)factor);
        return true;
    }
    int context = hparam_int(h, "context_length", 1, INT32_MAX);
    context = hparam_int_or(h, "rope.scaling.original_context_length", 1, INT32_MAX, context);
    double attn = hparam_has(h, "rope.scaling.attn_factor")
                      ? (double)hparam_float(h, "rope.scaling.attn_factor") : 1;
    stretch(f, r->n_rot, base, (double)factor, context);
    r->mscale = (float)((1 + 0.1 * log((double)factor)) * attn);
    return h->e->code == ERR_NONE;
}

bool rope_read(struct hparams *h, int d_head, int part, float default_base, bool scaling,
               struct rope *out)
{
    int n_rot = part ? hparam_int_or(h, "rope.dimension_count", 2, d_head, part)
                     : hparam_int(h, "rope.dimension_count", 2, d_head);
    float base = hparam_has(h, "rope.freq_base") || default_base <= 0
                     ? hparam_positive(h, "rope.freq_base") : default_base;
    if (h->e->code != ERR_NONE)
        return false;
    if (n_rot % 2)
        return hparam_refuse(h, "rope.dimension_count", "%d is odd", n_rot);
    float *f = mem_alloc_array((size_t)n_rot / 2, sizeof *f, "rope table", h->e);
    *out = (struct rope){.n_rot = n_rot, .mscale = 1, .inv_freq = f};
    if (!f)
        return false;
    for (int j = 0; j < n_rot / 2; j++) /* in double, rounded once (qwen4exp.md section 4) */
        f[j] = (float)pow((double)base, -2.0 * j / n_rot);
    return sections_cover(h, n_rot / 2) && scale(h, out, f, (double)base, scaling);
}
