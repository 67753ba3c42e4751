/* SPDX-License-Identifier: Apache-2.0 */
/* --profile: where the time of prompts and answers went. */
#ifndef STRATA_CLI_PROFILE_H
#define STRATA_CLI_PROFILE_H

#include "cli/cli.h"

struct profile {
    bool is_asked, has[2]; /* 0: of prompts, 1: of answers */
    struct strata_profile part[2];
};

/* Takes it from the model if --profile was given. */
void profile_take(const struct strata_model *m, const struct options *o, struct profile *p);
/* A table for each part that there is, in lines; nothing without --profile. memory_gb_s: what as many
 * threads read from memory, 0: not known. */
void profile_table(const struct profile *p, double memory_gb_s, struct json_out *out);
/* `, "profile": {..}` likewise. */
void profile_keys(const struct profile *p, double memory_gb_s, struct json_out *out);

#endif
