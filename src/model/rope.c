/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Pair j takes its position from stream c mod 3, c = j mod (sum of the sections), while
 * c < 3 * section; a pair beyond would not turn at all for text. The real files leave none. */
static bool sections_cover(struct hparams *h, enum rope_sections use, int pairs)
{
    int section[4];
    if (use == ROPE_SECTIONS_UNUSED ||
        (use == ROPE_SECTIONS_OPTIONAL && !hparam_has(h, "rope.dimension_sections")))
        return true;
    hparam_ints(h, "rope.dimension_sections", 4, 0, 1 << 16, section);
    int all = section[0] + section[1] + section[2] + section[3];
    for (int j = 0; h->e->code == ERR_NONE && j < pairs; j++) {
        int c = all ? j % all : 0;
        if (!all || c >= 3 * section[c % 3])
            return hparam_refuse(
                h, "rope.dimension_sections",
                "%d, %d, %d, %d leave pair %d of %d without a position: not supported", section[0],
                section[1], section[2], section[3], j, pairs);
    }
    return h->e->code == ERR_NONE;
}

/* ---- scaling of positions ------------------------------------------------------------------- */

enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN };

static bool read_type(struct hparams *h, enum scaling *out)
{
    char key[128], shown[64];
    char *type = NULL;
    size_t bytes;
    bool known = true;
    *out = SCALING_LINEAR;
    if (!hparam_has(h, "rope.scaling.type"))
        return true;
    hparam_key(h, "rope.scaling.type", key, sizeof key);
    if (!gguf_get_text(h->file, key, true, &type, &bytes, h->e))
        return false;
    if (!strcmp(type, "none"))
        *out = SCALING_NONE;
    else if (!strcmp(type, "yarn"))
        *out = SCALING_YARN;
    else if (strcmp(type, "linear"))
        known = hparam_refuse(h, "rope.scaling.type",
                              "\"%s\" is not supported (known: none, linear, yarn)",
                              err_escape(shown, sizeof shown, type, bytes));
    mem_free(type);
    return known;
}

/* The factor; 1 where the file has none, or 0. */
static float read_factor(struct hparams *h)
{
    const char *name = "rope.scaling.factor";
    if (!hparam_has(h, name))
        name = "rope.scale_linear";
    float factor = hparam_has(h, name) ? hparam_float(h, name) : 0;
    if (factor < 0)
        hparam_refuse(h, name, "%g is not a positive number", (double)factor);
    return factor > 0 ? factor : 1;
}

static double exact_frequency(const struct rope *r, double base, int pair)
{
    return pow(base, -2.0 * pair / r->n_rot);
}

static double dimension(double base, int n_rot, double context, double turns)
{
    return n_rot * log(context / (turns * 2 * M_PI)) / (2 * log(base));
}

/* YaRN: slow pairs are stretched by the factor, fast ones kept, those between blended. */
static void stretch(const struct rope *r, float *f, double base, double factor, double context)
{
    double lo = fmax(0, floor(dimension(base, r->n_rot, context, 32)));
    double hi = fmin(r->n_rot - 1, ceil(dimension(base, r->n_rot, context, 1)));
    for (int j = 0; j < r->n_rot / 2; j++) {
        double exact = exact_frequency(r, base, j);
        double keep = 1 - fmin(1, fmax(0, (j - lo) / fmax(0.001, hi - lo)));
        f[j] = (float)(exact / factor * (1 - keep) + exact * keep);
    }
}

static bool scale(struct hparams *h, struct rope *r, float *f, double base, bool understood)
{
    enum scaling kind;
    if (!read_type(h, &kind))
        return false;
    double factor = (double)read_factor(h);
    if (kind == SCALING_LINEAR && factor == 1)
        kind = SCALING_NONE;
    if (kind != SCALING_NONE && !understood)
        return hparam_refuse(h, "rope.scaling.type",
                             "%s scaling by %g: positions of this architecture are not scaled",
                             kind == SCALING_YARN ? "yarn" : "linear", factor);
    for (int j = 0; kind == SCALING_LINEAR && j < r->n_rot / 2; j++)
        f[j] = (float)(exact_frequency(r, base, j) / factor);
    if (kind == SCALING_YARN) {
        const char *original = "rope.scaling.original_context_length";
        const char *attn = "rope.scaling.attn_factor";
        int context = hparam_int(h, "context_length", 1, INT32_MAX);
        stretch(r, f, base, factor, hparam_int_or(h, original, 1, INT32_MAX, context));
        r->mscale = (float)((1 + 0.1 * log(factor)) *
                            (hparam_has(h, attn) ? (double)hparam_float(h, attn) : 1));
    }
    return h->e->code == ERR_NONE;
}

bool rope_read(struct hparams *h, int d_head, const struct rope_rules *rules, struct rope *out)
{
    int n_rot = rules->rotated;
    if (!n_rot || hparam_has(h, "rope.dimension_count"))
        n_rot = hparam_int(h, "rope.dimension_count", 2, d_head);
    float base = !(rules->base > 0) || hparam_has(h, "rope.freq_base")
                     ? hparam_positive(h, "rope.freq_base")
                     : rules->base;
    if (h->e->code != ERR_NONE)
        return false;
    if (n_rot % 2 || n_rot > HPARAM_ROTATED_MOST)
        return hparam_refuse(h, "rope.dimension_count", "%d is not an even number up to %d", n_rot,
                             HPARAM_ROTATED_MOST);
    float *f = mem_alloc_array((size_t)n_rot / 2, sizeof *f, "rope table", h->e);
    *out = (struct rope){.n_rot = n_rot, .mscale = 1, .inv_freq = f};
    if (!f)
        return false;
    for (int j = 0; j < n_rot / 2; j++) /* in double, rounded once (qwen4exp.md section 4) */
        f[j] = (float)exact_frequency(out, (double)base, j);
    return sections_cover(h, rules->sections, n_rot / 2) &&
           scale(h, out, f, (double)base, rules->scaling);
}
