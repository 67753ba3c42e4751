/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"

/* More than any prompt: the ids of the longest context, 2^24 tokens, as decimals. */
#define INPUT_MOST ((size_t)1 << 27)

static const char *shown(const char *path)
{
    return strcmp(path, "-") ? path : "stdin";
}

/* Reads until the end; grows by doubling. */
static char *read_whole(int fd, const char *name, size_t *bytes, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    size_t room = 1 << 16, n = 0;
    char *text = mem_grow(NULL, room, name, &low);
    while (text) {
        if (!interrupt_wait_for_input(fd)) {
            err_set(&low, ERR_INTERRUPTED, "interrupted");
            break;
        }
        ssize_t got = read(fd, text + n, room - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            err_set(&low, ERR_IO, "%s: %s", name, strerror(errno));
        if (got <= 0)
            break;
        n += (size_t)got;
        if (n > INPUT_MOST) {
            err_set(&low, ERR_UNSUPPORTED, "%s: has more than %zu bytes", name, INPUT_MOST);
            break;
        }
        if (n + 1 == room) {
            char *more = mem_grow(text, room *= 2, name, &low);
            if (!more)
                break;
            text = more;
        }
    }
    if (!take_error(e, &low)) {
        mem_free(text);
        return NULL;
    }
    text[n] = 0;
    *bytes = n;
    return text;
}

char *input_read(const char *path, size_t *bytes, struct strata_error *e)
{
    if (!strcmp(path, "-"))
        return read_whole(STDIN_FILENO, shown(path), bytes, e);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fail(e, STRATA_IO, "%s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = read_whole(fd, path, bytes, e);
    close(fd);
    return text;
}

char *input_read_text(const char *path, struct strata_error *e)
{
    size_t bytes;
    char *text = input_read(path, &bytes, e);
    if (text && strlen(text) != bytes) {
        fail(e, STRATA_FORMAT, "%s: a NUL at byte %zu", shown(path), strlen(text));
        mem_free(text);
        return NULL;
    }
    return text;
}

/* ---- Ids ------------------------------------------------------------------------------------ */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

/* One id of n characters. */
static bool parse_id(const char *text, size_t n, const char *name, int vocabulary, int32_t *out,
                     struct strata_error *e)
{
    char word[64];
    err_escape(word, sizeof word, text, n);
    bool is_negative = n > 1 && text[0] == '-', is_number = true;
    int64_t value = 0;
    for (size_t i = is_negative; i < n && is_number; i++) {
        is_number = text[i] >= '0' && text[i] <= '9';
        if (value < INT32_MAX)
            value = value * 10 + (text[i] - '0');
    }
    if (!n || !is_number)
        return fail(e, STRATA_FORMAT, "%s: %s is not a token id", name, n ? word : "a gap");
    if (is_negative || value >= vocabulary)
        return fail(e, STRATA_FORMAT, "%s: id %s is not one of the vocabulary's, 0 to %d", name,
                    word, vocabulary - 1);
    *out = (int32_t)value;
    return true;
}

/* Where a list's parts are found: the next one is text[*at ..] of *n characters. False at the end.
 */
struct id_words {
    const char *text, *end;
    bool is_json;
};

static bool next_word(struct id_words *w, size_t *n)
{
    while (w->text < w->end && is_space(*w->text))
        w->text++;
    const char *at = w->text;
    while (at < w->end && !is_space(*at) && !(w->is_json && (*at == ',' || *at == ']')))
        at++;
    *n = (size_t)(at - w->text);
    return w->text < w->end;
}

/* After an id of a JSON list: a comma, or the bracket that ends it (then *done). */
static bool json_divider(struct id_words *w, const char *name, bool *done, struct strata_error *e)
{
    size_t n;
    if (!next_word(w, &n))
        return fail(e, STRATA_FORMAT, "%s: the list has no ] at its end", name);
    char c = *w->text;
    if (c != ',' && c != ']')
        return fail(e, STRATA_FORMAT, "%s: %.*s stands where a comma or ] belongs", name,
                    (int)(n < 40 ? n : 40), w->text);
    w->text++;
    *done = c == ']';
    if (*done && next_word(w, &n))
        return fail(e, STRATA_FORMAT, "%s: there is more behind the ] of the list", name);
    return true;
}

static bool parse_ids(struct id_words *w, const char *name, int vocabulary, int32_t *ids, size_t *n,
                      struct strata_error *e)
{
    size_t bytes;
    bool done = false;
    while (!done && next_word(w, &bytes)) {
        if (w->is_json && *n == 0 && bytes == 0 && *w->text == ']')
            return json_divider(w, name, &done, e);
        if (!parse_id(w->text, bytes, name, vocabulary, &ids[*n], e))
            return false;
        w->text += bytes;
        ++*n;
        if (w->is_json && !json_divider(w, name, &done, e))
            return false;
    }
    return !w->is_json || done || fail(e, STRATA_FORMAT, "%s: the list has no ] at its end", name);
}

bool input_ids(const char *text, size_t bytes, const char *name, int vocabulary, int32_t **ids,
               size_t *n, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    struct id_words w = {text, text + bytes, false};
    size_t first;
    if (next_word(&w, &first) && *w.text == '[') {
        w.is_json = true;
        w.text++;
    }
    *n = 0;
    *ids = mem_alloc_array(bytes / 2 + 1, sizeof **ids, name, &low); /* an id and what divides it */
    if (!take_error(e, &low))
        return false;
    if (parse_ids(&w, name, vocabulary, *ids, n, e))
        return true;
    mem_free(*ids);
    *ids = NULL;
    return false;
}
