/* SPDX-License-Identifier: Apache-2.0 */
/* Reads arrive whole and in place through every engine, faults are errors that name file and
 * offset, and the engine works on afterwards. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/size.h"
#include "reading.h"

static void reads_arrive_whole_also_at_the_unaligned_end(void **state)
{
    const struct io_options options[] = {{0},
                                         {.buffered = true},
                                         {.depth = 1, .rows_depth = 1},
                                         {.engine = "pread"},
                                         {.engine = "pread", .buffered = true},
                                         {.engine = "sim:rate=1G,delay=0-1ms"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct io *io = open_io(&options[i]);
        assert_false(options[i].buffered && io_is_direct(io, 0));
        check_places(io);
        io_close(io);
    }
}

static void a_file_system_in_memory_works_with_and_without_direct_io(void **state)
{
    if (access("/dev/shm", W_OK))
        skip();
    unlink(path);
    write_file("/dev/shm");
    struct io *io = open_io(NULL);
    check_places(io);
    io_close(io);
}

/* ---- faults ---- */

struct fault {
    _Atomic int calls;
    size_t most;      /* bytes a call gives; 0: all */
    int every, error; /* each every-th call fails so */
};

static ssize_t faulty_pread(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    struct fault *f = ctx;
    int call = atomic_fetch_add(&f->calls, 1) + 1;
    if (f->every && call % f->every == 0) {
        errno = f->error;
        return -1;
    }
    if (!f->most || n <= f->most)
        return pread(fd, to, n, offset);
    /* A direct read of the system is never this short: read into a block of our own. */
    void *block = mem_map(n, "test", NULL);
    ssize_t got = pread(fd, block, n, offset);
    if (got > (ssize_t)f->most)
        got = (ssize_t)f->most;
    if (got > 0)
        memcpy(to, block, (size_t)got);
    mem_unmap(block, n);
    return got;
}

static void short_reads_and_interrupted_calls_are_continued(void **state)
{
    const size_t most[] = {0, 1000, 512, 4096};
    for (size_t i = 0; i < 4; i++)
        for (int buffered = 0; buffered < 2; buffered++) {
            struct fault f = {.most = most[i], .every = 2, .error = i % 2 ? EINTR : EAGAIN};
            struct io *io = open_io(
                &(struct io_options){.pread = faulty_pread, .pread_ctx = &f, .buffered = buffered});
            check_places(io);
            io_close(io);
        }
}

static void a_failed_read_names_file_and_offset_and_the_next_works(void **state)
{
    struct fault f = {.every = 3, .error = EIO};
    struct io *io = open_io(&(struct io_options){.pread = faulty_pread, .pread_ctx = &f});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 1, &e);
    int failed = 0;
    for (int i = 0; i < 9; i++) {
        struct io_completion c = read_one(io, q, 8192, 4096);
        if (!c.error)
            continue;
        failed++;
        assert_int_equal(c.error, EIO);
        char want[128];
        snprintf(want, sizeof want, "%s: reading at 8192: %s", path, strerror(EIO));
        err_clear(&e);
        assert_false(io_explain(io, &c, &e));
        assert_string_equal(e.text, want);
    }
    assert_int_equal(failed, 3);
    io_queue_close(q);
    io_close(io);
}

static void a_file_truncated_while_open_is_an_error_with_the_place(void **state)
{
    for (int buffered = 0; buffered < 4; buffered++) {
        assert_int_equal(truncate(path, FILE_BYTES), 0);
        struct io *io = open_io(&(struct io_options){.buffered = buffered & 1,
                                                     .engine = buffered & 2 ? "pread" : "uring"});
        struct err e = {0};
        struct io_queue *q = io_queue_create(io, 1, &e);
        assert_int_equal(truncate(path, 20000), 0);
        struct io_completion c = read_one(io, q, 16384, 8192);
        assert_int_equal(c.error, IO_SHORT);
        assert_int_equal(c.bytes, 20000 - 16384);
        io_explain(io, &c, &e);
        assert_non_null(strstr(e.text, path));
        assert_non_null(strstr(e.text, "reading at 16384: the file ends after 3616 bytes"));
        assert_int_equal(read_one(io, q, 40960, 4096).error, IO_SHORT);
        assert_int_equal(read_one(io, q, 0, 4096).error, 0);
        io_queue_close(q);
        io_close(io);
    }
}

