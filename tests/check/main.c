/* SPDX-License-Identifier: Apache-2.0 */
/* strata-check: proves kernels (no arguments), times them (--bench), runs cases (cases DIR...). */
#include <stdio.h>
#include <string.h>

#include "cases_main.h"
#include "check.h"

static const char usage[] =
    "usage: strata-check                    proves every kernel at every instruction set\n"
    "       strata-check --bench [KERNEL]   times them\n"
    "       strata-check cases [--vocab DIR] [--models DIR] [-v] DIR...\n"
    "                                       runs the cases found in directories\n";

int main(int argc, char **argv)
{
    struct check c = {.state = 1};
    if (argc > 1 && !strcmp(argv[1], "cases"))
        return cases_main(argc - 1, argv + 1);
    if (argc == 1) {
        check_run_all(&c);
    } else if (argc <= 3 && !strcmp(argv[1], "--bench")) {
        c.only = argc == 3 ? argv[2] : NULL;
        check_bench_all(&c);
    } else {
        bool asked = argc == 2 && !strcmp(argv[1], "--help");
        fputs(usage, asked ? stdout : stderr);
        return asked ? 0 : 2;
    }
    printf("%ld passed, %ld failed, %ld skipped\n", c.passed, c.failed, c.skipped);
    return c.failed ? 1 : 0;
}
