/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/profile.h"

#include <string.h>

static const char *const names[2] = {"prompt", "answer"};

void profile_take(const struct strata_model *m, const struct options *o, struct profile *p)
{
    p->is_asked = option_given(o, OPTION_PROFILE);
    for (int i = 0; i < 2; i++)
        p->has[i] = p->is_asked && strata_profile_get(m, i == 0, &p->part[i]);
}

static double share_of(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void put_row(const char *kind, const char *type, double ms, double whole, double gb_s,
                    double memory_gb_s, struct json_out *out)
{
    json_putf(out, "  %-26s %-8s %9.4f  %5.1f %%", kind, type ? type : "", ms,
              100 * share_of(ms, whole));
    if (gb_s > 0)
        json_putf(out, "  %6.2f", gb_s);
    if (gb_s > 0 && memory_gb_s > 0)
        json_putf(out, "  %5.1f %%", 100 * gb_s / memory_gb_s);
    json_puts(out, "\n");
}

static void put_table(const char *name, const struct strata_profile *p, double memory_gb_s,
                      struct json_out *out)
{
    json_putf(out,
              "%s: %llu token%s, %.3f ms each with %d thread%s, %.0f barriers a pass, %.1f a layer\n",
              name, (unsigned long long)p->tokens, p->tokens == 1 ? "" : "s", p->ms, p->threads,
              p->threads == 1 ? "" : "s", p->barriers,
              share_of(p->barriers, (double)p->layers));
    json_putf(out, "  %-26s %-8s %9s  %7s  %6s  %s\n", "kind", "type", "ms", "share", "GB/s",
              "of memory");
    for (int i = 0; i < p->n_rows; i++) {
        const struct strata_profile_row *r = &p->row[i];
        put_row(r->kind, r->type, r->ms, p->ms, r->gb_s, memory_gb_s, out);
    }
    put_row("idle threads", NULL, p->idle_ms, p->ms, 0, 0, out);
}

void profile_table(const struct profile *p, double memory_gb_s, struct json_out *out)
{
    for (int i = 0; i < 2; i++)
        if (p->has[i])
            put_table(names[i], &p->part[i], memory_gb_s, out);
    if (p->has[0] || p->has[1])
        json_putf(out, "memory gives %.2f GB/s to %d thread%s\n", memory_gb_s,
                  p->part[p->has[1]].threads, p->part[p->has[1]].threads == 1 ? "" : "s");
}

static void put_number(struct json_out *out, const char *key, double value)
{
    json_putf(out, ", \"%s\": ", key);
    json_put_f64(out, value);
}

static void put_part(const char *name, const struct strata_profile *p, double memory_gb_s,
                     struct json_out *out)
{
    json_putf(out, ", \"%s\": {\"tokens\": %llu, \"passes\": %llu", name,
              (unsigned long long)p->tokens, (unsigned long long)p->passes);
    put_number(out, "ms_per_token", p->ms);
    put_number(out, "idle_ms_per_token", p->idle_ms);
    put_number(out, "barriers_per_pass", p->barriers);
    put_number(out, "barriers_per_layer", share_of(p->barriers, (double)p->layers));
    json_puts(out, ", \"rows\": [");
    for (int i = 0; i < p->n_rows; i++) {
        const struct strata_profile_row *r = &p->row[i];
        json_putf(out, "%s{\"kind\": ", i ? ", " : "");
        json_put_string(out, r->kind, strlen(r->kind));
        json_puts(out, ", \"type\": ");
        if (r->type)
            json_put_string(out, r->type, strlen(r->type));
        else
            json_puts(out, "null");
        put_number(out, "ms_per_token", r->ms);
        put_number(out, "bytes_per_token", r->bytes);
        put_number(out, "gb_s", r->gb_s);
        put_number(out, "memory_share", share_of(r->gb_s, memory_gb_s));
        json_puts(out, "}");
    }
    json_puts(out, "]}");
}

void profile_keys(const struct profile *p, double memory_gb_s, struct json_out *out)
{
    if (!p->is_asked)
        return;
    json_puts(out, ", \"profile\": {\"memory_gb_s\": ");
    json_put_f64(out, memory_gb_s);
    for (int i = 0; i < 2; i++)
        if (p->has[i])
            put_part(names[i], &p->part[i], memory_gb_s, out);
    json_puts(out, "}");
}
