/* SPDX-License-Identifier: Apache-2.0 */
/* `strata bench --arms FILE.json`: configurations against each other. The file:
 *
 *     {"model": "m.gguf", "prompt": 512, "gen": 64, "rounds": 5,
 *      "arms": [{"name": "plain", "flags": []}, {"name": "moce", "flags": ["--moce", "0.85"]}]}
 *
 * Every run is this program with `bench -r 1`, so that each starts cold and with memory of its own.
 * Rounds go A B C, C B A, A B C, ..: what drifts in time meets every arm alike, and what is left of
 * the drift is measured and compared with the differences. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/bench.h"
#include "cli/input.h"
#include "cli/output.h"

enum { PREFILL, DECODE, SPEEDS };
static const char *const speed_keys[SPEEDS] = {"prefill_tok_s", "decode_tok_s"};

#define MOST_ARMS 64
#define MOST_ROUNDS 1000
#define MOST_FLAGS 64

struct arm {
    const char *name;
    char *const *argv;     /* of its runs, NULL at the end */
    double *speed[SPEEDS]; /* [rounds], in the order of time */
    struct json_doc **run; /* [rounds] what each printed; NULL: not yet */
    double median[SPEEDS], least[SPEEDS], most[SPEEDS];
};

struct comparison {
    char *text;
    struct json_doc *doc;
    const char *model, *ids, *path;
    char prompt[24], gen[24], program[4096];
    int64_t rounds;
    int n_arms;
    struct arm arm[MOST_ARMS];
    struct json_out runs; /* what the runs printed, a JSON list */
};

/* ---- The file ------------------------------------------------------------------------------- */

static bool read_count(const struct comparison *c, const char *key, int64_t otherwise, int64_t most,
                       int64_t *out, struct strata_error *e)
{
    const struct json *v = json_get(json_root(c->doc), key);
    *out = otherwise;
    if (v && (!json_i64(v, out) || *out < 0 || *out > most))
        return fail(e, STRATA_FORMAT, "%s: \"%s\" must be a whole number up to %lld", c->path, key,
                    (long long)most);
    return true;
}

static const char *read_string(const struct json *v)
{
    return v && v->kind == JSON_STRING && strlen(v->text) == v->bytes ? v->text : NULL;
}

/* Arguments of the runs of an arm: those of all, then its flags. */
static bool build_arguments(struct comparison *c, struct arm *a, const struct json *flags,
                            struct strata_error *e)
{
    size_t n = flags ? flags->count : 0, at = 0;
    struct err low;
    err_clear(&low);
    const char **argv = mem_alloc_array(n + 20, sizeof *argv, "arguments", &low);
    if (!argv)
        return take_error(e, &low);
    a->argv = (char *const *)argv;
    const char *const common[] = {c->program, "bench", "-m", c->model, "-p",     c->prompt,
                                  "-n",       c->gen,  "-r", "1",      "--json", "--quiet"};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        argv[at++] = common[i];
    if (c->ids) {
        argv[at++] = "--ids";
        argv[at++] = c->ids;
    }
    for (size_t i = 0; i < n; i++)
        if (!(argv[at++] = read_string(&flags->items[i])))
            return fail(e, STRATA_FORMAT, "%s: flag %zu of arm %s is not a text", c->path, i,
                        a->name);
    return true;
}

static bool read_arm(struct comparison *c, const struct json *v, struct strata_error *e)
{
    struct arm *a = &c->arm[c->n_arms++];
    const struct json *flags = json_get(v, "flags");
    a->name = read_string(json_get(v, "name"));
    if (!a->name)
        return fail(e, STRATA_FORMAT, "%s: arm %d has no name", c->path, c->n_arms);
    if (flags && (flags->kind != JSON_ARRAY || flags->count > MOST_FLAGS))
        return fail(e, STRATA_FORMAT, "%s: the flags of arm %s must be a list of at most %d texts",
                    c->path, a->name, MOST_FLAGS);
    struct err low;
    err_clear(&low);
    for (int s = 0; s < SPEEDS; s++)
        a->speed[s] = mem_alloc_array((size_t)c->rounds, sizeof **a->speed, "results", &low);
    a->run = mem_alloc_array((size_t)c->rounds, sizeof *a->run, "results", &low);
    return take_error(e, &low) && build_arguments(c, a, flags, e);
}

