/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzing. A target is one file fuzz_NAME.c with the function below; it feeds the bytes to a parser
 * and calls fuzz_require for what must hold whatever they are. The same file is built twice:
 *  - with driver.c as a normal test that runs in seconds: every file of the corpus, then a fixed
 *    number of mutations that are the same in every run;
 *  - with clang's libFuzzer, by the script `run`, for as long as one likes.
 * To add a target: write the file and name it in the table of meson.build. */
#ifndef STRATA_FUZZ_H
#define STRATA_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs one input. Returns 0. Keeps nothing between calls that changes a result. */
int fuzz_target(const uint8_t *data, size_t size);

/* Ends the program with a crash, which the driver or libFuzzer reports with the input. */
#define fuzz_require(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