static void what_cannot_be_opened_is_refused_by_name(void **state)
{
    struct err e = {0};
    const char *paths[] = {path, "no-such-folder/x"};
    assert_null(io_create(paths, 2, NULL, &e));
    assert_non_null(strstr(e.text, "no-such-folder/x: no such file"));
    const char *engines[] = {"fast",       "pread:x", "sim:rate=", "sim:delay=3-1ms",
                             "sim:seed=x", "sim:a",   "fake:x",    "uring:x",
                             "sim:delay=-2--1ms", "sim:delay=0--1ms", "sim:delay= 1-2ms",
                             "sim:seed=-1", "sim:seed=+1"};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        err_clear(&e);
        assert_null(io_create(paths, 1, &(struct io_options){.engine = engines[i]}, &e));
        assert_int_equal(e.code, ERR_USAGE);
    }
}

/* ---- lanes and cancelling ---- */

/* Holds every read until it is let go, and notes in which order they started. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int open, started;
    off_t order[16]; /* blocks */
};

static ssize_t gated_pread(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    struct gate *g = ctx;
    pthread_mutex_lock(&g->lock);
    int mine = g->started++;
    g->order[mine] = offset / 4096;
    pthread_cond_broadcast(&g->moved);
    while (mine >= g->open)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return pread(fd, to, n, offset);
}

static void let_go(struct gate *g, int open)
{
    pthread_mutex_lock(&g->lock);
    g->open = open;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static void wait_started(struct gate *g, int started)
{
    pthread_mutex_lock(&g->lock);
    while (g->started < started)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void urgent_reads_pass_guesses_and_a_guess_leaves_depth_to_them(void **state)
{
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    struct io *io = open_io(&(struct io_options){
        .depth = 2, .ahead_kept = 1, .rows_depth = 1, .pread = gated_pread, .pread_ctx = &g});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 8, &e);
    uint8_t *to = mem_map(8 * 4096, "test", NULL);
    for (uint64_t i = 0; i < 3; i++)
        io_submit(q, IO_AHEAD, 0, i * 4096, 4096, to + i * 4096, i);
    wait_started(&g, 1); /* one guess of depth 2, the other place is kept */
    io_submit(q, IO_URGENT, 0, 3 * 4096, 4096, to + 3 * 4096, 3);
    wait_started(&g, 2);
    io_submit(q, IO_ROWS, 0, 4 * 4096, 4096, to + 4 * 4096, 4);
    wait_started(&g, 3);
    io_submit(q, IO_URGENT, 0, 5 * 4096, 4096, to + 5 * 4096, 5);
    assert_int_equal(g.started, 3);
    assert_true(io_cancel(q, 1));
    assert_false(io_cancel(q, 1)); /* it is gone */
    assert_false(io_cancel(q, 0)); /* it has started */
    let_go(&g, 1); /* one place is free: the urgent read takes it, the guess waits for the next */
    wait_started(&g, 4);
    let_go(&g, 100);
    struct io_completion c[8];
    int n = 0;
    unsigned seen = 0;
    for (int got; (got = io_wait(q, c, 8));)
        for (int i = 0; i < got; i++, n++)
            seen |= 1u << c[i].tag;
    assert_int_equal(n, 5);
    assert_int_equal(seen, 0x3d);
    const off_t order[] = {0, 3, 4, 5, 2};
    assert_memory_equal(g.order, order, sizeof order);
    assert_int_equal(io_poll(q, c, 8), 0);
    io_queue_close(q);
    io_close(io);
    mem_unmap(to, 8 * 4096);
}

static void a_guess_that_is_waited_for_passes_the_others_and_prompts_use_all_depth(void **state)
{
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    struct io *io = open_io(&(struct io_options){
        .depth = 3, .ahead_kept = 2, .rows_depth = 1, .pread = gated_pread, .pread_ctx = &g});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 8, &e);
    uint8_t *to = mem_map(8 * 4096, "test", NULL);
    for (uint64_t i = 0; i < 6; i++)
        io_submit(q, IO_AHEAD, 0, i * 4096, 4096, to + i * 4096, i);
    wait_started(&g, 1);
    assert_true(io_hurry(q, 4));
    wait_started(&g, 2);
    assert_false(io_hurry(q, 4)); /* it has started */
    assert_int_equal(g.started, 2);
    io_set_prompt(io, true);
    wait_started(&g, 3);
    io_set_prompt(io, false);
    let_go(&g, 100);
    struct io_completion c[8];
    int n = 0;
    for (int got; (got = io_wait(q, c, 8));)
        n += got;
    assert_int_equal(n, 6);
    const off_t order[] = {0, 4, 1, 2, 3, 5};
    assert_memory_equal(g.order, order, sizeof order);
    assert_true(io_busy_us(io) > 0);
    io_queue_close(q);
    io_close(io);
    mem_unmap(to, 8 * 4096);
}

