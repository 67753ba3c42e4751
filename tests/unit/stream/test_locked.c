/* SPDX-License-Identifier: Apache-2.0 */
/* What is said where the limit of locked memory is lower than the arena. */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../child.h"
#include "reference.h"
#include "base/log.h"

static unsigned long swap;
static int notes_of_limits;

int sysinfo(struct sysinfo *out) /* in place of the system's */
{
    *out = (struct sysinfo){.totalswap = swap};
    return 0;
}

static void count_notes(void *ctx, enum log_level level, const char *text)
{
    notes_of_limits += level == LOG_NOTE && strstr(text, "ulimit -l");
}

/* A note, once, and only where the arena may be swapped. The processes' rights to lock all the same
 * are given up in a child. */
static void a_low_limit_of_locked_memory_is_said_once(void **state)
{
    pid_t child = fork();
    if (!child) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
        if (setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0}) || syscall(SYS_capset, &head, none))
            _exit(77);
        struct memory_drive drive = {0};
        struct io *io = open_memory(&drive, 4);
        struct stream_config c = config_with(0.5, io_align(io));
        c.lock = true;
        log_set_sink(count_notes, NULL);
        for (int i = 0; i < 4; i++) {
            swap = i > 1;
            struct stream *s = stream_create(&c, io, &(struct err){0});
            stream_free(s);
            if (!s || notes_of_limits != (i > 1))
                _exit(1 + i);
        }
        _exit(0);
    }
    wait_for(child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_low_limit_of_locked_memory_is_said_once),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
