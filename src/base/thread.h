/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library. They take no signals: a Ctrl-C belongs to the thread of the program that
 * waits for it, and would be lost on one that does not. */
#ifndef STRATA_BASE_THREAD_H
#define STRATA_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* As pthread_create, with all signals blocked in the new thread. Returns its error number. */
static inline int thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                               void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    int error = pthread_create(thread, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
