/* SPDX-License-Identifier: Apache-2.0 */
/* What a drive gives: random reads of the size of an expert's record, past the page cache where the
 * file system allows it, at several depths and in several pieces; and small reads, as rows of a
 * table need them. The figures are for the engine that runs would use. */
#ifndef STRATA_IO_PROBE_H
#define STRATA_IO_PROBE_H

#include <stdatomic.h>

#include "io/io.h"

#define PROBE_POINTS 16

struct probe_point {
    uint64_t bytes;        /* of a read: all its pieces together */
    int depth;             /* reads that are under way together */
    int parts;             /* pieces of a read, submitted at once */
    double gb_s;           /* 10^9 bytes a second */
    double p50_us, p99_us; /* from submission until the last piece is there */
    double cpu_us;         /* time of processors that a read took; 0: not known */
};

struct probe_options {
    const char *engine;                             /* as io_options.engine; NULL: the best */
    uint64_t record_bytes;                          /* 0: 1.5 MiB */
    int point_ms;                                   /* that each point is measured; 0: 300 */
    void (*progress)(void *ctx, int done, int all); /* NULL: nobody wants to know */
    void *ctx;
    const atomic_bool *cancel; /* NULL: never */
};

struct probe {
    char engine[16];
    bool is_direct;
    int points;
    struct probe_point point[PROBE_POINTS];
};

/* Measures reads of the file, which must hold at least one record. */
bool probe_file(const char *path, const struct probe_options *o, struct probe *out, struct err *e);
/* The same with a file of its own in `folder`, of 256 MiB, which is removed afterwards. */
bool probe_folder(const char *folder, const struct probe_options *o, struct probe *out,
                  struct err *e);

/* Best rate of records; latency of one record alone, and of one in the number of pieces that is
 * fastest (*parts). 0: not measured. */
double probe_gb_s(const struct probe *p);
double probe_latency_us(const struct probe *p, int *parts);

/* The drive that would have given these figures, for reads of any size. */
struct io_drive probe_drive(const struct probe *p);

#endif
