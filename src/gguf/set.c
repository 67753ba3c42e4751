/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a file or a split set (rules R26 and R27 of gguf-and-quants.md section 1.8), and the
 * questions that an open set answers without reading. */
#include "gguf/set.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "gguf/number.h"

#define PARTS_MOST 65535
/* "-00001-of-00003.gguf" */
#define PART_SUFFIX_BYTES 20

/* ---- integer keys of a part ---- */

struct integer {
    bool is_there;
    uint32_t type;
    uint64_t bits;
};

static bool get_integer(const struct gguf_part *part, const struct gguf_keys *keys,
                        const char *name, struct integer *out, struct err *e)
{
    const struct gguf_key *key = gguf_keys_find(keys, name);
    *out = (struct integer){0};
    if (!key)
        return true;
    if (!gguf_type_is_integer(key->type))
        return err_set(e, ERR_FORMAT, "%s: key \"%s\": type %" PRIu32 " (%s), expected an integer",
                       part->path, name, key->type, gguf_type_name(key->type));
    *out = (struct integer){true, key->type, key->bits};
    return true;
}

static bool is_equal(const struct integer *v, int64_t want)
{
    int64_t number;
    return v->is_there && gguf_number_i64(v->type, v->bits, &number) && number == want;
}

static const char *shown(char out[GGUF_NUMBER_TEXT], const struct integer *v)
{
    return v->is_there ? gguf_number_text(out, v->type, v->bits) : "missing";
}

/* ---- parts ---- */

static struct gguf_part *add_part(struct gguf_file *g, const char *path, size_t path_bytes,
                                  struct err *e)
{
    if (g->n_parts == g->parts_room) {
        int room = g->parts_room * 2 + 1;
        struct gguf_part *parts =
            mem_grow(g->parts, (size_t)room * sizeof *parts, "parts of the model", e);
        if (!parts)
            return NULL;
        g->parts = parts;
        g->parts_room = room;
    }
    struct gguf_part *part = &g->parts[g->n_parts];
    *part = (struct gguf_part){.fd = -1};
    part->path = mem_copy_text(path, path_bytes, e);
    if (!part->path)
        return NULL;
    g->n_parts++;
    return part;
}

/* Behind the front of a part lie experts, which may have to stay out of memory: nothing is fetched
 * that is not asked for. */
static bool open_file(struct gguf_part *part, struct err *e)
{
    part->fd = file_open(part->path, &part->bytes, e);
    if (part->fd >= 0)
        file_read_ahead_off(part->fd);
    return part->fd >= 0;
}

/* Number of five digits, -1 when they are not. */
static int five_digits(const char *text)
{
    int v = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        v = v * 10 + (text[i] - '0');
    }
    return v;
}

struct part_name {
    size_t stem_bytes; /* of the path, folder included */
    int number, count; /* as written, from 1 */
};

static bool parse_part_name(const char *path, struct part_name *out)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    if (n < PART_SUFFIX_BYTES)
        return false;
    const char *suffix = base + n - PART_SUFFIX_BYTES;
    out->stem_bytes = (size_t)(suffix - path);
    if (suffix[0] != '-' || memcmp(suffix + 6, "-of-", 4) != 0 || strcmp(suffix + 15, ".gguf") != 0)
        return false;
    out->number = five_digits(suffix + 1);
    out->count = five_digits(suffix + 10);
    return out->number >= 0 && out->count >= 0;
}

/* What every part of a set must say. */
struct set_rule {
    struct part_name name;
    int64_t count;
    struct integer total; /* of the first part */
};

