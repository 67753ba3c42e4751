/* SPDX-License-Identifier: Apache-2.0 */
/* Saved sessions, STRSES01 (docs/formats.md says it byte by byte): the header with the two
 * fingerprints and all ids, one section for each item of the model's state, and optional blocks of
 * bytes that the session adds (last logits, sampler, messages).
 *
 * Nothing of a file is believed before its checksum fits, and no count before it is compared with
 * what the file can hold. Every message names the file. */
#ifndef STRATA_SESSION_STATE_FILE_H
#define STRATA_SESSION_STATE_FILE_H

#include "base/err.h"
#include "model/state.h"

#define STATE_FINGERPRINT 16

struct state_header {
    uint8_t model[STATE_FINGERPRINT]; /* which file */
    uint8_t bits[STATE_FINGERPRINT];  /* what decides the bits of an activation */
    uint64_t position;                /* tokens */
    uint64_t ctx;                     /* tokens that the session had room for */
};

/* An optional section: bytes under a name. */
struct state_block {
    const char *name; /* shorter than 32 bytes */
    const void *data;
    size_t bytes;
};

/* Writes the state atomically, mode 0600. Same state and blocks: same bytes. */
bool state_file_write(const char *path, const struct state_header *h, const struct model_state *s,
                      const struct state_block *blocks, int n_blocks, struct err *e);

struct state_section;

struct state_file {
    int fd;
    const char *path; /* as given to open, not copied */
    struct state_header head;
    uint32_t n_sections;
    struct state_section *sections;
};

/* Opens a file and checks its header: sizes, layout, checksum. Closed with state_file_close, which
 * is also fine after a failure. */
bool state_file_open(struct state_file *f, const char *path, struct err *e);
void state_file_close(struct state_file *f);

/* The ids, `position` of them. */
bool state_file_ids(const struct state_file *f, int32_t *out, struct err *e);
/* Fills the items of `s`, whose position has been set to the file's; they must be exactly those of
 * the file. After a failure the state is spoiled. Does not rebuild what is derived. */
bool state_file_items(const struct state_file *f, struct model_state *s, struct err *e);
/* A block: *data gets its bytes and a NUL behind them (mem_free), or NULL when there is none.
 * Above `most` bytes it is refused. */
bool state_file_block(const struct state_file *f, const char *name, size_t most, void **data,
                      size_t *bytes, struct err *e);

#endif
