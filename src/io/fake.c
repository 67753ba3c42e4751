/* SPDX-License-Identifier: Apache-2.0 */
/* Completes every read at once and brings nothing: for the speed of the kernels alone, and for
 * replaying a history of turns without the model. */
#include "io/engine.h"

static bool start(struct io *io, const char *settings, struct err *e)
{
    (void)io;
    return !settings || err_set(e, ERR_USAGE, "--io: fake takes no settings, not \"%s\"", settings);
}

static void stop(struct io *io)
{
    (void)io;
}

static void kick(struct io *io)
{
    for (struct io_request *r; (r = io_take(io));) {
        r->bytes = io_request_want(io, r);
        r->error = r->bytes ? 0 : IO_SHORT;
        io_finish(io, r);
    }
}

const struct io_engine io_engine_fake = {
    .name = "fake", .start = start, .stop = stop, .kick = kick};