/* As many guesses are in flight on two drives as one would have, half of them on each; in prompts
 * both have their whole depth, as they always have for urgent reads. */
static void several_drives_take_no_more_guesses_than_one(void **state)
{
    enum { READS = 16 };
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    const char *copies[] = {path};
    struct io *io = open_io(&(struct io_options){.depth = 6,
                                                 .ahead_kept = 2,
                                                 .rows_depth = 1,
                                                 .pread = gated_pread,
                                                 .pread_ctx = &g,
                                                 .copy_paths = copies,
                                                 .copies = 1});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, READS, &e);
    uint8_t *to = mem_map(READS * 4096, "test", NULL);
    for (uint64_t i = 0; i < READS - 1; i++)
        io_submit(q, IO_AHEAD, 0, i * 4096, 4096, to + i * 4096, i);
    wait_started(&g, 4);
    io_submit(q, IO_URGENT, 0, (READS - 1) * 4096, 4096, to + (READS - 1) * 4096, READS - 1);
    wait_started(&g, 5);
    assert_int_equal(g.started, 5);
    assert_true(io_is_waiting(q, 4));
    assert_false(io_is_waiting(q, READS - 1));
    io_set_prompt(io, true);
    wait_started(&g, 12);
    assert_false(io_is_waiting(q, 10));
    assert_true(io_is_waiting(q, 11));
    let_go(&g, 100);
    struct io_completion c[READS];
    int n = 0, of_copy = 0;
    for (int got; (got = io_wait(q, c, READS));)
        for (int i = 0; i < got; i++, n++)
            of_copy += c[i].file > 0;
    assert_int_equal(n, READS);
    assert_in_range(of_copy, 5,
                    READS - 5); /* of the 12 in flight, 6; of the others no matter which */
    io_queue_close(q);
    io_close(io);
    mem_unmap(to, READS * 4096);
}

/* However many guesses wait, it starts at once in the place that is kept; with the places taken,
 * when the first read ends. */
static void an_urgent_read_waits_for_what_is_in_flight_and_no_longer(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
        struct io_options o = {.engine = i ? "pread" : "uring", .depth = 3, .ahead_kept = 1};
        if (i == 2) {
            o.pread = gated_pread;
            o.pread_ctx = &g;
        }
        struct io *io = open_io(&o);
        struct err e = {0};
        struct io_queue *q = io_queue_create(io, 14, &e);
        uint8_t *to = mem_map(14 * 4096, "test", NULL);
        for (uint64_t k = 0; k < 12; k++)
            io_submit(q, IO_AHEAD, 0, k * 4096, 4096, to + k * 4096, k);
        if (i == 2)
            wait_started(&g, 2);
        io_submit(q, IO_URGENT, 0, 12 * 4096, 4096, to + 12 * 4096, 12);
        if (i == 2)
            wait_started(&g, 3);
        io_submit(q, IO_URGENT, 0, 13 * 4096, 4096, to + 13 * 4096, 13);
        if (i == 2) {
            let_go(&g, 1);
            wait_started(&g, 4);
            assert_int_equal(g.order[2], 12);
            assert_int_equal(g.order[3], 13);
            let_go(&g, 100);
        }
        struct io_completion c;
        int n = 0;
        while (io_wait(q, &c, 1))
            n += !c.error;
        assert_int_equal(n, 14);
        io_queue_close(q);
        io_close(io);
        mem_unmap(to, 14 * 4096);
    }
}

