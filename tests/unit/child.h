/* SPDX-License-Identifier: Apache-2.0 */
/* Children that try what the process itself could not take back, as a limit of the system. */
#ifndef STRATA_TESTS_CHILD_H
#define STRATA_TESTS_CHILD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

/* The child says with 77 that the system cannot do it. */
static inline void wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
