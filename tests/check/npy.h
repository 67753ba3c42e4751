/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the arrays of the fixtures: .npy version 1.0 and .npz with stored members. */
#ifndef STRATA_TESTS_NPY_H
#define STRATA_TESTS_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum npy_type { NPY_F32, NPY_I32, NPY_BOOL };

struct npy {
    enum npy_type type;
    int n_dims;
    size_t dims[4];
    size_t count;     /* all values */
    const void *data; /* into the file's bytes */
};

struct npy_file {
    char *bytes;
    size_t n;
    struct npy_member {
        char name[64]; /* without .npy; "" in a .npy file */
        struct npy array;
    } *members;
    size_t count;
};

bool npy_open(struct npy_file *f, const char *path, struct err *e);
void npy_close(struct npy_file *f);

#endif
