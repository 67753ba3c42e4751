/* SPDX-License-Identifier: Apache-2.0 */
/* `strata kld`: how far one configuration's words are from another's. A text is fed to both, and
 * after every token the distributions of the next are compared: Kullback-Leibler divergence from
 * the reference, agreement of the best token, perplexity of the text.
 *
 * The text is cut into windows of --ctx tokens, each from an empty state; the first token of a
 * window is not scored. Text is fed as a prompt; where one side prefers resident experts (--moce),
 * which happens in decoding, both decode it token by token. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/npy_rows.h"
#include "cli/output.h"

#define CHUNK_BYTES ((size_t)32 << 20) /* of logits, for each side */
#define CHUNK_ROWS_MOST 512
#define FLAGS_MOST 64

/* One of the two sides. */
struct side {
    struct strata_model *model;
    struct strata_session *session;
    float *logits; /* [chunk][vocab] */
    size_t vocab;
};

struct kld {
    const struct options *o;
    struct options other; /* of the reference */
    char flags[4096];     /* --against, cut into words */
    struct side own, ref;
    struct npy_rows *rows; /* --ref, else NULL */
    bool is_stepwise;
    int32_t *ids;
    size_t n, ctx, chunk, vocab;
    size_t scored;
    double kl_sum, kl_most, nll, nll_ref;
    uint64_t agreed;
};

/* ---- Options -------------------------------------------------------------------------------- */

/* The command's own options, and those of --against in their place where they are given. */
static bool read_flags(struct kld *k, struct strata_error *e)
{
    const char *flags = option_text(k->o, OPTION_AGAINST);
    k->other = *k->o;
    if (!flags)
        return true;
    if (strlen(flags) >= sizeof k->flags)
        return fail(e, STRATA_USAGE, "--against: more than %zu bytes", sizeof k->flags - 1);
    strcpy(k->flags, flags);
    char program[] = "strata", command[] = "kld", model[] = "-m", none[] = "-",
         repeat[] = "--repeat", file[] = "-f";
    char *argv[FLAGS_MOST + 8] = {program, command, model, none, file, none, repeat};
    int argc = 7;
    for (char *word = strtok(k->flags, " \t\n"); word; word = strtok(NULL, " \t\n")) {
        if (argc == FLAGS_MOST + 7)
            return fail(e, STRATA_USAGE, "--against: more than %d words", FLAGS_MOST);
        argv[argc++] = word;
    }
    struct options parsed;
    struct strata_error why = {0};
    if (options_parse(&parsed, argc, argv, &why) != PARSED_COMMAND) {
        options_free(&parsed);
        return fail(e, STRATA_USAGE, "--against: %s",
                    why.text[0] ? why.text : "no options of a run");
    }
    for (int i = 0; i < OPTIONS; i++)
        if (option_lines[i].group == GROUP_MACHINE && parsed.value[i].given)
            k->other.value[i] = parsed.value[i];
    options_free(&parsed);
    return true;
}

static bool prefers_residents(const struct options *o)
{
    const char *moce = option_text(o, OPTION_MOCE);
    return moce && strcmp(moce, "0") != 0;
}

/* ---- Opening -------------------------------------------------------------------------------- */

static bool open_side(struct kld *k, struct side *s, const struct options *o,
                      struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    s->vocab = k->vocab;
    s->logits = mem_alloc_array(k->chunk * k->vocab, sizeof *s->logits, "logits", &low);
    if (!s->logits)
        return take_error(e, &low);
    if (!s->model)
        s->model = open_model(o, 0, e);
    return s->model && load_model(s->model, e) &&
           (s->session = strata_session_create(s->model, e)) != NULL;
}

static bool read_text(struct kld *k, struct strata_error *e)
{
    const char *path = option_text(k->o, OPTION_FILE);
    size_t bytes;
    char *text = input_read(path, &bytes, e);
    bool ok =
        text && strata_encode(k->own.model, text, bytes, STRATA_SPECIAL_USER, &k->ids, &k->n, e);
    mem_free(text);
    if (ok && option_given(k->o, OPTION_KLD_TOKENS) && k->o->value[OPTION_KLD_TOKENS].whole < k->n)
        k->n = (size_t)k->o->value[OPTION_KLD_TOKENS].whole;
    return ok && (k->n >= 2 || fail(e, STRATA_FORMAT, "%s: fewer than two tokens", path));
}

static bool prepare(struct kld *k, struct strata_error *e)
{
    struct strata_plan plan;
    struct strata_model_info info;
    const char *ref = option_text(k->o, OPTION_REF);
    if (!read_flags(k, e) || !(k->own.model = open_model(k->o, 0, e)) ||
        !strata_model_info(k->own.model, &info, e) || !read_text(k, e) ||
        !strata_plan_get(k->own.model, &plan, e))
        return false;
    k->ctx = plan.ctx < info.context ? (size_t)plan.ctx : (size_t)info.context;
    k->vocab = (size_t)info.vocab;
    k->chunk = CHUNK_BYTES / (k->vocab * sizeof(float));
    k->chunk = k->chunk < 1 ? 1 : k->chunk > CHUNK_ROWS_MOST ? CHUNK_ROWS_MOST : k->chunk;
    k->is_stepwise = prefers_residents(k->o) || prefers_residents(&k->other);
    if (!open_side(k, &k->own, k->o, e))
        return false;
    if (ref)
        return (k->rows = npy_rows_open(ref, k->n, k->vocab, e)) != NULL;
    return open_side(k, &k->ref, &k->other, e);
}