static void what_is_wanted_and_not_read_is_timed_whether_the_drive_is_busy_or_not(void **state)
{
    struct io *io = open_io(&(struct io_options){.engine = "pread"});
    struct io_queue *q = io_queue_create(io, 1, NULL);
    assert_int_equal(io_wanted_us(io), 0);
    io_set_wanting(io, true);
    while (io_wanted_us(io) < 2000)
        usleep(500);
    io_set_wanting(io, false);
    uint64_t wanted = io_wanted_us(io);
    assert_int_equal(io_busy_us(io), 0); /* nothing was there to be busy with */
    read_one(io, q, 0, io_align(io));
    assert_true(io_wanted_us(io) - wanted >= io_busy_us(io));
    wanted = io_wanted_us(io);
    usleep(2000);
    assert_int_equal(io_wanted_us(io), wanted); /* all is read, nothing is wanted */
    io_queue_close(q);
    io_close(io);
}

static void a_wait_may_have_an_end(void **state)
{
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    struct io *io = open_io(&(struct io_options){.pread = gated_pread, .pread_ctx = &g});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 1, &e);
    uint8_t *to = mem_map(4096, "test", NULL);
    struct io_completion c;
    io_submit(q, IO_URGENT, 0, 0, 4096, to, 1);
    assert_int_equal(io_wait_for(q, &c, 1, 1), 0);
    let_go(&g, 1);
    assert_int_equal(io_wait(q, &c, 1), 1);
    assert_int_equal(io_wait_for(q, &c, 1, 1), 0);
    io_queue_close(q);
    io_close(io);
    mem_unmap(to, 4096);
}

/* ---- engines ---- */

static void the_engine_is_io_uring_unless_the_system_forbids_it(void **state)
{
    struct io *io = open_io(NULL);
    print_message("engine: %s\n", io_engine_name(io));
    io_close(io);
    pid_t child = fork();
    if (!child) { /* a filter as containers have it: io_uring_setup fails with EPERM */
        struct sock_filter f[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {.len = 4, .filter = f};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
            _exit(77);
        const char *paths[] = {path};
        struct err e = {0};
        io = io_create(paths, 1, &(struct io_options){.engine = "uring"}, &e);
        if (!io || strcmp(io_engine_name(io), "pread"))
            _exit(1);
        check_places(io);
        io_close(io);
        _exit(0);
    }
    wait_for(child);
}

/* Writes the file again, so that reading it past the page cache has to wait for the drive first. */
static void make_dirty(void)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        uint8_t byte = byte_at(i);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
    }
    close(fd);
}

/* The system reads with threads of its own where it cannot go on at once, and cannot start them
 * when the limit of processes is reached. */
static void reads_go_on_where_the_system_has_no_thread_for_them(void **state)
{
    pid_t child = fork();
    if (!child) {
        struct io *io = open_io(NULL);
        if (strcmp(io_engine_name(io), "uring"))
            _exit(77);
        struct rlimit none = {1, 1};
        make_dirty();
        if (setrlimit(RLIMIT_NPROC, &none) || (!geteuid() && setuid(65534)))
            _exit(77);
        struct io_queue *q = io_queue_create(io, 1, NULL);
        bool is_good =
            !read_one(io, q, 0, (FILE_BYTES + io_align(io)) / io_align(io) * io_align(io)).error;
        io_queue_close(q);
        io_close(io);
        _exit(!is_good);
    }
    wait_for(child);
}

