/* SPDX-License-Identifier: Apache-2.0 */
/* What commands write: stdout, whole files, and .npy arrays. A file appears when it is whole. */
#ifndef STRATA_CLI_OUTPUT_H
#define STRATA_CLI_OUTPUT_H

#include "base/file.h"
#include "base/json.h"
#include "cli/options.h"
#include "strata.h"

/* Writes to stdout at once. A reader that went away ends the program quietly (SIGPIPE). */
bool output_write(const char *text, size_t bytes, struct strata_error *e);
/* The same for a text that was put together; frees it. */
bool output_json(struct json_out *text, struct strata_error *e);
bool output_is_terminal(void);
/* Whether stdout and stderr are one file, pipe or device. */
bool output_is_where_messages_are(void);
/* Text of a model. On a terminal, control characters other than tab and line break are shown as
 * symbols, so that a text cannot drive the terminal. */
bool output_text(const char *text, size_t bytes, struct strata_error *e);

/* Refuses a path that holds a model (a GGUF file), for what is written would take its place; `what`
 * names the path's option or command. */
bool output_spares_model(const char *what, const char *path, struct strata_error *e);
/* The same for all options that name what is written. */
bool output_spares_models(const struct options *o, struct strata_error *e);

/* file_write_begin with an error of the program's. */
bool output_begin(struct file_writer *w, const char *path, struct strata_error *e);
/* Tells before long work whether a file could be written at its end. NULL: nothing will be. */
bool output_can_begin(const char *path, struct strata_error *e);
/* A whole small file. */
bool output_file(const char *path, const char *text, size_t bytes, struct strata_error *e);

/* ---- .npy, version 1.0 ---------------------------------------------------------------------- */

#define NPY_DIMS 4
/* The header of an array; returns its bytes, a multiple of 64, at most NPY_HEADER_MOST. */
#define NPY_HEADER_MOST 256
size_t npy_header(char out[NPY_HEADER_MOST], enum strata_element type, const size_t *dims,
                  int n_dims);
size_t npy_element_bytes(enum strata_element type);

#endif
