/* SPDX-License-Identifier: Apache-2.0 */
/* A drive in virtual time, for forecasts and tests: nothing waits, and what happens is a function
 * of the calls alone. A read moves its bytes when the drive has moved those of all reads before it,
 * and is done when its own delay has passed besides. */
#include "io/engine.h"

#include "base/mem.h"

struct io_virtual {
    struct io_drive drive;
    int64_t now_ns, free_ns[IO_COPIES]; /* when a drive has moved all that it was asked for */
    struct io_list flying;              /* by due_ns */
};

static int64_t ns(double us)
{
    return (int64_t)(us * 1e3 + 0.5);
}

double io_drive_us(const struct io_drive *d, uint64_t bytes, double reads)
{
    double moving = d->bytes_us > 0 ? (double)bytes / d->bytes_us : 0;
    return reads * moving + d->delay_us + d->delay_byte_us * (double)bytes;
}

static void insert(struct io_list *l, struct io_request *r)
{
    struct io_request *before = l->last;
    while (before && before->due_ns > r->due_ns)
        before = before->before;
    r->before = before;
    r->after = before ? before->after : l->first;
    *(r->after ? &r->after->before : &l->last) = r;
    *(before ? &before->after : &l->first) = r;
}

static void kick(struct io *io)
{
    struct io_virtual *v = io->in_virtual;
    for (struct io_request *r; (r = io_take(io));) {
        int64_t *free_ns = &v->free_ns[r->copy];
        if (io->options.fake_bytes) {
            r->bytes = io_request_want(io, r);
            r->error = r->bytes ? 0 : IO_SHORT;
        } else {
            io_read_request(io, r);
        }
        if (*free_ns < v->now_ns)
            *free_ns = v->now_ns;
        int64_t all = ns(io_drive_us(&v->drive, r->bytes, 1));
        int64_t delay = ns(io_drive_us(&v->drive, r->bytes, 0));
        *free_ns += all - delay;
        r->due_ns = *free_ns + delay;
        insert(&v->flying, r);
    }
}

/* What a read takes of a processor: one half of whoever asks for it, the other at its end. */
static int64_t half_cpu_ns(const struct io_virtual *v, size_t bytes)
{
    return ns((v->drive.cpu_us + v->drive.cpu_byte_us * (double)bytes) / 2);
}

/* Time passes up to `until_ns`; what ends on the way makes room for what comes next. Somebody waits
 * for the first end, or works, and is kept from it by what the reads take of the processors. */
static void pass(struct io *io, int64_t until_ns, bool is_waiting)
{
    struct io_virtual *v = io->in_virtual;
    for (struct io_request *r; (r = v->flying.first) && r->due_ns <= until_ns;) {
        io_list_remove(&v->flying, r);
        if (v->now_ns < r->due_ns)
            v->now_ns = r->due_ns;
        if (!is_waiting)
            until_ns += half_cpu_ns(v, r->bytes);
        io_finish(io, r);
        kick(io);
        if (is_waiting)
            return;
    }
    if (v->now_ns < until_ns)
        v->now_ns = until_ns;
}

static void was_asked(struct io *io, size_t bytes)
{
    pass(io, io->in_virtual->now_ns + half_cpu_ns(io->in_virtual, bytes), false);
}

static bool wait_for_end(struct io *io, int ms)
{
    struct io_virtual *v = io->in_virtual;
    const struct io_request *first = v->flying.first;
    int64_t until = ms < 0 && first ? first->due_ns : v->now_ns + ms * INT64_C(1000000);
    bool is_in_time = first && first->due_ns <= until;
    pass(io, until, true);
    return is_in_time;
}

static int64_t now_us(const struct io *io)
{
    return io->in_virtual->now_ns / 1000;
}

void io_pass_ns(struct io *io, int64_t ns_passed)
{
    if (!io->in_virtual)
        return;
    pthread_mutex_lock(&io->lock);
    pass(io, io->in_virtual->now_ns + ns_passed, false);
    pthread_mutex_unlock(&io->lock);
}

static bool start(struct io *io, const char *settings, struct err *e)
{
    (void)settings;
    io->in_virtual = mem_alloc(sizeof *io->in_virtual, "drive in virtual time", e);
    if (io->in_virtual)
        *io->in_virtual = (struct io_virtual){.drive = *io->options.drive};
    return io->in_virtual;
}

static void stop(struct io *io)
{
    mem_free(io->in_virtual);
    io->in_virtual = NULL;
}

const struct io_engine io_engine_virtual = {.name = "virtual",
                                            .start = start,
                                            .stop = stop,
                                            .kick = kick,
                                            .asked = was_asked,
                                            .wait = wait_for_end,
                                            .now_us = now_us};
