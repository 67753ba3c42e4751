/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids: special tokens first (text.md 1.6), pieces between them (1.4), merges in a piece
 * (1.5). */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"
#include "text/vocab.h"

#define NONE UINT32_MAX

/* A symbol of the piece being merged, at the place of its first byte. */
struct symbol {
    uint32_t token; /* NONE: merged into its left neighbour */
    uint32_t previous, next;
};

/* State of one call. Symbols and heap serve one piece after the other. */
struct encoder {
    const struct tokenizer *t;
    int32_t *ids;
    size_t n, room;
    struct symbol *symbols;
    size_t symbols_room;
    uint64_t *heap; /* possible merges, rank << 32 | place of the left symbol: smallest first */
    size_t heap_count;
    struct err *e;
};

static bool put(struct encoder *c, uint32_t token)
{
    if (c->n == c->room) {
        size_t room = c->room ? c->room * 2 : 64;
        int32_t *ids = mem_grow(c->ids, room * sizeof *ids, "token ids", c->e);
        if (!ids)
            return false;
        c->ids = ids;
        c->room = room;
    }
    c->ids[c->n++] = (int32_t)token;
    return true;
}

/* ---- Merges ---- */

static void heap_push(struct encoder *c, uint64_t entry)
{
    size_t i = c->heap_count++;
    for (size_t up; i && c->heap[up = (i - 1) / 2] > entry; i = up)
        c->heap[i] = c->heap[up];
    c->heap[i] = entry;
}

static uint64_t heap_pop(struct encoder *c)
{
    uint64_t top = c->heap[0], last = c->heap[--c->heap_count];
    size_t i = 0, down;
    while ((down = 2 * i + 1) < c->heap_count) {
        if (down + 1 < c->heap_count && c->heap[down + 1] < c->heap[down])
            down++;
        if (c->heap[down] >= last)
            break;
        c->heap[i] = c->heap[down];
        i = down;
    }
    c->heap[i] = last;
    return top;
}

/* Notes that the symbol at `left` and its right neighbour could be merged, if they can. */
static void consider(struct encoder *c, uint32_t left)
{
    const struct symbol *s = c->symbols;
    if (left == NONE || s[left].next == NONE)
        return;
    uint32_t rank = vocab_rank(c->t, s[left].token, s[s[left].next].token);
    if (rank != NONE)
        heap_push(c, (uint64_t)rank << 32 | left);
}

static void merge_all(struct encoder *c)
{
    struct symbol *s = c->symbols;
    while (c->heap_count) {
        uint64_t entry = heap_pop(c);
        uint32_t left = (uint32_t)entry, right = s[left].next;
        const struct merge *m = &c->t->merges[entry >> 32];
        /* The pair may be gone: a dead symbol has no token, a grown one has another. */
        if (s[left].token != m->left || right == NONE || s[right].token != m->right)
            continue;
        s[left].token = m->result;
        s[left].next = s[right].next;
        s[right].token = NONE;
        if (s[left].next != NONE)
            s[s[left].next].previous = left;
        consider(c, s[left].previous);
        consider(c, left);
    }
}

/* At the start n - 1 pairs can be in the heap, and each merge takes one out and puts two in at
 * most: 2 n entries are always enough. */
static bool make_room(struct encoder *c, size_t n)
{
    if (n <= c->symbols_room)
        return true;
    size_t room = n > 2 * c->symbols_room ? n : 2 * c->symbols_room;
    mem_free(c->symbols);
    mem_free(c->heap);
    c->symbols_room = 0;
    c->symbols = mem_alloc_array(room, sizeof *c->symbols, "tokenizing", c->e);
    c->heap = mem_alloc_array(room, 2 * sizeof *c->heap, "tokenizing", c->e);
    if (!c->symbols || !c->heap)
        return false;
    c->symbols_room = room;
    return true;
}

