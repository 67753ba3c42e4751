/* SPDX-License-Identifier: Apache-2.0 */
#include "model/draft_file.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "gguf/join.h"
#include "model/hparams.h"

/* The model and the file of a draft layer. */
struct pair {
    const struct gguf_file *model, *draft;
    char *arch;
    struct err *e;
};

static const char *model_path(const struct pair *p)
{
    return gguf_part_path(p->model, 0);
}

static const char *draft_path(const struct pair *p)
{
    return gguf_part_path(p->draft, 0);
}

static bool same_arch(struct pair *p)
{
    char *other = NULL, shown[80];
    size_t bytes;
    bool ok = gguf_get_text(p->model, "general.architecture", true, &p->arch, NULL, p->e) &&
              gguf_get_text(p->draft, "general.architecture", true, &other, &bytes, p->e);
    if (ok && strcmp(p->arch, other) != 0) {
        char own[80];
        ok = err_set(p->e, ERR_UNSUPPORTED, "%s: a draft layer of architecture %s, but %s is a %s",
                     draft_path(p), err_escape(shown, sizeof shown, other, bytes), model_path(p),
                     err_escape(own, sizeof own, p->arch, strlen(p->arch)));
    }
    mem_free(other);
    return ok;
}

/* Layers without those that draft; *drafts: how many do. */
static int layers_of(const struct pair *p, const struct gguf_file *g, int *drafts)
{
    struct hparams h = {.file = g, .arch = p->arch, .e = p->e};
    int all = hparam_int(&h, "block_count", 1, HPARAM_LAYERS_MOST);
    *drafts = hparam_int_or(&h, "nextn_predict_layers", 0, all - 1, 0);
    return all - *drafts;
}

/* The number of a key that is no array; false where it has none. */
static bool number(const struct pair *p, const struct gguf_file *g, const char *name, double *out)
{
    char key[128];
    struct err ignored;
    err_clear(&ignored);
    struct hparams h = {.file = g, .arch = p->arch, .e = &ignored};
    hparam_key(&h, name, key, sizeof key);
    return gguf_get_f64(g, key, true, out, &ignored);
}

/* What one file does not say the shapes of tensors tell. */
static bool same_sizes(const struct pair *p)
{
    static const char *const names[] = {
        "embedding_length", "attention.head_count", "attention.head_count_kv",
        "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
        "rope.dimension_count", "rope.freq_base", "expert_count", "expert_used_count",
        "expert_feed_forward_length", "expert_shared_feed_forward_length",
        "hyper_connection.count", "hyper_connection.low_rank"};
    double own, other;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (number(p, p->model, names[i], &own) && number(p, p->draft, names[i], &other) &&
            own != other)
            return err_set(p->e, ERR_UNSUPPORTED, "%s: key \"%s.%s\": %.9g, but %s has %.9g",
                           draft_path(p), p->arch, names[i], other, model_path(p), own);
    return true;
}

static bool same_bytes(const struct pair *p, const struct gguf_key *a, const struct gguf_key *b,
                       bool *same)
{
    char own[4096], other[4096];
    *same = a->count == b->count && a->bytes == b->bytes;
    for (uint64_t at = 0; *same && at < a->bytes;) {
        size_t n = a->bytes - at < sizeof own ? (size_t)(a->bytes - at) : sizeof own;
        if (!file_read_at(gguf_part_fd(p->model, 0), model_path(p), a->offset + at, own, n, p->e) ||
            !file_read_at(gguf_part_fd(p->draft, 0), draft_path(p), b->offset + at, other, n, p->e))
            return false;
        *same = !memcmp(own, other, n);
        at += n;
    }
    return true;
}

/* A file without words or table is taken at its word. */
static bool same_vocabulary(const struct pair *p)
{
    static const char words[] = "tokenizer.ggml.tokens", table[] = "token_embd.weight";
    const struct gguf_key *own = gguf_key_find(p->model, words);
    const struct gguf_key *other = gguf_key_find(p->draft, words);
    bool same = true;
    if (own && other && !same_bytes(p, own, other, &same))
        return false;
    const struct gguf_tensor *a = gguf_tensor_find(p->model, table);
    const struct gguf_tensor *b = gguf_tensor_find(p->draft, table);
    if (same && (!a || !b || a->ne[1] == b->ne[1]))
        return true;
    return err_set(p->e, ERR_UNSUPPORTED, "%s: its vocabulary is not that of %s", draft_path(p),
                   model_path(p));
}

static bool check(struct pair *p, char prefix[GGUF_JOIN_PREFIX])
{
    int drafts, other_drafts;
    if (!same_arch(p))
        return false;
    int layers = layers_of(p, p->model, &drafts), other = layers_of(p, p->draft, &other_drafts);
    if (p->e->code != ERR_NONE)
        return false;
    char name[GGUF_JOIN_PREFIX + 32];
    snprintf(prefix, GGUF_JOIN_PREFIX, "blk.%d.", layers);
    snprintf(name, sizeof name, "%snextn.eh_proj.weight", prefix);
    if (gguf_tensor_find(p->model, name))
        return err_set(p->e, ERR_USAGE,
                       "%s: has a draft layer of its own (--draft mtp), %s cannot be used beside it",
                       model_path(p), draft_path(p));
    if (!other_drafts)
        return err_set(p->e, ERR_UNSUPPORTED,
                       "%s: key \"%s.nextn_predict_layers\": 0: the file has no draft layer",
                       draft_path(p), p->arch);
    if (other != layers)
        return err_set(p->e, ERR_UNSUPPORTED,
                       "%s: the draft layer of a model of %d layers, but %s has %d", draft_path(p),
                       other, model_path(p), layers);
    if (!gguf_tensor_find(p->draft, name))
        return err_set(p->e, ERR_FORMAT, "%s: tensor \"%s\" is missing", draft_path(p), name);
    return same_sizes(p) && same_vocabulary(p);
}

bool draft_file_join(struct gguf_file *g, const char *path, struct err *e)
{
    struct gguf_file *draft = gguf_open(path, e);
    if (!draft)
        return false;
    struct pair p = {.model = g, .draft = draft, .e = e};
    char prefix[GGUF_JOIN_PREFIX];
    bool ok = check(&p, prefix) && gguf_join(g, draft, prefix, e);
    mem_free(p.arch);
    gguf_close(draft);
    return ok;
}