static bool read_file(struct comparison *c, struct strata_error *e)
{
    size_t bytes;
    c->text = input_read(c->path, &bytes, e);
    if (!c->text)
        return false;
    struct err low;
    err_clear(&low);
    c->doc = json_parse(c->text, bytes, c->path, &low);
    if (!c->doc)
        return take_error(e, &low);
    const struct json *root = json_root(c->doc), *arms = json_get(root, "arms");
    c->model = read_string(json_get(root, "model"));
    c->ids = read_string(json_get(root, "ids"));
    int64_t prompt, gen;
    if (!c->model)
        return fail(e, STRATA_FORMAT, "%s: no \"model\"", c->path);
    if (!arms || arms->kind != JSON_ARRAY || arms->count < 2 || arms->count > MOST_ARMS)
        return fail(e, STRATA_FORMAT, "%s: \"arms\" must be a list of 2 to %d", c->path, MOST_ARMS);
    if (!read_count(c, "prompt", 512, INT32_MAX, &prompt, e) ||
        !read_count(c, "gen", 64, INT32_MAX, &gen, e) ||
        !read_count(c, "rounds", 5, MOST_ROUNDS, &c->rounds, e))
        return false;
    if (!c->rounds)
        return fail(e, STRATA_FORMAT, "%s: 0 rounds measure nothing", c->path);
    snprintf(c->prompt, sizeof c->prompt, "%lld", (long long)prompt);
    snprintf(c->gen, sizeof c->gen, "%lld", (long long)gen);
    for (size_t i = 0; i < arms->count; i++)
        if (!read_arm(c, &arms->items[i], e))
            return false;
    return true;
}

/* ---- The runs ------------------------------------------------------------------------------- */

static bool read_pipe(int fd, struct json_out *out)
{
    char piece[4096];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0)
        json_put(out, piece, (size_t)n);
    return n == 0 && !out->failed;
}

/* Runs the arm once; its stdout goes to *out. */
static bool run_program(const struct arm *a, struct json_out *out, struct strata_error *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(e, STRATA_IO, "a pipe cannot be made");
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], STDOUT_FILENO) >= 0)
            execv(a->argv[0], a->argv);
        _exit(127);
    }
    close(ends[1]);
    bool ok = pid > 0 && read_pipe(ends[0], out);
    close(ends[0]);
    int status = -1;
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (atomic_load(&interrupted))
        return fail(e, STRATA_INTERRUPTED, "interrupted");
    if (!ok || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(e, STRATA_IO, "arm %s ended without a result", a->name);
    return true;
}

static bool take_result(struct comparison *c, struct arm *a, int round, struct json_out *text,
                        struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    struct json_doc *d = a->run[round] =
        json_parse(text->text ? text->text : "", text->bytes, a->name, &low);
    bool ok = d != NULL;
    for (int s = 0; ok && s < SPEEDS; s++) {
        const struct json *v = json_get(json_root(d), speed_keys[s]);
        ok = v && json_f64(v, &a->speed[s][round]);
    }
    json_putf(&c->runs, "%s{\"arm\": ", c->runs.bytes ? ", " : "");
    json_put_string(&c->runs, a->name, strlen(a->name));
    ok = ok && bench_stats_put_run(d, &c->runs);
    json_puts(&c->runs, "}");
    return ok || fail(e, STRATA_FORMAT, "arm %s printed no speeds", a->name);
}

static struct arm *arm_at(struct comparison *c, int round, int i)
{
    return &c->arm[round % 2 ? c->n_arms - 1 - i : i];
}

