/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "cli/cli.h"

atomic_bool interrupted;

static bool is_patient;

static void on_interrupt(int number)
{
    if (atomic_exchange(&interrupted, true) && !is_patient) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void interrupt_listen(bool patient)
{
    is_patient = patient;
    /* Without SA_RESTART: whoever waits for input wakes up and looks at the flag. */
    struct sigaction a = {.sa_handler = on_interrupt};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}
