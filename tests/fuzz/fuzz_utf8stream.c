/* SPDX-License-Identifier: Apache-2.0 */
/* Text streams: bytes and stop strings of any kind, cut anywhere, give the same text. The input: a
 * byte that says how the rest is cut, stop strings up to an empty line, then the answer. */
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "text/utf8stream.h"

#define MOST_STOPS 4

static size_t read_stops(const char **text, const char *end, struct text_view *stops)
{
    size_t n = 0;
    while (n < MOST_STOPS && *text < end) {
        const char *line = *text, *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            break;
        *text = stop + 1;
        if (stop == line)
            break;
        stops[n++] = (struct text_view){line, (size_t)(stop - line)};
    }
    return n;
}

/* Runs the answer in pieces of `step` bytes; returns what was sent. */
static struct json_out run(const struct text_view *stops, size_t n, const char *text, size_t bytes,
                           size_t step, int *which)
{
    struct stop_stream *s = stop_create(stops, n, NULL);
    struct utf8_stream code_points = {0};
    struct json_out sent = {0};
    bool stopped = false;
    fuzz_require(s);
    json_put(&sent, "", 0);
    for (size_t at = 0; at < bytes; at += step) {
        struct json_out whole = {0};
        utf8_stream_feed(&code_points, text + at, step < bytes - at ? step : bytes - at, &whole);
        fuzz_require(code_points.n_held <= 3);
        bool now = stop_feed(s, whole.text, whole.bytes, &sent);
        fuzz_require(now || !stopped);
        stopped = now;
        json_out_free(&whole);
    }
    stop_finish(s, &sent);
    *which = stop_which(s);
    fuzz_require(stopped == (*which >= 0) && *which < (int)n);
    stop_free(s);
    return sent;
}

int fuzz_target(const uint8_t *data, size_t size)
{
    struct text_view stops[MOST_STOPS];
    int by_whole, by_cut;
    if (size < 1)
        return 0;
    size_t before = mem_in_use();
    const char *text = (const char *)data + 1, *end = (const char *)data + size;
    size_t n = read_stops(&text, end, stops), bytes = (size_t)(end - text);
    struct json_out whole = run(stops, n, text, bytes, bytes + 1, &by_whole);
    struct json_out cut = run(stops, n, text, bytes, 1 + data[0] % 8, &by_cut);
    fuzz_require(whole.bytes == cut.bytes && !memcmp(whole.text, cut.text, cut.bytes));
    fuzz_require(by_whole == by_cut);
    struct text_view sent = {whole.text, whole.bytes};
    char *repaired = NULL;
    size_t repaired_bytes;
    fuzz_require(unicode_repair(sent.text, sent.bytes, &repaired, &repaired_bytes, NULL));
    /* Whole characters only. A stop string that is no text can still cut one. */
    bool stops_are_text = true;
    for (size_t i = 0; i < n; i++) {
        char *other = NULL;
        fuzz_require(unicode_repair(stops[i].text, stops[i].bytes, &other, &repaired_bytes, NULL));
        stops_are_text = stops_are_text && !other;
        mem_free(other);
    }
    fuzz_require(!repaired || !stops_are_text);
    mem_free(repaired);
    json_out_free(&whole);
    json_out_free(&cut);
    fuzz_require(mem_in_use() == before);
    return 0;
}