/* Is the first part what its name and keys say? rule->count stays 0 for a single file. */
static bool check_first(const struct gguf_file *g, struct set_rule *rule, struct err *e)
{
    const struct gguf_part *part = &g->parts[0];
    struct integer count, no;
    char text[GGUF_NUMBER_TEXT];
    rule->count = 0;
    if (!get_integer(part, &g->keys, "split.count", &count, e) ||
        !get_integer(part, &g->keys, "split.no", &no, e))
        return false;
    if (!count.is_there && no.is_there && no.bits)
        return err_set(e, ERR_FORMAT, "%s: key \"split.no\": %s without split.count", part->path,
                       shown(text, &no));
    if (!count.is_there || is_equal(&count, 0) || is_equal(&count, 1))
        return true;
    int64_t n;
    if (!gguf_number_i64(count.type, count.bits, &n) || n < 0 || n > PARTS_MOST)
        return err_set(e, ERR_FORMAT, "%s: key \"split.count\": %s is not 0..%d", part->path,
                       shown(text, &count), PARTS_MOST);
    if (!parse_part_name(part->path, &rule->name))
        return err_set(e, ERR_FORMAT,
                       "%s: key \"split.count\": %" PRId64
                       ", but the file name does not end in -NNNNN-of-NNNNN.gguf",
                       part->path, n);
    if (rule->name.count != n)
        return err_set(e, ERR_FORMAT,
                       "%s: key \"split.count\": %" PRId64 ", but the file name says %d",
                       part->path, n, rule->name.count);
    if (!no.is_there)
        return err_set(e, ERR_FORMAT, "%s: key \"split.no\": missing", part->path);
    if (!is_equal(&no, rule->name.number - 1))
        return err_set(e, ERR_FORMAT, "%s: key \"split.no\": %s, but the file name says %d",
                       part->path, shown(text, &no), rule->name.number - 1);
    if (!is_equal(&no, 0))
        return err_set(e, ERR_FORMAT, "%s: key \"split.no\": %s: open the first file of the set",
                       part->path, shown(text, &no));
    if (!get_integer(part, &g->keys, "split.tensors.count", &rule->total, e))
        return false;
    if (!rule->total.is_there)
        return err_set(e, ERR_FORMAT, "%s: key \"split.tensors.count\": missing", part->path);
    rule->count = n;
    return true;
}

static bool expect(const struct gguf_part *part, const struct gguf_keys *keys, const char *name,
                   const struct integer *want, struct err *e)
{
    struct integer v;
    char got[GGUF_NUMBER_TEXT], wanted[GGUF_NUMBER_TEXT];
    if (!get_integer(part, keys, name, &v, e))
        return false;
    if (v.is_there && strcmp(shown(got, &v), shown(wanted, want)) == 0)
        return true;
    return err_set(e, ERR_FORMAT, "%s: key \"%s\": %s, expected %s", part->path, name,
                   shown(got, &v), shown(wanted, want));
}

/* Opens and checks part `i` (from 1) of a set. */
static bool open_part(struct gguf_file *g, const struct set_rule *rule, int i, struct err *e)
{
    size_t bytes = rule->name.stem_bytes + PART_SUFFIX_BYTES;
    char *path = mem_alloc(bytes + 1, "path of a part", e);
    if (!path)
        return false;
    memcpy(path, g->parts[0].path, rule->name.stem_bytes);
    snprintf(path + rule->name.stem_bytes, PART_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf",
             (unsigned)(i + 1) % 100000, (unsigned)rule->count % 100000);
    struct gguf_part *part = add_part(g, path, bytes, e);
    mem_free(path);
    if (!part)
        return false;
    struct err reason = {0};
    if (!open_file(part, &reason))
        return err_set(e, reason.code, "%s (part %d of %d)", reason.text, i + 1, (int)rule->count);

    struct gguf_keys keys = {0};
    const struct integer count = {true, GGUF_U64, (uint64_t)rule->count};
    const struct integer no = {true, GGUF_U64, (uint64_t)i};
    bool ok = gguf_part_read(part, i, &keys, &g->tensors, e) &&
              expect(part, &keys, "split.count", &count, e) &&
              expect(part, &keys, "split.no", &no, e) &&
              expect(part, &keys, "split.tensors.count", &rule->total, e);
    gguf_keys_free(&keys);
    if (ok && g->tensors.twice_in_set != GGUF_NO_NAME) {
        const char *name = g->tensors.items[g->tensors.twice_in_set].name;
        char text[300];
        ok = err_set(e, ERR_FORMAT, "%s: tensor \"%s\": given twice in the set", part->path,
                     err_escape(text, sizeof text, name, strlen(name)));
    }
    return ok;
}

