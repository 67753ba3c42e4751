/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STRATA_CHECK_CASES_MAIN_H
#define STRATA_CHECK_CASES_MAIN_H

/* `strata-check cases ...`: argv[0] is "cases". Prints its own lines, the last one the counts, and
 * returns the exit status. */
int cases_main(int argc, char **argv);

#endif
