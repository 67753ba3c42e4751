/* SPDX-License-Identifier: Apache-2.0 */
/* `strata probe`: what a drive gives. */
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/probe_cache.h"

#define BAR 40

static void show_progress(void *ctx, int done, int all)
{
    message_progress("reading: point %d of %d", done + 1, all);
}

static void put_bar(double share, struct json_out *out)
{
    int full = (int)(share * BAR + 0.5);
    for (int i = 0; i < full; i++)
        json_puts(out, "\u2588");
}

static void put_table(const struct probe *p, const char *path, struct json_out *out)
{
    double best = probe_gb_s(p);
    json_putf(out, "%s: engine %s, %s\n", path, p->engine,
              p->is_direct ? "direct I/O" : "no direct I/O, so the page cache may have helped");
    json_puts(out, "     bytes  depth  parts     GB/s   p50 us   p99 us\n");
    for (int i = 0; i < p->points; i++) {
        const struct probe_point *at = &p->point[i];
        json_putf(out, "%10llu  %5d  %5d  %7.3f  %7.0f  %7.0f  ", (unsigned long long)at->bytes,
                  at->depth, at->parts, at->gb_s, at->p50_us, at->p99_us);
        put_bar(best > 0 ? at->gb_s / best : 0, out);
        json_puts(out, "\n");
    }
    int parts;
    double us = probe_latency_us(p, &parts);
    json_putf(out, "best %.3f GB/s; one record alone takes %.0f us%s", best, us,
              parts > 1 ? ", read in " : "\n");
    if (parts > 1)
        json_putf(out, "%d pieces\n", parts);
}

enum status command_probe(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct err low;
    err_clear(&low);
    struct probe_options wanted = {.engine = option_text(o, OPTION_IO),
                                   .record_bytes = o->value[OPTION_RECORD].whole,
                                   .progress = show_progress,
                                   .cancel = &interrupted};
    struct stat st;
    bool is_folder = stat(o->word, &st) == 0 && S_ISDIR(st.st_mode);
    struct probe p;
    bool ok = (is_folder ? probe_folder : probe_file)(o->word, &wanted, &p, &low);
    message_progress_end();
    if (!ok) {
        take_error(&e, &low);
        return message_error(&e);
    }
    if (!wanted.engine) /* what another engine gives is no help for runs */
        probe_keep(&p, o->word);
    struct json_out out = {0};
    if (option_given(o, OPTION_JSON))
        probe_put_json(&p, o->word, &out);
    else
        put_table(&p, o->word, &out);
    return output_json(&out, &e) ? STATUS_DONE : message_error(&e);
}
