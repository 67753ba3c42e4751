/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* ppoll */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
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

bool interrupt_wait_for_input(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    sigset_t without, before;
    sigemptyset(&without);
    sigaddset(&without, SIGINT);
    int ready = 0;
    while (!ready && !atomic_load(&interrupted)) {
        /* Held back from the look at the flag until ppoll lets it in: none falls in between. */
        pthread_sigmask(SIG_BLOCK, &without, &before);
        ready = atomic_load(&interrupted) ? 0 : ppoll(&p, 1, NULL, &before);
        if (ready < 0 && errno == EINTR)
            ready = 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return !atomic_load(&interrupted);
}
