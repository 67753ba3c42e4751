/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the GGUF container: files that must be refused, files that must load. */
#ifndef STRATA_CHECK_CASES_GGUF_H
#define STRATA_CHECK_CASES_GGUF_H

#include "cases.h"

/* Runs every line of a `cases.tsv` with the columns file, rule, must. Files lie beside it.
 * `refuse`: opening fails with one line that starts with the path of the file at fault and holds all
 * words of message_names. `load`: it opens, and the listing shows all facts of the column shows. */
void cases_gguf(const char *tsv_path, struct case_report *r);

#endif
