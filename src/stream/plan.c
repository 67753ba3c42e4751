/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/size.h"

/* ---- what the user says ---- */

bool plan_parse_size(const char *option, const char *text, uint64_t *bytes, struct err *e)
{
    return io_parse_size(text, strlen(text), bytes) ||
           err_set(e, ERR_USAGE, "%s: \"%s\" is not a size like 12G, 1.5M or 4096", option, text);
}

bool plan_parse_arena(const char *text, struct plan_arena *out, struct err *e)
{
    *out = (struct plan_arena){0};
    size_t n = strlen(text);
    if (!strcmp(text, "min") || !strcmp(text, "max")) {
        out->kind = text[1] == 'i' ? PLAN_ARENA_MIN : PLAN_ARENA_MAX;
        return true;
    }
    if (n > 1 && text[n - 1] == '%') {
        char *end;
        out->kind = PLAN_ARENA_SHARE;
        out->percent = strtod(text, &end);
        if (end == text + n - 1 && strspn(text, "0123456789.") == n - 1 && out->percent <= 100)
            return true;
    } else if (io_parse_size(text, n, &out->bytes)) {
        out->kind = PLAN_ARENA_BYTES;
        return true;
    }
    return err_set(e, ERR_USAGE,
                   "--arena: \"%s\" is not a size like 7G, a share like 20%%, min or max", text);
}

/* ---- the plan ---- */

/* Sizes as people say them: "12.3 GiB". */
struct size_text {
    char text[24];
};

static struct size_text say(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    struct size_text s;
    double v = (double)bytes / 1024;
    int u = 0;
    for (; v >= 1000 && u < 3; u++)
        v /= 1024;
    snprintf(s.text, sizeof s.text, "%.*f %s", v < 10 ? 2 : 1, v, units[u]);
    return s;
}

/* The same as an argument that is not less than `bytes`: "7181M", or plain bytes when small. */
static struct size_text say_argument(uint64_t bytes)
{
    struct size_text s;
    if (bytes >> 26)
        snprintf(s.text, sizeof s.text, "%lluM",
                 (unsigned long long)((bytes + (1 << 20) - 1) >> 20));
    else
        snprintf(s.text, sizeof s.text, "%llu", (unsigned long long)bytes);
    return s;
}

/* Cache bytes at the points where something changes. */
struct bounds {
    uint64_t staging, least, cycle, knee, all;
};

static struct bounds find_bounds(const struct plan_input *in)
{
    if (!in->stream)
        return (struct bounds){0};
    uint64_t staging = stream_staging_bytes(in->stream, in->io_align);
    struct bounds b = {.staging = staging,
                           .least = stream_least_bytes(in->stream, in->io_align) - staging,
                           .cycle = stream_cycle_bytes(in->stream, in->io_align) - staging,
                           .all = stream_all_bytes(in->stream, in->io_align) - staging};
    b.knee = b.all;
    if (in->knee > 0 && in->knee < 1)
        b.knee = (uint64_t)((double)b.all * in->knee);
    b.knee = b.knee > b.least ? b.knee : b.least;
    return b;
}

/* Everything but the arena; UINT64_MAX when it is more than can be counted. */
static uint64_t fixed_bytes(const struct plan_input *in, const struct bounds *b)
{
    uint64_t session, sum = 0;
    if (__builtin_mul_overflow(in->session_per_token, in->ctx, &session))
        return UINT64_MAX;
    const uint64_t parts[] = {in->trunk, in->session_fixed, session,     in->scratch,
                              in->io,    in->snapshots,     in->program, b->staging};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (__builtin_add_overflow(sum, parts[i], &sum))
            return UINT64_MAX;
    return sum;
}

