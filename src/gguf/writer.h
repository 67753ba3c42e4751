/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files of version 3, for tools and tests: collect keys and tensors, then write them as
 * one file or as a split set. Data is not held: each tensor brings a function that produces it.
 *
 * Failures are kept: after the first one the adding functions do nothing, and writing reports it. */
#ifndef STRATA_GGUF_WRITER_H
#define STRATA_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"

struct gguf_writer;

/* Alignment 32, no keys, no tensors. NULL when there is no memory. */
struct gguf_writer *gguf_writer_new(struct err *e);
void gguf_writer_free(struct gguf_writer *w);

/* Power of two, 8 to 1048576; adds the key general.alignment. */
void gguf_writer_alignment(struct gguf_writer *w, uint32_t alignment);

/* Keys, in the order of the calls. A key given twice fails. */
void gguf_writer_u16(struct gguf_writer *w, const char *key, uint16_t v);
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float v);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_writer_text(struct gguf_writer *w, const char *key, const char *text, size_t bytes);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct gguf_strings *s);
/* Any number type: `bits` holds its little-endian bytes. */
void gguf_writer_number(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t bits);
/* An array of numbers: `count` elements as they stand in the file (little-endian, no padding). */
void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type element_type,
                       uint64_t count, const void *elements);
/* A key of another file, its value byte by byte. */
void gguf_writer_copy_key(struct gguf_writer *w, const struct gguf_file *from,
                          const struct gguf_key *key);

/* Produces n bytes of a tensor's data from `offset` on; called in order, once for each piece. */
typedef bool gguf_writer_data(void *ctx, uint64_t offset, void *to, size_t n, struct err *e);

/* A tensor. With `data` NULL, ctx is the data itself and must live until it was written. */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t n_dims,
                        const uint64_t *ne, uint32_t type, gguf_writer_data *data, void *ctx);

/* Writes all to one file (atomically: the old file or the new one). May be called again. */
bool gguf_writer_write(struct gguf_writer *w, const char *path, struct err *e);

/* Writes STEM-00001-of-0000N.gguf and so on, tensors divided by number in their order; with
 * `first_empty` the first part holds the keys only. parts >= 2. */
bool gguf_writer_write_split(struct gguf_writer *w, const char *stem, uint32_t parts,
                             bool first_empty, struct err *e);

/* Size of the file that gguf_writer_write would write; 0 after a failure. */
uint64_t gguf_writer_bytes(const struct gguf_writer *w);

#endif