static bool open_set(struct gguf_file *g, const char *path, struct err *e)
{
    struct gguf_part *first = add_part(g, path, strlen(path), e);
    if (!first)
        return false;
    struct set_rule rule;
    if (!open_file(first, e) || !gguf_part_read(first, 0, &g->keys, &g->tensors, e) ||
        !check_first(g, &rule, e))
        return false;
    for (int i = 1; i < rule.count; i++)
        if (!open_part(g, &rule, i, e))
            return false;
    if (rule.count && !is_equal(&rule.total, (int64_t)g->tensors.count)) {
        char text[GGUF_NUMBER_TEXT];
        return err_set(e, ERR_FORMAT,
                       "%s: key \"split.tensors.count\": %s, but the set has %zu tensors",
                       g->parts[0].path, shown(text, &rule.total), g->tensors.count);
    }
    return true;
}

struct gguf_file *gguf_open(const char *path, struct err *e)
{
    struct gguf_file *g = mem_alloc(sizeof *g, "model file", e);
    if (!g)
        return NULL;
    g->tensors.twice_in_set = GGUF_NO_NAME;
    if (open_set(g, path, e))
        return g;
    gguf_close(g);
    return NULL;
}

void gguf_close(struct gguf_file *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_parts; i++) {
        if (g->parts[i].fd >= 0)
            close(g->parts[i].fd);
        mem_free(g->parts[i].path);
    }
    mem_free(g->parts);
    gguf_keys_free(&g->keys);
    mem_free(g->tensors.items);
    gguf_names_free(&g->tensors.names);
    mem_free(g);
}

/* ---- questions ---- */

int gguf_parts(const struct gguf_file *g)
{
    return g->n_parts;
}

const char *gguf_part_path(const struct gguf_file *g, int part)
{
    return g->parts[part].path;
}

int gguf_part_fd(const struct gguf_file *g, int part)
{
    return g->parts[part].fd;
}

uint64_t gguf_part_bytes(const struct gguf_file *g, int part)
{
    return g->parts[part].bytes;
}

uint64_t gguf_part_header_bytes(const struct gguf_file *g, int part)
{
    return g->parts[part].header_bytes;
}

uint32_t gguf_version(const struct gguf_file *g)
{
    return g->parts[0].version;
}

uint64_t gguf_alignment(const struct gguf_file *g)
{
    return g->parts[0].alignment;
}

uint64_t gguf_total_bytes(const struct gguf_file *g)
{
    uint64_t total = 0;
    for (int i = 0; i < g->n_parts; i++)
        total += g->parts[i].bytes;
    return total;
}

size_t gguf_tensor_count(const struct gguf_file *g)
{
    return g->tensors.count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *g, size_t i)
{
    return &g->tensors.items[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf_file *g, const char *name)
{
    size_t i = gguf_names_find(&g->tensors.names, name, strlen(name));
    return i == GGUF_NO_NAME ? NULL : &g->tensors.items[i];
}

size_t gguf_key_count(const struct gguf_file *g)
{
    return g->keys.count;
}

const struct gguf_key *gguf_key_at(const struct gguf_file *g, size_t i)
{
    return &g->keys.items[i];
}

const struct gguf_key *gguf_key_find(const struct gguf_file *g, const char *name)
{
    return gguf_keys_find(&g->keys, name);
}

/* ---- fingerprint ---- */

static bool hash_header(XXH3_state_t *state, const struct gguf_part *part, struct err *e)
{
    uint8_t block[16384];
    for (uint64_t at = 0; at < part->header_bytes;) {
        uint64_t left = part->header_bytes - at;
        size_t n = left < sizeof block ? (size_t)left : sizeof block;
        if (!file_read_at(part->fd, part->path, at, block, n, e))
            return false;
        XXH3_128bits_update(state, block, n);
        at += n;
    }
    bytes_put_u64(block, part->bytes);
    XXH3_128bits_update(state, block, 8);
    return true;
}

bool gguf_fingerprint(const struct gguf_file *g, uint8_t out[16], struct err *e)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return err_set(e, ERR_MEMORY, "out of memory: state of the model fingerprint");
    XXH3_128bits_reset(state);
    bool ok = true;
    for (int i = 0; ok && i < gguf_own_parts(g); i++)
        ok = hash_header(state, &g->parts[i], e);
    if (ok) {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
        memcpy(out, canonical.digest, 16);
    }
    XXH3_freeState(state);
    return ok;
}
