/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files, versions 2 and 3, single or as a split set. Source: gguf-and-quants.md part 1.
 *
 * Opening reads and checks the metadata and the tensor table of every part, by all rules of section
 * 1.8, and nothing else: no tensor data, and of the values only what the checks need. A file that
 * breaks a rule is refused with one line that starts with the path of the part at fault. Memory is
 * in proportion to the number of keys and tensors; strings and arrays stay on disk until somebody
 * asks for them. Nothing is mapped, so a file that shrinks later is an error and no signal.
 *
 * After gguf_open an object never changes: all functions with a const file may be called from
 * several threads at once. Names (keys, tensors) hold no control codes and end in a NUL, but may
 * hold any other byte: escape them (err_escape) before showing them. */
#ifndef STRATA_GGUF_GGUF_H
#define STRATA_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Types of values, section 1.3. */
enum gguf_type {
    GGUF_U8 = 0, GGUF_I8 = 1, GGUF_U16 = 2, GGUF_I16 = 3, GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6,
    GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_U64 = 10, GGUF_I64 = 11, GGUF_F64 = 12,
};
#define GGUF_TYPES 13

/* Name of a value type ("u32", "string"); "unknown" above 12. */
const char *gguf_type_name(uint32_t type);

struct gguf_file; /* a whole set */

struct gguf_tensor {
    const char *name;
    uint32_t n_dims; /* as stored, trailing ones included */
    uint64_t ne[4];  /* row length, rows, matrices, rest; missing ones are 1 */
    uint32_t type;   /* enum tensor_type, always a known one */
    int part;        /* file of the set that holds the data */
    uint64_t offset; /* of the data, from the start of that file */
    uint64_t bytes;  /* of the data; lies inside the file and overlaps no other tensor */
};

struct gguf_key {
    const char *name;
    size_t name_bytes;
    uint32_t type;         /* enum gguf_type */
    uint32_t element_type; /* arrays */
    uint64_t count;        /* arrays: elements; others 1 */
    uint64_t offset;       /* in the first part: first byte of number, text or first element */
    uint64_t bytes;        /* from there to the end of the value */
    uint64_t bits;         /* numbers and bools: the bytes as stored, zero-extended */
};

/* Opens the file at `path`, of a split set its first part; the others are found by their names
 * (section 1.5). NULL and an error when any rule is broken. Closed with gguf_close. */
struct gguf_file *gguf_open(const char *path, struct err *e);
void gguf_close(struct gguf_file *g);

/* Parts are counted from 0; those of a joined file (join.h) come last. Descriptors stay open (for buffered reads) until gguf_close. */
int gguf_parts(const struct gguf_file *g);
const char *gguf_part_path(const struct gguf_file *g, int part);
int gguf_part_fd(const struct gguf_file *g, int part);
uint64_t gguf_part_bytes(const struct gguf_file *g, int part); /* size of the file */
uint64_t gguf_part_header_bytes(const struct gguf_file *g, int part); /* 0 to end of tensor table */

/* Version and alignment of the first part. */
uint32_t gguf_version(const struct gguf_file *g);
uint64_t gguf_alignment(const struct gguf_file *g);
/* Sizes of all files together. */
uint64_t gguf_total_bytes(const struct gguf_file *g);

/* Tensors of all parts, in the order of parts and tables. find: NULL when there is none. */
size_t gguf_tensor_count(const struct gguf_file *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf_file *g, const char *name);

/* Keys of the first part, in file order. find: NULL when there is none. */
size_t gguf_key_count(const struct gguf_file *g);
const struct gguf_key *gguf_key_at(const struct gguf_file *g, size_t i);
const struct gguf_key *gguf_key_find(const struct gguf_file *g, const char *name);

/* ---- Values by key --------------------------------------------------------------------------
 * A key that is missing: an error when `required`; otherwise true, and what `out` points to stays
 * as the caller filled it, so that a default goes in first. A value of the wrong type or out of
 * range is an error that names file, key and value. Integers of every width are accepted where an
 * integer is wanted, all numbers where a float is, and 0 or 1 where a bool is (section 1.3). */
bool gguf_get_u64(const struct gguf_file *g, const char *key, bool required, uint64_t *out,
                  struct err *e);
bool gguf_get_i64(const struct gguf_file *g, const char *key, bool required, int64_t *out,
                  struct err *e);
bool gguf_get_f64(const struct gguf_file *g, const char *key, bool required, double *out,
                  struct err *e);
bool gguf_get_bool(const struct gguf_file *g, const char *key, bool required, bool *out,
                   struct err *e);

/* A string: *out gets its bytes (any bytes, NUL too) and a NUL behind them, freed with mem_free;
 * *bytes, unless NULL, the length without that NUL. Refused above GGUF_TEXT_MOST. */
#define GGUF_TEXT_MOST ((size_t)64 << 20)
bool gguf_get_text(const struct gguf_file *g, const char *key, bool required, char **out,
                   size_t *bytes, struct err *e);

/* Exactly n values: an array of n elements, or one number that stands for all. */
bool gguf_fill_i64(const struct gguf_file *g, const char *key, bool required, int64_t *out,
                   size_t n, struct err *e);
bool gguf_fill_u64(const struct gguf_file *g, const char *key, bool required, uint64_t *out,
                   size_t n, struct err *e);
bool gguf_fill_f32(const struct gguf_file *g, const char *key, bool required, float *out, size_t n,
                   struct err *e);

/* A whole array of numbers (integers and bools; for f32 every number): *out gets an array of
 * *count, freed with mem_free. Refused above `most` elements. */
bool gguf_get_i64_array(const struct gguf_file *g, const char *key, bool required, size_t most,
                        int64_t **out, size_t *count, struct err *e);
bool gguf_get_u64_array(const struct gguf_file *g, const char *key, bool required, size_t most,
                        uint64_t **out, size_t *count, struct err *e);
bool gguf_get_f32_array(const struct gguf_file *g, const char *key, bool required, size_t most,
                        float **out, size_t *count, struct err *e);

/* A whole array of strings in two blocks: string i is bytes[starts[i] .. starts[i + 1] - 1]. */
struct gguf_strings {
    size_t count;
    char *bytes;      /* one after the other, no NUL between */
    uint64_t *starts; /* count + 1 */
};
/* Refused when the strings together have more than `most_bytes`, or are more than `most` in number.
 * Freed with gguf_strings_free, also after a failure (then it is empty). */
bool gguf_get_strings(const struct gguf_file *g, const char *key, bool required, size_t most,
                      size_t most_bytes, struct gguf_strings *out, struct err *e);
void gguf_strings_free(struct gguf_strings *s);

/* Model fingerprint (formats.md section 1): xxh3-128 with seed 0, in canonical (big-endian) form,
 * over, part after part, the bytes from 0 to the end of the tensor table and the size of the file
 * as a little-endian u64; a joined file does not count. Reads the metadata once more. */
bool gguf_fingerprint(const struct gguf_file *g, uint8_t out[16], struct err *e);

#endif
