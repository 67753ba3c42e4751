/* SPDX-License-Identifier: Apache-2.0 */
/* A slower or erratic drive, for tests and forecasts: reads like `pread`, then holds each
 * completion back. Each copy of the files lies on a drive of its own. Settings, separated by
 * commas:
 *     rate=SIZE      bytes a second of a whole drive; K, M, G, T for powers of 1024
 *     delay=A-Bms    besides, A to B milliseconds for each read, drawn at random
 *     seed=N         of the drawing */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/engine.h"
#include "io/size.h"

struct io_drives {
    uint64_t rate; /* 0: as fast as it is */
    unsigned least_ms, most_ms;
    pthread_cond_t let_go; /* some reads are held back no longer */
    /* Guarded by io->lock: */
    uint64_t random;
    int64_t free_us[IO_COPIES]; /* when a drive has moved all that it was asked for */
};

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* A read that nobody waits for any more need not last: at a low rate that can be hours. */
static void hold(struct io *io, const struct io_request *r)
{
    struct io_drives *d = io->drives;
    int64_t now = clock_us(), *free_us = &d->free_us[r->copy];
    pthread_mutex_lock(&io->lock);
    if (*free_us < now)
        *free_us = now;
    if (d->rate)
        *free_us += (int64_t)((double)r->bytes * 1e6 / (double)d->rate);
    uint64_t span_us = (uint64_t)(d->most_ms - d->least_ms) * 1000 + 1;
    int64_t due = *free_us + d->least_ms * INT64_C(1000) + (int64_t)(draw(&d->random) % span_us);
    struct timespec until = {due / 1000000, due % 1000000 * 1000};
    for (int error = 0; !error && due > now && !io_is_given_up(r);)
        error = pthread_cond_timedwait(&d->let_go, &io->lock, &until);
    pthread_mutex_unlock(&io->lock);
}

static void let_go(struct io *io)
{
    pthread_cond_broadcast(&io->drives->let_go);
}

static bool read_setting(struct io_drives *d, const char *text, size_t n)
{
    char setting[64];
    int used = 0;
    unsigned long long seed;
    if (n >= sizeof setting)
        return false;
    memcpy(setting, text, n);
    setting[n] = 0;
    if (!strncmp(setting, "rate=", 5))
        return io_parse_size(setting + 5, n - 5, &d->rate) && d->rate;
    if (setting[strcspn(setting, " \t\n\v\f\r+")] || strstr(setting, "=-") || strstr(setting, "--"))
        return false; /* sscanf would take signs and spaces */
    if (sscanf(setting, "delay=%5u-%5ums%n", &d->least_ms, &d->most_ms, &used) == 2)
        return used == (int)n && d->least_ms <= d->most_ms;
    if (sscanf(setting, "seed=%19llu%n", &seed, &used) == 1) {
        d->random = seed;
        return used == (int)n;
    }
    return false;
}

static bool start(struct io *io, const char *settings, struct err *e)
{
    struct io_drives *d = io->drives = mem_alloc(sizeof *d, "simulated drive", e);
    if (!d)
        return false;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* that of clock_us */
    pthread_cond_init(&d->let_go, &clock);
    pthread_condattr_destroy(&clock);
    while (settings && *settings) {
        size_t n = strcspn(settings, ",");
        if (!read_setting(d, settings, n))
            return err_set(e, ERR_USAGE,
                           "--io: sim knows rate=SIZE, delay=A-Bms and seed=N, not \"%.*s\"",
                           (int)n, settings);
        settings += n + (settings[n] == ',');
    }
    return io_threads_start(io, hold, e);
}

static void stop(struct io *io)
{
    io_threads_stop(io);
    if (io->drives)
        pthread_cond_destroy(&io->drives->let_go);
    mem_free(io->drives);
    io->drives = NULL;
}

void io_sim_slow_down(const struct io *io, struct io_drive *d)
{
    const struct io_drives *sim = io->drives;
    double bytes_us = (double)sim->rate * 1e-6;
    if (bytes_us > 0 && (d->bytes_us <= 0 || d->bytes_us > bytes_us))
        d->bytes_us = bytes_us;
    d->delay_us += ((double)sim->least_ms + sim->most_ms) / 2 * 1e3;
}

const struct io_engine io_engine_sim = {
    .name = "sim", .start = start, .stop = stop, .kick = io_threads_kick, .let_go = let_go};