/* ---- Comparing ------------------------------------------------------------------------------ */

static bool take_rows(void *ctx, size_t first, size_t rows, const float *logits)
{
    struct side *s = ctx;
    memcpy(s->logits + first * s->vocab, logits, rows * s->vocab * sizeof *logits);
    return true;
}

/* Logits of all rows of ids[0..n-1] into s->logits. */
static bool feed(const struct kld *k, struct side *s, const int32_t *ids, size_t n,
                 struct strata_error *e)
{
    struct strata_pass pass = {.ctx = s, .logits = take_rows, .cancel = &interrupted};
    if (!k->is_stepwise)
        return strata_feed(s->session, ids, n, &pass, e);
    pass.logits = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!strata_step(s->session, ids + i, 1, &pass, e))
            return false;
        take_rows(s, i, 1, strata_logits(s->session));
    }
    return true;
}

/* log of the sum of e^logit, and the best token. */
static double log_sum(const float *logits, size_t n, size_t *best)
{
    *best = 0;
    for (size_t i = 1; i < n; i++)
        *best = logits[i] > logits[*best] ? i : *best;
    double most = (double)logits[*best], sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static void score(struct kld *k, const float *own, const float *ref, int32_t next)
{
    size_t best, ref_best;
    double z = log_sum(own, k->vocab, &best), ref_z = log_sum(ref, k->vocab, &ref_best), kl = 0;
    for (size_t i = 0; i < k->vocab; i++) {
        double p = (double)ref[i] - ref_z, q = (double)own[i] - z;
        kl += exp(p) * (p - q);
    }
    kl = kl > 0 ? kl : 0; /* rounding */
    k->kl_sum += kl;
    k->kl_most = kl > k->kl_most ? kl : k->kl_most;
    k->agreed += best == ref_best;
    k->nll += z - (double)own[next];
    k->nll_ref += ref_z - (double)ref[next];
    k->scored++;
}

/* ids[from .. from + n - 1] of a window that ends before `end`. */
static bool compare_chunk(struct kld *k, size_t from, size_t n, size_t end, struct strata_error *e)
{
    if (!feed(k, &k->own, k->ids + from, n, e))
        return false;
    if (k->rows ? !npy_rows_read(k->rows, k->ref.logits, n, e)
                : !feed(k, &k->ref, k->ids + from, n, e))
        return false;
    for (size_t i = 0; i < n && from + i + 1 < end; i++)
        score(k, k->own.logits + i * k->vocab, k->ref.logits + i * k->vocab, k->ids[from + i + 1]);
    return true;
}

static bool compare_all(struct kld *k, struct strata_error *e)
{
    for (size_t start = 0; start < k->n; start += k->ctx) {
        size_t end = k->n - start < k->ctx ? k->n : start + k->ctx;
        if (!strata_session_reset(k->own.session, e) ||
            (!k->rows && !strata_session_reset(k->ref.session, e)))
            return false;
        for (size_t at = start; at < end; at += k->chunk) {
            size_t n = end - at < k->chunk ? end - at : k->chunk;
            message_progress("comparing: %zu of %zu tokens", at, k->n);
            if (!compare_chunk(k, at, n, end, e))
                return false;
        }
    }
    message_progress_end();
    return k->scored || fail(e, STRATA_USAGE, "no token is scored: --ctx must be 2 at least");
}

/* ---- The result ----------------------------------------------------------------------------- */

static bool print_result(const struct kld *k, struct strata_error *e)
{
    struct json_out out = {0};
    double n = (double)k->scored;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"kl_mean", k->kl_sum / n},
                   {"kl_max", k->kl_most},
                   {"top1", (double)k->agreed / n},
                   {"ppl", exp(k->nll / n)},
                   {"ppl_ref", exp(k->nll_ref / n)}};
    if (option_given(k->o, OPTION_JSON)) {
        json_putf(&out, "{\"tokens\": %zu", k->scored);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            json_putf(&out, ", \"%s\": ", numbers[i].key);
            json_put_f64(&out, numbers[i].value);
        }
        json_puts(&out, "}\n");
    } else {
        json_putf(&out,
                  "%zu tokens: mean KL divergence %.6f (most %.4f), same best token %.2f %%\n",
                  k->scored, numbers[0].value, numbers[1].value, 100 * numbers[2].value);
        json_putf(&out, "perplexity %.4f, of the reference %.4f\n", numbers[3].value,
                  numbers[4].value);
    }
    return output_json(&out, e);
}

static void close_side(struct side *s)
{
    strata_session_free(s->session);
    strata_model_free(s->model);
    mem_free(s->logits);
}

enum status command_kld(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct kld k = {.o = o};
    bool ok = prepare(&k, &e);
    if (ok && k.rows) {
        struct err low;
        err_clear(&low);
        k.ref.logits = mem_alloc_array(k.chunk * k.vocab, sizeof(float), "logits", &low);
        ok = take_error(&e, &low);
    }
    ok = ok && compare_all(&k, &e) && print_result(&k, &e);
    npy_rows_close(k.rows);
    close_side(&k.ref);
    close_side(&k.own);
    strata_free(k.ids);
    return ok ? STATUS_DONE : message_error(&e);
}
