/* SPDX-License-Identifier: Apache-2.0 */
/* `strata synth`: a model file of true shape with drawn weights. */
#include "base/clock.h"
#include "base/cores.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "synth/synth.h"

static const char *text_or(const struct options *o, enum option which, const char *otherwise)
{
    return option_given(o, which) ? option_text(o, which) : otherwise;
}

static uint64_t whole_or(const struct options *o, enum option which, uint64_t otherwise)
{
    return option_given(o, which) ? o->value[which].whole : otherwise;
}

static void show_writing(void *ctx, uint64_t done, uint64_t all)
{
    const int64_t *began = ctx;
    int64_t us = clock_us() - *began;
    message_progress("writing: %.0f %% of %.2f GB, %.0f MB/s", 100 * (double)done / (double)all,
                     (double)all * 1e-9, us > 0 ? (double)done / (double)us : 0);
}

static bool write_model(struct synth *s, const char *path, struct err *e)
{
    struct pool *workers = pool_create(cores_default_threads(), e);
    if (!workers)
        return false;
    int64_t began = clock_us();
    struct synth_progress p = {.ctx = &began, .wrote = show_writing, .cancel = &interrupted};
    bool ok = synth_write(s, path, workers, &p, e);
    message_progress_end();
    pool_free(workers);
    if (ok) {
        double seconds = (double)(clock_us() - began) * 1e-6, bytes = (double)synth_bytes(s);
        message_note("%s: %.3f GB in %.1f s, %.0f MB/s", path, bytes * 1e-9, seconds,
                     seconds > 0 ? bytes * 1e-6 / seconds : 0);
    }
    return ok;
}

enum status command_synth(const struct options *o)
{
    interrupt_listen(false);
    struct synth_options wanted = {
        .arch = text_or(o, OPTION_ARCH, "qwen4exp"),
        .mix = text_or(o, OPTION_MIX, "iq2xs"),
        .layers = (int)whole_or(o, OPTION_LAYERS, 8),
        .vocab = (int)whole_or(o, OPTION_VOCAB, 0),
        .ngram_base = whole_or(o, OPTION_NGRAM_BASE, 20011),
        .ids_len = (int)whole_or(o, OPTION_IDS_LEN, 16384),
        .seed = whole_or(o, OPTION_SYNTH_SEED, 1),
        .mtp = (enum synth_mtp)whole_or(o, OPTION_MTP, SYNTH_MTP_NO),
        .mtp_right = option_given(o, OPTION_MTP_RIGHT) ? o->value[OPTION_MTP_RIGHT].real : 0.7,
    };
    struct err low;
    err_clear(&low);
    struct strata_error e = {0};
    struct json_out table = {0};
    struct synth *s = synth_create(&wanted, &low);
    if (s)
        synth_table(s, &table);
    bool ok = take_error(&e, &low) && output_json(&table, &e);
    if (ok && !option_given(o, OPTION_DRY_RUN)) {
        write_model(s, o->word, &low);
        ok = take_error(&e, &low);
    }
    synth_free(s);
    return ok ? STATUS_DONE : message_error(&e);
}