static bool run_all(struct comparison *c, struct strata_error *e)
{
    for (int round = 0; round < c->rounds; round++) {
        for (int i = 0; i < c->n_arms; i++) {
            struct arm *a = arm_at(c, round, i);
            struct json_out text = {0};
            message_progress("round %d of %lld: %s", round + 1, (long long)c->rounds, a->name);
            bool ok = run_program(a, &text, e) && take_result(c, a, round, &text, e);
            json_out_free(&text);
            if (!ok)
                return false;
        }
    }
    message_progress_end();
    return true;
}

/* ---- The result ----------------------------------------------------------------------------- */

static void summarize(struct comparison *c, double *room)
{
    for (int i = 0; i < c->n_arms; i++) {
        struct arm *a = &c->arm[i];
        for (int s = 0; s < SPEEDS; s++) {
            memcpy(room, a->speed[s], (size_t)c->rounds * sizeof *room);
            a->median[s] = bench_quantile(room, (size_t)c->rounds, 0.5);
            a->least[s] = room[0];
            a->most[s] = room[c->rounds - 1];
        }
    }
}

/* By how much the second half of the session was faster than the first, each run taken relative to
 * the median of its arm. */
static double drift(struct comparison *c, int speed, double *room)
{
    size_t runs = (size_t)c->rounds * (size_t)c->n_arms, n = 0;
    for (int round = 0; round < c->rounds; round++)
        for (int i = 0; i < c->n_arms; i++) {
            const struct arm *a = arm_at(c, round, i);
            room[n++] = a->median[speed] > 0 ? a->speed[speed][round] / a->median[speed] : 1;
        }
    size_t half = runs / 2;
    double early = bench_quantile(room, half, 0.5);
    double late = bench_quantile(room + runs - half, half, 0.5);
    return early > 0 ? late / early - 1 : 0;
}

static double size_of(double x)
{
    return x < 0 ? -x : x;
}

/* One sentence for each arm whose difference from the first is not larger than the drift. */
static void put_notes(const struct comparison *c, const double drifts[SPEEDS], bool is_json,
                      struct json_out *out)
{
    static const char *const what[SPEEDS] = {"prompt", "answer"};
    bool is_first = true;
    for (int i = 1; i < c->n_arms; i++) {
        for (int s = 0; s < SPEEDS; s++) {
            const struct arm *a = &c->arm[i], *base = &c->arm[0];
            double gain = base->median[s] > 0 ? a->median[s] / base->median[s] - 1 : 0;
            if (base->median[s] <= 0 || size_of(gain) > size_of(drifts[s]))
                continue;
            char text[512];
            snprintf(text, sizeof text,
                     "%s against %s, %s: a difference of %+.1f %%, while the machine drifted by "
                     "%+.1f %%: "
                     "order and time explain it",
                     a->name, base->name, what[s], 100 * gain, 100 * drifts[s]);
            json_puts(out, is_json ? is_first ? "" : ", " : "note: ");
            if (is_json)
                json_put_string(out, text, strlen(text));
            else
                json_putf(out, "%s\n", text);
            is_first = false;
        }
    }
}

static void put_arm(const struct comparison *c, const struct arm *a, double *room,
                    struct json_out *out)
{
    json_puts(out, "{\"name\": ");
    json_put_string(out, a->name, strlen(a->name));
    for (int s = 0; s < SPEEDS; s++) {
        json_putf(out, ", \"%s\": ", speed_keys[s]);
        json_put_f64(out, a->median[s]);
        json_putf(out, ", \"%s_min\": ", speed_keys[s]);
        json_put_f64(out, a->least[s]);
        json_putf(out, ", \"%s_max\": ", speed_keys[s]);
        json_put_f64(out, a->most[s]);
        json_putf(out, ", \"%s_ratio\": ", speed_keys[s]);
        json_put_f64(out, c->arm[0].median[s] > 0 ? a->median[s] / c->arm[0].median[s] : 0);
    }
    bench_stats_put(a->run, (size_t)c->rounds, room, out);
    json_puts(out, "}");
}

