/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: whatever the bytes are, reading refuses or gives turns that lie inside the file, with
 * experts that exist. The checksum is made right first, since no mutation would pass it. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "fuzz.h"
#include "stream/replay.h"
#include "stream/trace.h"

static void look_at(const struct trace *t)
{
    const struct trace_head *h = trace_head(t);
    char room[32];
    trace_value(t, "policy", room, sizeof room);
    for (int i = 0; i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        if (r.kind != TRACE_WINDOW && r.kind != TRACE_BAND)
            continue;
        fuzz_require(r.rows > 0);
        trace_token(t, &r, r.rows - 1);
        for (int l = 0; l < h->layers; l++) {
            int32_t ids[256], guess[256], far[256];
            float weights[256];
            uint32_t counts[TRACE_COUNTS];
            if (!h->layer[l].record_bytes)
                continue;
            trace_row(t, &r, l, r.rows - 1, ids, weights, guess);
            for (int k = 0; k < h->used; k++)
                fuzz_require(ids[k] >= 0 && ids[k] < h->experts);
            for (int k = 0; k < h->ranks; k++)
                fuzz_require(guess[k] < h->experts);
            bool has_far = trace_far_guess(t, &r, l, r.rows - 1, far);
            fuzz_require(has_far == (h->guess_layers == 2));
            for (int k = 0; has_far && k < h->ranks; k++)
                fuzz_require(far[k] >= -1 && far[k] < h->experts);
            fuzz_require(trace_counts(t, &r, l, counts) == h->has_counts);
        }
    }
}

/* What the text says of the run is as foreign as the rest. */
static void replay(const struct trace *t)
{
    const struct trace_head *h = trace_head(t);
    struct replay_config c;
    struct replay_drive drive = {0};
    struct replay_result out;
    if (h->layers * h->experts > 4096 || !replay_own_config(t, &c))
        return;
    struct err e;
    err_clear(&e);
    fuzz_require(replay_run(t, &c, &drive, &out, &e) == (e.code == ERR_NONE));
    if (e.code == ERR_NONE)
        fuzz_require(out.useful + out.late <= out.misses);
    c.ahead = (struct stream_ahead){.ranks = 3, .distance = 2};
    err_clear(&e);
    fuzz_require(replay_run(t, &c, &drive, &out, &e) == (e.code == ERR_NONE));
    fuzz_require(e.code != ERR_NONE || h->guess_layers == 2);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    if (size >= 20)
        bytes_put_u64(copy + size - 8, XXH3_64bits(copy, size - 8));
    int fd = memfd_create("trace", 0);
    fuzz_require(fd >= 0 && write(fd, copy, size) == (ssize_t)size);
    free(copy);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct err e;
    err_clear(&e);
    struct trace *t = trace_open(path, NULL, &e);
    fuzz_require((t != NULL) == (e.code == ERR_NONE));
    if (t) {
        look_at(t);
        replay(t);
    }
    trace_free(t);
    close(fd);
    return 0;
}
