/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of sessions share: tiny models, their ids, logits of every row. */
#ifndef STRATA_TESTS_SESSION_FIXTURE_H
#define STRATA_TESTS_SESSION_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "strata.h"

#define MODEL(name) DATA "/fixtures/models/" name ".gguf"

enum { MOST_IDS = 256 };

/* A loaded model and a session. */
struct fixture {
    struct strata_model *model;
    struct strata_session *session;
    int vocab;
};

/* Opens, loads and creates; fails the test when that fails. */
struct fixture fixture_open(const char *path, const struct strata_options *o);
void fixture_close(struct fixture *f);

/* n ids that look like nothing in particular, the same in every run. */
void fixture_ids(int32_t *ids, int n, int vocab);

/* Fails the test with the message when a call has failed. */
void fixture_ok(bool ok, const struct strata_error *e);

/* Logits of every row: [n][vocab], freed with free. `window` 0: as a prompt, else in steps. */
float *fixture_logits(struct fixture *f, const int32_t *ids, int n, int window);

/* Bytes of a file (free). */
char *fixture_read(const char *path, size_t *bytes);
/* A saved session as it would be without its hot list, the one part that depends on how it was run;
 * a file that can be loaded (free). */
char *fixture_read_state(const char *path, size_t *bytes);
void fixture_write(const char *path, const void *data, size_t bytes);

#endif
