/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the system that leave fewer threads or less locked memory than are asked for: reads are
 * right all the same. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "base/log.h"
#include "io/engine.h"
#include "reading.h"

#define UNUSED_USER 64999 /* whose processes are those of a test alone */

/* Where only a few threads are allowed they read, and none is an error. */
static void a_few_threads_are_enough_to_read(void **state)
{
    pid_t child = fork();
    if (!child) {
        const char *paths[] = {path};
        struct err e = {0};
        struct rlimit few = {4, 4}, one = {1, 1};
        assert_int_equal(chmod(path, 0644), 0);
        if (setrlimit(RLIMIT_NPROC, &few) || (!geteuid() && setuid(UNUSED_USER)))
            _exit(77);
        if (access(path, R_OK)) /* its folder is not everybody's */
            _exit(77);
        struct io *io = io_create(paths, 1, &(struct io_options){.engine = "pread"}, &e);
        if (io) {
            check_places(io);
            io_close(io);
        }
        if (setrlimit(RLIMIT_NPROC, &one))
            _exit(77);
        struct io *none = io_create(paths, 1, &(struct io_options){.engine = "pread"}, &e);
        io_close(none);
        /* Without root other processes of the user count too. */
        _exit(geteuid() != UNUSED_USER ? 77 : !io || none || !strstr(e.text, "no I/O thread"));
    }
    wait_for(child);
}

/* KiB that the system has pinned for this process; -1: it does not say. */
static long pinned_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmPin:", 6))
            kib = strtol(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

/* Since Linux 5.19 memory can be registered piece by piece. */
static bool registers_one_by_one(void)
{
    struct utsname u;
    int major = 0, minor = 0;
    return !uname(&u) && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 19));
}

/* Whether this process may lock memory beyond the limit; `drop`: not any more. */
static bool is_exempt(bool drop)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &head, data))
        return false;
    bool was = data[0].effective >> CAP_IPC_LOCK & 1;
    if (drop) {
        data[0].effective &= ~(1u << CAP_IPC_LOCK);
        data[0].permitted &= ~(1u << CAP_IPC_LOCK);
        assert_int_equal(syscall(SYS_capset, &head, data), 0);
    }
    return was;
}

/* Remembers 16 MiB with a limit of 8, of which other programs of the user may hold a part: what is
 * pinned then, and that reads into all of it are right and nothing stays pinned, and that they were
 * reads to registered memory as far as that is pinned, and of registered files. 77: memory cannot be
 * registered here. */
static int pin_beside_a_limit(long *kib)
{
    struct rlimit limit = {8 << 20, 8 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit))
        return 77;
    struct io *io = open_io(NULL);
    struct io_queue *q = io_queue_create(io, 1, NULL);
    char *to = mem_map(16 << 20, "test", NULL);
    long before = pinned_kib();
    bool is_uring = !strcmp(io_engine_name(io), "uring");
    io_expect_memory(io, 16 << 20);
    io_remember_memory(io, to, 16 << 20);
    *kib = pinned_kib() - before;
    bool is_good = true;
    uint64_t into = 0, all = 0;
    for (size_t at = 0; at < 16 << 20; at += 256 << 10) {
        struct io_completion c;
        io_submit(q, IO_URGENT, 0, 4096, 32 << 10, to + at, 0);
        is_good = is_good && io_wait(q, &c, 1) == 1 && !c.error &&
                  (uint8_t)to[at] == byte_at(4096) &&
                  (uint8_t)to[at + (32 << 10) - 1] == byte_at(4095 + (32 << 10));
        into += *kib > 0 && at + (32 << 10) <= (size_t)*kib << 10;
        all++;
    }
    /* A read that came short counts twice. */
    if (is_uring && before >= 0 && registers_one_by_one())
        is_good = is_good && io->reads_to_registered_memory >= into &&
                  io->reads_of_registered_files >= all;
    io_forget_memory(io, to, 16 << 20);
    is_good = is_good && pinned_kib() <= before;
    io_queue_close(q);
    io_close(io);
    mem_unmap(to, 16 << 20);
    return !is_uring || before < 0 ? 77 : !is_good;
}

static void memory_is_registered_as_far_as_the_limit_allows(void **state)
{
    pid_t child = fork();
    if (!child) {
        long kib;
        is_exempt(true);
        int status = pin_beside_a_limit(&kib);
        _exit(status ? status : !registers_one_by_one() ? 77 : kib <= 0 || kib > 8192);
    }
    wait_for(child);
}

/* At most 8 MiB: in a namespace, where the system does not believe it. */
static void whoever_may_lock_memory_registers_all_of_it(void **state)
{
    pid_t child = fork();
    if (!child) {
        long kib;
        if (!is_exempt(false))
            _exit(77);
        int status = pin_beside_a_limit(&kib);
        bool is_good = kib == 16384 || (kib > 0 && kib <= 8192);
        _exit(status ? status : !registers_one_by_one() ? 77 : !is_good);
    }
    wait_for(child);
}

static int notes_of_uring, notes_of_direct;

static void count_notes(void *ctx, enum log_level level, const char *text)
{
    notes_of_uring += level == LOG_NOTE && strstr(text, "io_uring_disabled");
    notes_of_direct += level == LOG_NOTE && strstr(text, "no direct I/O");
}

/* Neither io_uring nor direct I/O: two engines of two files say each of it once. */
static void what_is_not_available_is_said_once(void **state)
{
    pid_t child = fork();
    if (!child) {
        struct sock_filter f[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {.len = sizeof f / sizeof *f, .filter = f};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
            _exit(77);
        const char *paths[] = {path, path};
        struct err e = {0};
        log_set_sink(count_notes, NULL);
        for (int i = 0; i < 2; i++) {
            struct io *io = io_create(paths, 2, &(struct io_options){.engine = "uring"}, &e);
            if (!io || io_is_direct(io, 1))
                _exit(1);
            check_places(io);
            io_close(io);
        }
        _exit(notes_of_uring != 1 || notes_of_direct != 1);
    }
    wait_for(child);
}

#define IO_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IO_TEST(a_few_threads_are_enough_to_read),
        IO_TEST(memory_is_registered_as_far_as_the_limit_allows),
        IO_TEST(what_is_not_available_is_said_once),
        IO_TEST(whoever_may_lock_memory_registers_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
