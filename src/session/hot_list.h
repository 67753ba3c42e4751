/* SPDX-License-Identifier: Apache-2.0 */
/* The hot list of a saved session (docs/formats.md, section `hot`): which experts were in memory, the
 * last used first, so that a conversation that is gone on with need not wait for them one by one. It
 * decides what is read first, never a bit of any output. */
#ifndef STRATA_SESSION_HOT_LIST_H
#define STRATA_SESSION_HOT_LIST_H

#include "session/session.h"

#define HOT_LIST_ENTRY 8 /* bytes: u32 layer, u32 expert */

/* The section's content; *data: mem_free. NULL and 0 bytes when there is nothing to list. */
bool hot_list_bytes(const struct strata_model *m, uint8_t **data, size_t *bytes, struct err *e);
/* Reads bytes of a file `path` into out[bytes / HOT_LIST_ENTRY]; every entry must be one of `experts`
 * experts of one of `layers` layers, and none may be there twice. */
bool hot_list_parse(const char *path, const uint8_t *data, size_t bytes, int layers, int experts,
                    struct stream_name *out, struct err *e);

struct state_file;
/* Starts reading what the file's list names, if it has one. Between passes. */
bool hot_list_load(const struct strata_model *m, const struct state_file *f, struct err *e);

#endif