/* What the user asked for, before memory is looked at. */
static uint64_t arena_asked(const struct plan_input *in, const struct bounds *b, uint64_t room)
{
    uint64_t asked = room;
    switch (in->arena.kind) {
    case PLAN_ARENA_AUTO:
        return room < b->knee ? room : b->knee;
    case PLAN_ARENA_MAX:
        break;
    case PLAN_ARENA_BYTES:
        asked = in->arena.bytes;
        break;
    case PLAN_ARENA_SHARE:
        asked = (uint64_t)((double)b->all * in->arena.percent / 100);
        break;
    case PLAN_ARENA_MIN:
        asked = b->least;
        break;
    }
    return asked < b->all ? asked : b->all;
}

/* The sentence for a plan that needs more than there is. */
static bool refuse(const struct plan_input *in, uint64_t needs, uint64_t arena, uint64_t limit,
                   struct err *e)
{
    uint64_t above = needs > limit ? needs - limit : 0, most_ctx = 0;
    if (in->session_per_token && above / in->session_per_token < in->ctx)
        most_ctx = in->ctx - above / in->session_per_token - 1;
    char ctx[96] = "";
    if (most_ctx)
        snprintf(ctx, sizeof ctx, ", or --ctx %llu at most in place of %llu",
                 (unsigned long long)most_ctx, (unsigned long long)in->ctx);
    if (in->memory)
        return err_set(
            e, ERR_MEMORY, "--memory: %s is not enough with an arena of %s; it needs at least %s%s",
            say_argument(limit).text, say_argument(arena).text, say_argument(needs).text, ctx);
    return err_set(
        e, ERR_MEMORY,
        "the system can give %s without swapping, but an arena of %s needs at least %s in "
        "all%s",
        say_argument(limit).text, say_argument(arena).text, say_argument(needs).text, ctx);
}

static bool choose_arena(const struct plan_input *in, const struct bounds *b, uint64_t limit,
                         uint64_t *arena, struct err *e)
{
    uint64_t fixed = fixed_bytes(in, b), needs;
    if (fixed >= UINT64_MAX - b->all)
        return err_set(e, ERR_MEMORY,
                       "a context of %llu tokens needs more memory than can be counted",
                       (unsigned long long)in->ctx);
    uint64_t room = limit > fixed ? limit - fixed : 0;
    *arena = arena_asked(in, b, room);
    if ((in->arena.kind == PLAN_ARENA_AUTO || in->arena.kind == PLAN_ARENA_MAX) &&
        *arena < b->least)
        *arena = b->least; /* refused below, with what it takes */
    if (*arena < b->least)
        return err_set(
            e, ERR_MEMORY,
            "--arena: %s cannot hold the experts that one window of %d row%s may need in a "
            "layer; it needs at least %s",
            say_argument(*arena).text, in->stream->window_rows,
            in->stream->window_rows == 1 ? "" : "s", say_argument(b->least).text);
    needs = fixed + *arena;
    return needs <= limit || refuse(in, needs, *arena, limit, e);
}

static void add_point(struct plan *p, const char *name, uint64_t arena, uint64_t ceiling)
{
    if (arena <= ceiling)
        p->point[p->points++] = (struct plan_point){
            .name = name, .arena = arena, .total = p->plan_total - p->arena + arena};
}

