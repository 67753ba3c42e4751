/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a session to a file and going on from one (formats.md section 5). A conversation survives
 * an update of the program: where the bits of its state no longer count, its ids are fed again. */
#include <math.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/engine.h"
#include "session/hot_list.h"
#include "session/state_file.h"
#include "session/version.h"

static const struct strata_pass no_pass;

/* Everything that decides about the bits of an activation. */
static void bits_fingerprint(const struct strata_model *m, uint8_t out[STATE_FINGERPRINT])
{
    uint8_t all[48] = {0};
    memcpy(all, m->fingerprint, 16);
    bytes_put_u32(all + 16, STRATA_NUMERICS);
    bytes_put_u32(all + 20, m->options.kv);
    bytes_put_u32(all + 24, m->options.exact_activations);
    bytes_put_u32(all + 28, streaming_routing_print(m));
    memcpy(all + 32, m->backend->name, strnlen(m->backend->name, 16));
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(all, sizeof all));
    memcpy(out, c.digest, STATE_FINGERPRINT);
}

/* ---- The sampler's block -------------------------------------------------------------------- */

/* temp, top_k, top_p, min_p, three penalties (4 bytes each), zero, seed, start of the answer. The
 * draw of a position needs nothing else, and the penalties' history is in the ids. */
enum { SAMPLER_BYTES = 48 };

static void put_f32(uint8_t *p, float v)
{
    bytes_put_u32(p, half_f32_bits(v));
}

static float get_f32(const uint8_t *p)
{
    return half_bits_f32(bytes_u32(p));
}

static void put_sampling(uint8_t *p, const struct sampling *s, int answer_start)
{
    memset(p, 0, SAMPLER_BYTES);
    put_f32(p, s->temp);
    bytes_put_u32(p + 4, (uint32_t)s->top_k);
    put_f32(p + 8, s->top_p);
    put_f32(p + 12, s->min_p);
    put_f32(p + 16, s->repetition_penalty);
    put_f32(p + 20, s->presence_penalty);
    put_f32(p + 24, s->frequency_penalty);
    bytes_put_u64(p + 32, s->seed);
    bytes_put_u64(p + 40, (uint64_t)answer_start);
}

static bool get_sampling(struct strata_session *s, const struct state_file *f, const uint8_t *p,
                         size_t bytes, struct err *e)
{
    if (bytes != SAMPLER_BYTES)
        return err_set(e, ERR_FORMAT, "%s: section sampler has %zu bytes, not %d", f->path, bytes,
                       SAMPLER_BYTES);
    struct sampling sampling = {
        .temp = get_f32(p),
        .top_k = (int32_t)bytes_u32(p + 4),
        .top_p = get_f32(p + 8),
        .min_p = get_f32(p + 12),
        .repetition_penalty = get_f32(p + 16),
        .presence_penalty = get_f32(p + 20),
        .frequency_penalty = get_f32(p + 24),
        .seed = bytes_u64(p + 32),
    };
    if (bytes_u64(p + 40) > f->head.position)
        return err_set(e, ERR_FORMAT, "%s: the answer begins at %llu, behind the position %llu",
                       f->path, (unsigned long long)bytes_u64(p + 40),
                       (unsigned long long)f->head.position);
    if (!sampling_check(&sampling, e))
        return false;
    s->sampling = sampling;
    s->has_sampling = true;
    s->answer_start = (int)bytes_u64(p + 40);
    return true;
}

/* ---- Saving --------------------------------------------------------------------------------- */

bool strata_save(struct strata_session *s, const char *path, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    uint8_t *hot = NULL;
    size_t hot_bytes;
    if (session_catch_up(s, &no_pass, &e) && hot_list_bytes(s->model, &hot, &hot_bytes, &e)) {
        struct state_header h = {.position = (uint64_t)s->n_ids, .ctx = (uint64_t)s->ctx};
        memcpy(h.model, s->model->fingerprint, STATE_FINGERPRINT);
        bits_fingerprint(s->model, h.bits);
        struct state_block blocks[4];
        int n = 0;
        if (strata_logits(s))
            blocks[n++] =
                (struct state_block){"logits", s->logits, (size_t)s->vocab * sizeof *s->logits};
        uint8_t sampler[SAMPLER_BYTES];
        if (s->has_sampling) {
            put_sampling(sampler, &s->sampling, s->answer_start);
            blocks[n++] = (struct state_block){"sampler", sampler, sizeof sampler};
        }
        if (s->messages)
            blocks[n++] = (struct state_block){"messages", s->messages, strlen(s->messages)};
        if (hot)
            blocks[n++] = (struct state_block){"hot", hot, hot_bytes};
        state_file_write(path, &h, s->state, blocks, n, &e);
    }
    mem_free(hot);
    return session_report(error, &e);
}

