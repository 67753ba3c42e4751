/* SPDX-License-Identifier: Apache-2.0 */
/* Pages made from the table of options.h. */
#ifndef STRATA_CLI_HELP_H
#define STRATA_CLI_HELP_H

#include "base/json.h"
#include "cli/options.h"

/* `strata --help` (COMMANDS) or `strata COMMAND --help`: at most 80 columns. */
void help_page(enum command c, struct json_out *out);
/* What chat understands besides messages, for /help and the manual page. */
void help_chat(struct json_out *out);
/* docs/strata.1 */
void help_man(struct json_out *out);
/* A script that completes commands, options, choices and files in bash. */
void help_completion_bash(struct json_out *out);
/* `strata --version` */
void help_version(struct json_out *out);

#endif