static void memory_may_be_registered_and_forgotten(void **state)
{
    struct io *io = open_io(NULL);
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 4, &e);
    uint8_t *to = mem_map(1 << 20, "test", NULL);
    for (int round = 0; round < 3; round++) {
        io_remember_memory(io, to, 1 << 20);
        for (uint64_t k = 0; k < 4; k++)
            io_submit(q, IO_URGENT, 0, k * 4096, 4096, to + k * 8192, k);
        struct io_completion c;
        while (io_wait(q, &c, 1))
            assert_int_equal(c.error, 0);
        for (size_t k = 0; k < 4 * 4096; k++)
            assert_int_equal(to[k / 4096 * 8192 + k % 4096], byte_at(k));
        io_forget_memory(io, to, 1 << 20);
        memset(to, 0, 1 << 20);
    }
    io_queue_close(q);
    io_close(io);
    mem_unmap(to, 1 << 20);
}

static void a_fake_read_completes_without_a_file(void **state)
{
    const char *paths[] = {"no-such-file"};
    struct err e = {0};
    struct io *io =
        io_create(paths, 1, &(struct io_options){.engine = "fake", .fake_bytes = 1 << 30}, &e);
    assert_non_null(io);
    struct io_queue *q = io_queue_create(io, 4, &e);
    struct io_completion c;
    io_submit(q, IO_AHEAD, 0, 1 << 29, 1 << 28, NULL, 5);
    assert_int_equal(io_poll(q, &c, 1), 1);
    assert_int_equal(c.bytes, 1 << 28);
    assert_int_equal(c.error, 0);
    io_queue_close(q);
    io_close(io);
    assert_null(io_create(paths, 1, &(struct io_options){.engine = "pread", .fake_bytes = 1}, &e));
}

/* ---- replicas ---- */

static char copy_path[64];

static void write_copy(size_t bytes)
{
    char first[64];
    strcpy(first, path);
    write_file(".");
    strcpy(copy_path, path);
    strcpy(path, first);
    assert_int_equal(truncate(copy_path, (off_t)bytes), 0);
}

static void copies_share_the_work_and_a_bad_one_is_left_alone(void **state)
{
    write_copy(FILE_BYTES);
    const char *paths[] = {path}, *copies[] = {copy_path};
    const char *const engines[] = {"uring", "pread", "sim:rate=800K"};
    for (size_t i = 0; i < 3; i++) {
        struct err e = {0};
        struct io *io = io_create(
            paths, 1, &(struct io_options){.engine = engines[i], .copy_paths = copies, .copies = 1},
            &e);
        assert_non_null(io);
        check_places(io);
        struct io_queue *q = io_queue_create(io, 24, &e);
        uint8_t *to = mem_map(20 * 4096, "test", NULL);
        int second = 0;
        if (i)
            assert_int_equal(truncate(copy_path, 40000), 0); /* it breaks while it is open */
        for (uint64_t k = 0; k < 20; k++)
            io_submit(q, IO_URGENT, 0, k * 4096, 4096, to + k * 4096, k);
        for (struct io_completion c; io_wait(q, &c, 1) == 1;) {
            assert_int_equal(c.error, 0);
            second += c.file == 1;
        }
        for (size_t k = 0; k < 20 * 4096; k++)
            assert_int_equal(to[k], byte_at(k));
        assert_true(i || second > 3);
        io_queue_close(q);
        io_close(io);
        mem_unmap(to, 20 * 4096);
        assert_int_equal(unlink(copy_path), 0);
        write_copy(FILE_BYTES);
    }
    struct err e = {0};
    assert_int_equal(truncate(copy_path, 40000), 0);
    assert_null(io_create(paths, 1, &(struct io_options){.copy_paths = copies, .copies = 1}, &e));
    assert_non_null(strstr(e.text, copy_path));
    unlink(copy_path);
}

