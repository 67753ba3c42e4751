/* SPDX-License-Identifier: Apache-2.0 */
/* Which request starts next, and on which drive: urgent before rows before guesses; of several
 * copies of the file, the drive with the fewest bytes in flight. */
#include <string.h>

#include "base/log.h"
#include "io/engine.h"

static const enum io_lane in_order[IO_LANES] = {IO_URGENT, IO_ROWS, IO_AHEAD};

static int guesses_in_flight(const struct io *io)
{
    int n = 0;
    for (int c = 0; c < io->copies; c++)
        n += io->in_flight[c][IO_AHEAD];
    return n;
}

/* Guesses of an answer cannot be taken back once they have started, and the more of them start the
 * less each is worth: several drives take no more of them than one would. */
static bool has_room(const struct io *io, int copy, enum io_lane lane)
{
    const struct io_options *o = &io->options;
    const int *in_flight = io->in_flight[copy];
    if (lane == IO_ROWS)
        return in_flight[IO_ROWS] < o->rows_depth;
    return in_flight[IO_URGENT] + in_flight[IO_AHEAD] < o->depth &&
           (lane == IO_URGENT || io->is_prompt || guesses_in_flight(io) < o->depth - o->ahead_kept);
}

/* Whether a drive has less to do than another; both idle: has done less. */
static bool is_freer(const struct io *io, int copy, int other)
{
    uint64_t a = io->bytes_in_flight[copy], b = io->bytes_in_flight[other];
    return a != b ? a < b : io->bytes_sent[copy] < io->bytes_sent[other];
}

/* The drive for a request of this lane that the copies `tried` have failed (then any other will
 * do); -1: none has room. */
static int choose_copy(const struct io *io, enum io_lane lane, unsigned tried)
{
    int best = -1;
    for (int c = 0; c < io->copies; c++)
        if ((tried || !io->has_failed[c]) && !(tried >> c & 1) && has_room(io, c, lane) &&
            (best < 0 || is_freer(io, c, best)))
            best = c;
    return best;
}

/* A guess never starts while an urgent read waits: a drive without room for that has none for it.
 */
static struct io_request *startable(const struct io *io, int *copy)
{
    for (int i = 0; i < IO_LANES; i++) {
        struct io_request *r = io->lane[in_order[i]].first;
        if (r && (*copy = choose_copy(io, r->lane, r->tried)) >= 0)
            return r;
    }
    return NULL;
}

bool io_may_start(const struct io *io)
{
    int copy;
    return startable(io, &copy) != NULL;
}

static void count_large(struct io *io, int change)
{
    int before = io->large_in_flight;
    io->large_in_flight += change;
    if (!before)
        io->busy_since = io_now_us(io);
    else if (!io->large_in_flight)
        io->busy_us += (uint64_t)(io_now_us(io) - io->busy_since);
}

static bool is_wanted(const struct io *io)
{
    return io->is_wanting || io->large_in_flight || io->lane[IO_URGENT].first ||
           io->lane[IO_AHEAD].first;
}

void io_note_wanted(struct io *io)
{
    bool now = is_wanted(io);
    if (now == io->was_wanted)
        return;
    if (now)
        io->wanted_since = io_now_us(io);
    else
        io->wanted_us += (uint64_t)(io_now_us(io) - io->wanted_since);
    io->was_wanted = now;
}

struct io_request *io_take(struct io *io)
{
    int copy;
    struct io_request *r = startable(io, &copy);
    if (!r)
        return NULL;
    io_list_remove(&io->lane[r->lane], r);
    r->is_waiting = false;
    r->copy = copy;
    r->done = 0;
    r->bytes = 0;
    r->error = 0;
    r->is_direct = io_file_of(io, r)->direct_fd >= 0;
    io->in_flight[copy][r->lane]++;
    io->bytes_in_flight[copy] += r->length;
    io->bytes_sent[copy] += r->length;
    if (r->lane != IO_ROWS)
        count_large(io, 1);
    return r;
}

/* A failed read of one copy is tried again on the others; a replica that fails is used no more. */
static bool try_again(struct io *io, struct io_request *r)
{
    r->tried |= 1u << r->copy;
    if (r->copy && !io->has_failed[r->copy]) {
        io->has_failed[r->copy] = true;
        log_note("%s: a read failed (%s); this copy is not used any more", io_file_of(io, r)->path,
                 r->error == IO_SHORT ? "the file is shorter than it was" : strerror(r->error));
    }
    if (r->tried == (1u << io->copies) - 1)
        return false;
    io_list_append(&io->lane[r->lane], r);
    r->is_waiting = true;
    return true;
}

void io_finish(struct io *io, struct io_request *r)
{
    io->in_flight[r->copy][r->lane]--;
    io->bytes_in_flight[r->copy] -= r->length;
    if (r->lane != IO_ROWS)
        count_large(io, -1);
    if (!r->error || io->copies == 1 || !io_request_want(io, r) || !try_again(io, r))
        io_publish(r);
    io_note_wanted(io);
}

void io_set_prompt(struct io *io, bool is_prompt)
{
    pthread_mutex_lock(&io->lock);
    io->is_prompt = is_prompt;
    io->engine->kick(io);
    pthread_mutex_unlock(&io->lock);
}

uint64_t io_busy_us(struct io *io)
{
    pthread_mutex_lock(&io->lock);
    uint64_t us = io->busy_us;
    if (io->large_in_flight)
        us += (uint64_t)(io_now_us(io) - io->busy_since);
    pthread_mutex_unlock(&io->lock);
    return us;
}

void io_set_wanting(struct io *io, bool is_wanting)
{
    pthread_mutex_lock(&io->lock);
    io->is_wanting = is_wanting;
    io_note_wanted(io);
    pthread_mutex_unlock(&io->lock);
}

uint64_t io_wanted_us(struct io *io)
{
    pthread_mutex_lock(&io->lock);
    uint64_t us = io->wanted_us;
    if (io->was_wanted)
        us += (uint64_t)(io_now_us(io) - io->wanted_since);
    pthread_mutex_unlock(&io->lock);
    return us;
}