bool strata_messages_set(struct strata_session *s, const char *json, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    char *copy = json ? mem_copy_text(json, strlen(json), &e) : NULL;
    if (e.code == ERR_NONE) {
        mem_free(s->messages);
        s->messages = copy;
    }
    return session_report(error, &e);
}

const char *strata_messages(const struct strata_session *s)
{
    return s->messages;
}

/* ---- Loading -------------------------------------------------------------------------------- */

/* The most that messages may have: far beyond what a context can hold. */
#define MESSAGES_MOST ((size_t)256 << 20)

static bool load_blocks(struct strata_session *s, const struct state_file *f, struct err *e)
{
    void *data;
    size_t bytes;
    if (!state_file_block(f, "sampler", SAMPLER_BYTES, &data, &bytes, e))
        return false;
    bool ok = !data || get_sampling(s, f, data, bytes, e);
    mem_free(data);
    if (!ok || !state_file_block(f, "messages", MESSAGES_MOST, &data, &bytes, e))
        return false;
    if (data && strlen(data) != bytes) {
        mem_free(data);
        return err_set(e, ERR_FORMAT, "%s: section messages holds a NUL", f->path);
    }
    s->messages = data;
    return true;
}

static bool load_logits(struct strata_session *s, const struct state_file *f, struct err *e)
{
    void *data;
    size_t bytes, wanted = (size_t)s->vocab * sizeof *s->logits;
    if (!state_file_block(f, "logits", wanted, &data, &bytes, e))
        return false;
    if (!data)
        return true;
    memcpy(s->logits, data, bytes);
    mem_free(data);
    if (bytes != wanted)
        return err_set(e, ERR_FORMAT, "%s: section logits has %zu bytes, not %zu", f->path, bytes,
                       wanted);
    for (int i = 0; i < s->vocab; i++)
        if (!isfinite(s->logits[i]))
            return err_set(e, ERR_FORMAT, "%s: logit %d is not finite", f->path, i);
    s->logits_position = s->n_ids;
    return true;
}

/* The state's bits as they are in the file. */
static bool load_bits(struct strata_session *s, const struct state_file *f,
                      const atomic_bool *cancel, struct err *e)
{
    int n = (int)f->head.position;
    memcpy(s->state->ids, s->ids, (size_t)n * sizeof *s->ids);
    s->state->position = n;
    if (!state_file_items(f, s->state, e) || !model_state_restored(s->state, cancel, e))
        return false;
    s->n_ids = n;
    return load_logits(s, f, e);
}

static bool check_fits(const struct strata_session *s, const struct state_file *f, struct err *e)
{
    if (memcmp(f->head.model, s->model->fingerprint, STATE_FINGERPRINT) != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: saved with another model than %s", f->path,
                       s->model->path);
    if (f->head.position > (uint64_t)s->ctx)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: holds %llu tokens, a context of %d is too small: at least %llu is needed", f->path,
            (unsigned long long)f->head.position, s->ctx, (unsigned long long)f->head.position);
    return true;
}

static bool load_file(struct strata_session *s, const struct state_file *f,
                      const struct strata_pass *pass, struct err *e)
{
    int n = (int)f->head.position;
    if (!state_file_ids(f, s->ids, e) || !session_check_ids(s, s->ids, (size_t)n, 0, e) ||
        !load_blocks(s, f, e) || !hot_list_load(s->model, f, e))
        return false;
    uint8_t bits[STATE_FINGERPRINT];
    bits_fingerprint(s->model, bits);
    if (memcmp(bits, f->head.bits, STATE_FINGERPRINT) == 0)
        return load_bits(s, f, pass->cancel, e);
    log_note("%s: saved by another version or with other options, its text of %d token%s is read again",
             f->path, n, n == 1 ? "" : "s");
    struct strata_pass quiet = {
        .ctx = pass->ctx, .progress = pass->progress, .cancel = pass->cancel};
    return session_run_bands(s, n, n, LOGITS_LAST, &quiet, e);
}

bool strata_load(struct strata_session *s, const char *path, const struct strata_pass *pass,
                 struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct state_file f;
    if (state_file_open(&f, path, &e) && check_fits(s, &f, &e) && strata_session_reset(s, error) &&
        !load_file(s, &f, pass ? pass : &no_pass, &e))
        strata_session_reset(s, error);
    state_file_close(&f);
    return session_report(error, &e);
}