static void a_read_that_all_copies_fail_is_an_error(void **state)
{
    write_copy(FILE_BYTES);
    const char *paths[] = {path}, *copies[] = {copy_path};
    struct fault f = {.every = 1, .error = EIO};
    struct err e = {0};
    struct io *io =
        io_create(paths, 1,
                  &(struct io_options){
                      .pread = faulty_pread, .pread_ctx = &f, .copy_paths = copies, .copies = 1},
                  &e);
    struct io_queue *q = io_queue_create(io, 4, &e);
    for (int i = 0; i < 3; i++)
        assert_int_equal(read_one(io, q, 0, 4096).error, EIO);
    f.every = 0;
    assert_int_equal(read_one(io, q, 0, 4096).error, 0);
    io_queue_close(q);
    io_close(io);
    unlink(copy_path);
}

static void closing_a_queue_with_reads_under_way_waits_and_spares_the_others(void **state)
{
    struct io *io = open_io(&(struct io_options){.engine = "sim:delay=5-10ms", .depth = 2});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 20, &e), *other = io_queue_create(io, 1, &e);
    uint8_t *to = mem_map(21 * 4096, "test", NULL);
    for (uint64_t i = 0; i < 20; i++)
        io_submit(q, i & 1 ? IO_ROWS : IO_URGENT, 0, i * 4096, 4096, to + i * 4096, i);
    io_submit(other, IO_URGENT, 0, 4096, 4096, to + 20 * 4096, 9);
    io_queue_close(q);
    memset(to, 0, 20 * 4096); /* ours again: nothing may write here now (thread sanitizer) */
    struct io_completion c;
    assert_int_equal(io_wait(other, &c, 1), 1);
    assert_int_equal(c.tag, 9);
    assert_int_equal(to[20 * 4096], byte_at(4096));
    io_queue_close(other);
    io_close(io);
    mem_unmap(to, 21 * 4096);
}

static void a_read_that_a_slow_drive_holds_back_is_given_up_with_its_queue(void **state)
{
    struct io *io = open_io(&(struct io_options){.engine = "sim:rate=1", .depth = 2});
    struct err e = {0};
    struct io_queue *q = io_queue_create(io, 3, &e);
    uint8_t *to = mem_map(3 * 4096, "test", NULL);
    for (uint64_t i = 0; i < 3; i++)
        io_submit(q, IO_URGENT, 0, i * 4096, 4096, to + i * 4096, i);
    while (io_is_waiting(q, 1))
        usleep(500);
    struct io_completion c;
    assert_int_equal(io_wait_for(q, &c, 1, 20), 0);
    alarm(60); /* instead of hours */
    io_queue_close(q);
    alarm(0);
    io_close(io);
    mem_unmap(to, 3 * 4096);
}

static void allocations_fail_one_by_one(const char *engine)
{
    const char *paths[] = {path};
    for (uint64_t n = 1;; n++) {
        struct err e = {0};
        mem_fail_at(n);
        struct io *io = io_create(paths, 1, &(struct io_options){.engine = engine}, &e);
        struct io_queue *q = io ? io_queue_create(io, 4, &e) : NULL;
        mem_fail_at(0);
        assert_true(q || e.code == ERR_MEMORY);
        io_queue_close(q);
        io_close(io);
        assert_int_equal(mem_in_use(), 0);
        if (q)
            return;
    }
}

static void every_allocation_may_fail(void **state)
{
    allocations_fail_one_by_one("sim");
    allocations_fail_one_by_one("uring");
}

