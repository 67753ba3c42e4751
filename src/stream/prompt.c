/* SPDX-License-Identifier: Apache-2.0 */
/* Bands (docs/streaming.md, "Prefill"). A band needs most experts of every layer, far more than the
 * arena holds, so what counts is that the drive never pauses: while a layer is computed, the next
 * one's experts are read, most tokens first, as far as there are slots. For that a prompt borrows
 * places from the cache, in the policy's order; its last band gives them back layer by layer, and
 * they are filled with what that has read and used most. */
#include "stream/inner.h"
#include "stream/sort.h"

/* ---- look-ahead ---- */

static uint64_t most_first(uint32_t count, int expert)
{
    return (uint64_t)(UINT32_MAX - count) << 32 | (uint64_t)expert;
}

/* key[0..n-1] has experts in the order of reading. */
static void start_look_ahead(struct stream *s, int layer, int n)
{
    sort_u64(s->key, (size_t)n);
    for (int j = 0; j < n; j++)
        s->ahead_expert[j] = (int32_t)(uint32_t)s->key[j];
    s->ahead = (struct look_ahead){.layer = layer, .n = n};
    prompt_go_on(s);
}

void prompt_go_on(struct stream *s)
{
    struct look_ahead *a = &s->ahead;
    bool turn_comes_first = s->turn.is_active && s->turn.unread < s->turn.wanted;
    while (!turn_comes_first && a->next < a->n &&
           ahead_stage(s, a->layer, s->ahead_expert[a->next]))
        a->next++;
    slots_note_wanting(s);
}

void prompt_settle(struct stream *s)
{
    if (s->ahead.layer == s->turn.layer || !s->turn.is_band)
        s->ahead.n = 0;
}

/* Counts the rows of each expert; those that are not resident are read. */
void prompt_guess(struct stream *s, int layer, const int32_t *ids, int n)
{
    uint8_t *rank_of = s->rank + s->record_of[layer];
    int missing = 0;
    for (int i = 0; i < n; i++)
        s->rows[ids[i]]++;
    for (int i = 0; i < n; i++) {
        int x = ids[i];
        if (s->rows[x] && !is_resident(s, layer, x)) {
            s->key[missing++] = most_first(s->rows[x], x);
            rank_of[x] = 0;
        }
        s->rows[x] = 0;
    }
    start_look_ahead(s, layer, missing);
}

/* The first layer has no layer before it: what the last band used most, else what is popular. */
void prompt_next_band(struct stream *s)
{
    int layer = s->first_layer, experts = s->layer[layer].experts, n = 0;
    if (!s->is_prompt || !s->has_look_ahead || s->prompt_rows <= 0)
        return;
    const uint32_t *heat = s->heat + s->record_of[layer], *count = s->count + s->record_of[layer];
    bool is_hot = false;
    for (int x = 0; x < experts; x++)
        is_hot = is_hot || heat[x];
    for (int x = 0; x < experts; x++) {
        uint32_t uses = is_hot ? heat[x] : count[x];
        if (uses && !is_resident(s, layer, x))
            s->key[n++] = most_first(uses, x);
    }
    start_look_ahead(s, layer, n);
    int64_t most = s->prompt_rows * s->experts_used; /* that can be selected at all */
    if (s->ahead.n > most)
        s->ahead.n = (int)most;
    slots_note_wanting(s);
}

/* ---- borrowing ---- */

static int most_experts_of_class(const struct stream *s, int class_index)
{
    int most = 0;
    for (int l = 0; l < s->layers; l++)
        if (s->layer[l].experts > most && class_of_layer(s, l) == class_index)
            most = s->layer[l].experts;
    return most;
}

/* What one layer of the prompt may need besides residents, and as much again when it is long: then
 * computing takes as long as reading, and the next layer's experts come while this one's are still
 * held. At most half of the class, nothing where everything fits. */
static int places_to_borrow(const struct stream *s, int class_index, int rows)
{
    const struct arena_class *k = &s->arena.class[class_index];
    int64_t most = (int64_t)rows * s->experts_used;
    int experts = most_experts_of_class(s, class_index), there = s->pool[class_index].residents;
    int left = s->pool[class_index].capacity - k->least;
    if ((uint64_t)k->slots >= k->records)
        return 0;
    experts -= (int)((uint64_t)there * (uint64_t)experts / k->records); /* in the mean of layers */
    most = (most < experts ? most : experts) + (rows < experts ? rows : experts);
    most = most < k->slots / 2 ? most : k->slots / 2;
    most = most < left ? most : left;
    return most > 0 ? (int)most : 0;
}

void stream_prompt_begin(struct stream *s, int rows)
{
    assert(!s->turn.is_active);
    if (s->is_prompt)
        stream_prompt_end(s);
    s->is_prompt = true;
    s->prompt_rows = rows;
    ahead_pause_guard(s);
    io_set_prompt(s->io, true);
    turn_collect(s, false);
    for (int c = 0; c < s->arena.classes; c++) {
        struct pool *p = &s->pool[c];
        p->borrowed = places_to_borrow(s, c, rows);
        p->capacity -= p->borrowed;
        victims_shrink(s, c, p->capacity);
    }
    s->sweep_layer = s->layers; /* the next band is a new sweep */
    prompt_next_band(s);
}

/* ---- giving back ---- */

/* The last band gives back what belongs to the layers that it has reached, so that the places are
 * filled with what it has read anyhow; reading them later would cost a record for every place. */
void prompt_give_back(struct stream *s)
{
    int c = s->turn.class_index, layers = 0, to_come = 0;
    struct pool *p = &s->pool[c];
    if (!s->turn.is_band || !s->is_prompt || s->prompt_rows > 0 || !p->borrowed)
        return;
    for (int l = 0; l < s->layers; l++) {
        bool is_ours = s->layer[l].experts && class_of_layer(s, l) == c;
        layers += is_ours;
        to_come += is_ours && l > s->turn.layer;
    }
    int kept = (int)((int64_t)s->arena.class[c].slots * to_come / layers);
    kept = kept < p->borrowed ? kept : p->borrowed;
    p->capacity += p->borrowed - kept;
    p->borrowed = kept;
}

void stream_prompt_end(struct stream *s)
{
    assert(!s->turn.is_active);
    if (!s->is_prompt)
        return;
    s->is_prompt = false;
    s->ahead.n = 0;
    ahead_drop_all(s);
    slots_note_wanting(s);
    io_set_prompt(s->io, false);
    for (int c = 0; c < s->arena.classes; c++) {
        s->pool[c].capacity += s->pool[c].borrowed;
        s->pool[c].borrowed = 0;
    }
}