static bool encode_piece(struct encoder *c, const char *text, size_t bytes)
{
    if (bytes >= NONE / 2)
        return err_set(c->e, ERR_UNSUPPORTED,
                       "a text without a break of %zu bytes is too long to tokenize", bytes);
    if (!make_room(c, bytes))
        return false;
    uint32_t n = (uint32_t)bytes;
    for (uint32_t i = 0; i < n; i++)
        c->symbols[i] = (struct symbol){c->t->byte_tokens[(unsigned char)text[i]], i ? i - 1 : NONE,
                                        i + 1 < n ? i + 1 : NONE};
    c->heap_count = 0;
    for (uint32_t i = 0; i < n; i++)
        consider(c, i);
    merge_all(c);
    for (uint32_t i = 0; i != NONE; i = c->symbols[i].next)
        if (!put(c, c->symbols[i].token))
            return false;
    return true;
}

static bool encode_fragment(struct encoder *c, const char *text, size_t bytes)
{
    while (bytes) {
        size_t n = split_first(c->t->split, text, bytes);
        if (!encode_piece(c, text, n))
            return false;
        text += n;
        bytes -= n;
    }
    return true;
}

/* ---- Special tokens ---- */

struct special_search {
    enum special_mode mode;
    const struct text_range *user;
    size_t n_user;
};

/* Bytes begin .. end - 1 touch a range of the user. */
static bool touches_user(const struct special_search *s, size_t begin, size_t end)
{
    size_t low = 0, high = s->n_user; /* first range that ends after begin */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->user[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n_user && s->user[low].begin < end && s->user[low].begin < s->user[low].end;
}

/* Number of specials, from `low` on, whose byte `at` is below `byte`; all of them up to `high` have
 * that byte and agree on the bytes before it. */
static size_t narrow(const struct tokenizer *t, size_t low, size_t high, size_t at, unsigned byte)
{
    while (low < high) {
        size_t middle = (low + high) / 2;
        struct text_view v = vocab_text(t, t->specials[middle]);
        if ((unsigned char)v.text[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special token that starts at `at` and counts there; its bytes, or 0. */
static size_t special_at(const struct tokenizer *t, const struct special_search *s,
                         const char *text, size_t bytes, size_t at, uint32_t *token)
{
    size_t low = 0, high = t->n_specials, found = 0;
    for (size_t n = 0; at + n < bytes && low < high; n++) {
        unsigned byte = (unsigned char)text[at + n];
        low = narrow(t, low, high, n, byte);
        high = narrow(t, low, high, n, byte + 1);
        /* All of low .. high - 1 begin with the n + 1 bytes; the shortest comes first. */
        if (low == high || vocab_text(t, t->specials[low]).bytes != n + 1)
            continue;
        uint32_t id = t->specials[low++];
        bool user = t->types[id] == TOKEN_USER;
        if (user || (s->mode == SPECIAL_ALL && !touches_user(s, at, at + n + 1))) {
            *token = id;
            found = n + 1;
        }
    }
    return found;
}

static bool encode_text(struct encoder *c, const struct special_search *s, const char *text,
                        size_t bytes)
{
    size_t fragment = 0; /* where the one begins that is being passed over */
    for (size_t at = 0; s->mode != SPECIAL_NONE && at < bytes;) {
        uint32_t token;
        size_t n = c->t->begins_special[(unsigned char)text[at]]
                       ? special_at(c->t, s, text, bytes, at, &token)
                       : 0;
        if (n && (!encode_fragment(c, text + fragment, at - fragment) || !put(c, token)))
            return false;
        at += n ? n : 1;
        if (n)
            fragment = at;
    }
    return encode_fragment(c, text + fragment, bytes - fragment);
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                      enum special_mode mode, const struct text_range *user, size_t n_user,
                      int32_t **ids, size_t *n, struct err *e)
{
    struct encoder c = {.t = t, .e = e};
    struct special_search s = {mode, user, n_user};
    char *repaired = NULL;
    *ids = NULL;
    *n = 0;
    if (!unicode_repair(text, bytes, &repaired, &bytes, e))
        return false;
    bool done = !repaired || !n_user;
    if (!done)
        err_set(e, ERR_FORMAT, "a chat prompt is not UTF-8");
    done = done && encode_text(&c, &s, repaired ? repaired : text, bytes);
    if (done && !c.ids) /* an empty text: a valid pointer all the same */
        done = (c.ids = mem_alloc(0, "token ids", e)) != NULL;
    mem_free(repaired);
    mem_free(c.symbols);
    mem_free(c.heap);
    if (!done) {
        mem_free(c.ids);
        return false;
    }
    *ids = c.ids;
    *n = c.n;
    return true;
}