static void sizes_are_read_as_commands_say(void **state)
{
    const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},        {"123", 123},
                {"1K", 1024},    {"1.5G", 1610612736},
                {".5M", 524288}, {"2t", UINT64_C(2) << 40},
                {"7.", 7},       {"0.1K", 102}};
    static const char *const bad[] = {"",     "K",     "1KB", "-1",       "1e3",
                                      " 1",   "1.2.3", ".",   "9000000T", "99999999999999999999",
                                      "0x10", "1 K"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(io_parse_size(good[i].text, strlen(good[i].text), &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(io_parse_size(bad[i], strlen(bad[i]), &bytes));
}

#define IO_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* Two reads of 1000 bytes at one byte a microsecond and a delay of 50, the second queued behind the
 * first; work goes on meanwhile, but for what the reads take of it. */
static void in_virtual_time_reads_take_what_the_drive_says(void **state)
{
    const char *const name = "nowhere";
    struct io_drive d = {.bytes_us = 1, .delay_us = 50, .cpu_us = 8};
    struct io_options o = {.drive = &d, .fake_bytes = 1 << 20, .depth = 1};
    struct err e = {0};
    struct io *io = io_create(&name, 1, &o, &e);
    assert_non_null(io);
    struct io_queue *q = io_queue_create(io, 4, &e);
    struct io_completion c[4];
    size_t page = io_align(io);
    int64_t began = io_now_us(io), one = (int64_t)page + 50;
    io_submit(q, IO_AHEAD, 0, 0, page, (void *)page, 1);
    io_submit(q, IO_URGENT, 0, page, page, (void *)page, 2);
    io_submit(q, IO_AHEAD, 0, 2 * page, page, (void *)page, 3);
    assert_int_equal(io_now_us(io) - began, 12); /* asking costs half of what a read takes */
    assert_int_equal(io_poll(q, c, 4), 0);
    assert_true(io_cancel(q, 3));
    io_pass_ns(io, 1000 * (one - 12)); /* the first ends, and takes its other half */
    assert_int_equal(io_now_us(io) - began, one + 4);
    assert_int_equal(io_poll(q, c, 4), 1);
    assert_int_equal(c[0].tag, 1);
    assert_int_equal(io_wait(q, c, 4), 1); /* depth 1: it began when the first ended */
    assert_int_equal(c[0].tag, 2);
    assert_int_equal(io_now_us(io) - began, 2 * one);
    assert_int_equal(io_busy_us(io), 2 * one);
    assert_int_equal(io_wait_for(q, c, 4, 3), 0);
    io_queue_close(q);
    io_close(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IO_TEST(reads_arrive_whole_also_at_the_unaligned_end),
        IO_TEST(a_file_system_in_memory_works_with_and_without_direct_io),
        IO_TEST(short_reads_and_interrupted_calls_are_continued),
        IO_TEST(a_failed_read_names_file_and_offset_and_the_next_works),
        IO_TEST(a_file_truncated_while_open_is_an_error_with_the_place),
        IO_TEST(what_cannot_be_opened_is_refused_by_name),
        IO_TEST(urgent_reads_pass_guesses_and_a_guess_leaves_depth_to_them),
        IO_TEST(a_guess_that_is_waited_for_passes_the_others_and_prompts_use_all_depth),
        IO_TEST(several_drives_take_no_more_guesses_than_one),
        IO_TEST(an_urgent_read_waits_for_what_is_in_flight_and_no_longer),
        IO_TEST(what_is_wanted_and_not_read_is_timed_whether_the_drive_is_busy_or_not),
        IO_TEST(a_wait_may_have_an_end),
        IO_TEST(the_engine_is_io_uring_unless_the_system_forbids_it),
        IO_TEST(reads_go_on_where_the_system_has_no_thread_for_them),
        IO_TEST(memory_may_be_registered_and_forgotten),
        IO_TEST(a_fake_read_completes_without_a_file),
        IO_TEST(copies_share_the_work_and_a_bad_one_is_left_alone),
        IO_TEST(a_read_that_all_copies_fail_is_an_error),
        IO_TEST(closing_a_queue_with_reads_under_way_waits_and_spares_the_others),
        IO_TEST(a_read_that_a_slow_drive_holds_back_is_given_up_with_its_queue),
        IO_TEST(every_allocation_may_fail),
        IO_TEST(sizes_are_read_as_commands_say),
        cmocka_unit_test(in_virtual_time_reads_take_what_the_drive_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