static void put_json(const struct comparison *c, const double drifts[SPEEDS], double *room,
                     struct json_out *out)
{
    json_puts(out, "{\"model\": ");
    json_put_string(out, c->model, strlen(c->model));
    json_putf(out, ", \"prompt\": %s, \"gen\": %s, \"rounds\": %lld, \"arms\": [", c->prompt,
              c->gen, (long long)c->rounds);
    for (int i = 0; i < c->n_arms; i++) {
        json_puts(out, i ? ", " : "");
        put_arm(c, &c->arm[i], room, out);
    }
    json_puts(out, "], \"drift\": {");
    for (int s = 0; s < SPEEDS; s++) {
        json_putf(out, "%s\"%s\": ", s ? ", " : "", speed_keys[s]);
        json_put_f64(out, drifts[s]);
    }
    json_puts(out, "}, \"notes\": [");
    put_notes(c, drifts, true, out);
    json_puts(out, "], \"runs\": [");
    json_put(out, c->runs.text ? c->runs.text : "", c->runs.bytes);
    json_puts(out, "]}\n");
    out->failed |= c->runs.failed;
}

static void put_table(const struct comparison *c, const double drifts[SPEEDS], double *room,
                      struct json_out *out)
{
    json_putf(out, "%-20s %32s %32s\n", "tokens a second", "prompt (least to most)",
              "answer (least to most)");
    for (int i = 0; i < c->n_arms; i++) {
        const struct arm *a = &c->arm[i];
        json_putf(out, "%-20s", a->name);
        for (int s = 0; s < SPEEDS; s++)
            json_putf(out, " %10.2f (%8.2f to %8.2f)", a->median[s], a->least[s], a->most[s]);
        json_puts(out, "\n");
    }
    bench_stats_put_title(out);
    for (int i = 0; i < c->n_arms; i++)
        bench_stats_put_row(c->arm[i].run, (size_t)c->rounds, c->arm[i].name, room, out);
    put_notes(c, drifts, false, out);
}

static bool report(struct comparison *c, bool is_json, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    double *room =
        mem_alloc_array((size_t)c->rounds * (size_t)c->n_arms, sizeof *room, "results", &low);
    if (!room)
        return take_error(e, &low);
    summarize(c, room);
    double drifts[SPEEDS];
    for (int s = 0; s < SPEEDS; s++)
        drifts[s] = drift(c, s, room);
    struct json_out out = {0};
    (is_json ? put_json : put_table)(c, drifts, room, &out);
    mem_free(room);
    return output_json(&out, e);
}

static bool find_program(struct comparison *c, struct strata_error *e)
{
    ssize_t n = readlink("/proc/self/exe", c->program, sizeof c->program - 1);
    if (n <= 0)
        return fail(e, STRATA_UNSUPPORTED, "this system does not say where the program lies");
    c->program[n] = 0;
    return true;
}

static void free_all(struct comparison *c)
{
    for (int i = 0; i < c->n_arms; i++) {
        mem_free((void *)c->arm[i].argv);
        for (int s = 0; s < SPEEDS; s++)
            mem_free(c->arm[i].speed[s]);
        for (int64_t r = 0; c->arm[i].run && r < c->rounds; r++)
            json_free(c->arm[i].run[r]);
        mem_free((void *)c->arm[i].run);
    }
    json_out_free(&c->runs);
    json_free(c->doc);
    mem_free(c->text);
}

enum status bench_arms(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct comparison c = {.path = option_text(o, OPTION_ARMS)};
    bool ok = find_program(&c, &e) && read_file(&c, &e) && run_all(&c, &e) &&
              report(&c, option_given(o, OPTION_JSON), &e);
    free_all(&c);
    return ok ? STATUS_DONE : message_error(&e);
}