bool plan_compute(const struct plan_input *in, struct plan *out, struct err *e)
{
    struct bounds b = find_bounds(in);
    uint64_t limit = in->memory ? in->memory : in->system ? in->system : UINT64_MAX;
    uint64_t arena = 0;
    if (!choose_arena(in, &b, limit, &arena, e))
        return false;
    uint64_t fixed = fixed_bytes(in, &b);
    *out = (struct plan){
        .trunk = in->trunk,
        .session = in->session_fixed + in->session_per_token * in->ctx,
        .scratch = in->scratch,
        .io = in->io,
        .staging = b.staging,
        .snapshots = in->snapshots,
        .program = in->program,
        .arena = arena,
        .plan_total = fixed + arena,
        .ctx = in->ctx,
        .knee = b.knee,
        .stream_bytes = arena + b.staging,
    };
    if (in->stream) {
        struct stream_config c = *in->stream;
        c.arena_bytes = out->stream_bytes;
        out->slots = stream_count_slots(&c, in->io_align);
        out->expert_bytes = stream_expert_bytes(&c);
        for (int l = 0; l < c.layers; l++)
            out->experts += (uint64_t)c.layer[l].experts;
    }
    uint64_t room = limit - fixed, ceiling = room < b.all ? room : b.all;
    add_point(out, "floor", b.least, ceiling);
    add_point(out, "cycle", b.cycle > b.least ? b.cycle : b.least, ceiling);
    if (in->stream)
        add_point(out, "knee", b.knee, ceiling);
    add_point(out, "chosen", arena, ceiling);
    add_point(out, "ceiling", ceiling, ceiling);
    return true;
}

/* ---- printing ---- */

static void put_point(const struct plan_point *at, bool has_forecast, struct json_out *out)
{
    json_putf(out, "%-12s %12s %12s", at->name, say(at->arena).text, say(at->total).text);
    if (has_forecast)
        json_putf(out, "  %6.1f - %6.1f", at->wait_ms.least, at->wait_ms.most);
    if (at->tok_s.most > 0)
        json_putf(out, "  %6.1f - %6.1f", at->tok_s.least, at->tok_s.most);
    json_puts(out, "\n");
}

void plan_write_table(const struct plan *p, struct json_out *out)
{
    char session[48];
    snprintf(session, sizeof session, "session, %llu token%s", (unsigned long long)p->ctx,
             p->ctx == 1 ? "" : "s");
    const struct {
        const char *name;
        uint64_t bytes;
    } lines[] = {{"trunk", p->trunk},     {session, p->session},   {"scratch", p->scratch},
                 {"I/O", p->io},          {"staging", p->staging}, {"snapshots", p->snapshots},
                 {"program", p->program}, {"arena", p->arena},     {"total", p->plan_total}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        json_putf(out, "%-28s %12s\n", lines[i].name, say(lines[i].bytes).text);
    if (!p->experts)
        return;
    json_putf(out, "\nslots for %llu of %llu experts (%.1f %%; all are %s)\n",
              (unsigned long long)p->slots, (unsigned long long)p->experts,
              100.0 * (double)p->slots / (double)p->experts, say(p->expert_bytes).text);
    json_putf(out, "\n%-12s %12s %12s%s\n", "point", "arena", "total",
              p->has_forecast ? "   wait ms/token            tok/s" : "");
    for (int i = 0; i < p->points; i++)
        put_point(&p->point[i], p->has_forecast, out);
}

void plan_write_json(const struct plan *p, struct json_out *out)
{
    const struct {
        const char *key;
        uint64_t value;
    } fields[] = {{"trunk", p->trunk},     {"session", p->session}, {"scratch", p->scratch},
                  {"io", p->io},           {"staging", p->staging}, {"snapshots", p->snapshots},
                  {"program", p->program}, {"arena", p->arena},     {"plan_total", p->plan_total},
                  {"slots", p->slots},     {"experts", p->experts}, {"ctx", p->ctx}};
    json_puts(out, "{");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        json_putf(out, "\"%s\": %llu, ", fields[i].key, (unsigned long long)fields[i].value);
    json_puts(out, "\"points\": [");
    for (int i = 0; i < p->points; i++) {
        json_putf(out, "%s{\"name\": \"%s\", \"arena\": %llu, \"total\": %llu, \"tok_s\": ",
                  i ? ", " : "", p->point[i].name, (unsigned long long)p->point[i].arena,
                  (unsigned long long)p->point[i].total);
        if (p->point[i].expected_tok_s > 0)
            json_put_f64(out, p->point[i].expected_tok_s);
        else
            json_puts(out, "null");
        json_puts(out, "}");
    }
    json_puts(out, "]}");
}
