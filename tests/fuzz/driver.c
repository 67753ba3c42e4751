/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target as a normal test: `fuzz_NAME MUTATIONS PATH...`. Every file below the paths is
 * run as it is, then MUTATIONS changed copies, the same ones in every run. An input that crashes or
 * hangs is saved as ./fuzz-crash and the program ends by the signal. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_BYTES_MOST ((size_t)64 << 10)
#define FILES_MOST 4096
#define HANG_SECONDS 60

struct input {
    uint8_t *bytes;
    size_t size;
};

static struct input corpus[FILES_MOST];
static size_t corpus_files;
static struct input current; /* for the signal handler */

/* ---- corpus ---- */

static int add_file(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)place;
    if (kind != FTW_F || !S_ISREG(st->st_mode) || corpus_files == FILES_MOST)
        return 0;
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    struct input *in = &corpus[corpus_files++];
    in->bytes = malloc(INPUT_BYTES_MOST);
    if (!in->bytes)
        abort();
    in->size = fread(in->bytes, 1, INPUT_BYTES_MOST, f); /* of larger files the front */
    fclose(f);
    return 0;
}

/* The order of a folder's entries differs between machines; the content's does not. */
static int by_content(const void *a, const void *b)
{
    const struct input *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* ---- mutations ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t random_below(size_t n)
{
    return n ? (size_t)(random_number() % n) : 0;
}

/* Numbers at which parsers go wrong. */
static uint64_t edge_number(void)
{
    static const uint64_t edges[] = {
        0,
        1,
        2,
        8,
        9,
        13,
        31,
        32,
        33,
        127,
        128,
        255,
        256,
        65535,
        65536,
        0x7fffffff,
        0x80000000,
        0xffffffff,
        0x100000000,
        0x1fffffffffffffff,
        0x2000000000000000,
        0x4000000000000000,
        0x7fffffffffffffff,
        0x8000000000000000,
        0xfffffffffffffff0,
        0xffffffffffffffff,
    };
    return edges[random_below(sizeof edges / sizeof *edges)] + random_below(3) - 1;
}

static void overwrite_number(struct input *in)
{
    static const size_t widths[] = {1, 2, 4, 8};
    size_t width = widths[random_below(4)];
    if (in->size < width)
        return;
    uint8_t *at = in->bytes + random_below(in->size - width + 1);
    uint64_t v = edge_number();
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

/* Copies a piece of `from` over or into `in`. */
static void copy_piece(struct input *in, const struct input *from, int insert)
{
    size_t start = random_below(from->size), n = random_below(from->size - start + 1);
    size_t to = random_below(in->size + 1);
    if (n > 256)
        n = 1 + random_below(256);
    if (n > INPUT_BYTES_MOST - in->size || (!insert && n > in->size - to))
        return;
    uint8_t piece[256];
    memcpy(piece, from->bytes + start, n);
    if (insert) {
        memmove(in->bytes + to + n, in->bytes + to, in->size - to);
        in->size += n;
    }
    memcpy(in->bytes + to, piece, n);
}

static void erase_piece(struct input *in)
{
    size_t start = random_below(in->size), n = 1 + random_below(32);
    if (n > in->size - start)
        return;
    memmove(in->bytes + start, in->bytes + start + n, in->size - start - n);
    in->size -= n;
}

static void mutate(struct input *in)
{
    switch (random_below(8)) {
    case 0:
    case 1:
        if (in->size)
            in->bytes[random_below(in->size)] ^= (uint8_t)(1u << random_below(8));
        break;
    case 2:
        if (in->size)
            in->bytes[random_below(in->size)] = (uint8_t)random_number();
        break;
    case 3:
    case 4:
        overwrite_number(in);
        break;
    case 5:
        copy_piece(in, in, 1);
        break;
    case 6:
        copy_piece(in, &corpus[random_below(corpus_files)], (int)random_below(2));
        break;
    default:
        if (random_below(4))
            erase_piece(in);
        else
            in->size = random_below(in->size + 1);
    }
}

/* ---- running ---- */

static void save_input(int signal_number)
{
    int fd = open("fuzz-crash", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, current.bytes, current.size) == (ssize_t)current.size) {
        static const char text[] = "the input was saved as ./fuzz-crash\n";
        (void)!write(2, text, sizeof text - 1);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* The target gets a copy of exactly the size, so that a sanitizer sees one byte too many. */
static void run(const struct input *in)
{
    uint8_t *copy = malloc(in->size ? in->size : 1);
    if (!copy)
        abort();
    memcpy(copy, in->bytes, in->size);
    current = (struct input){copy, in->size};
    alarm(HANG_SECONDS);
    fuzz_target(copy, in->size);
    free(copy);
}

int main(int argc, char **argv)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    if (argc < 3) {
        fprintf(stderr, "usage: %s MUTATIONS PATH...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        if (nftw(argv[i], add_file, 16, FTW_PHYS)) {
            perror(argv[i]);
            return 1;
        }
    if (!corpus_files) {
        fprintf(stderr, "no files to start from\n");
        return 1;
    }
    qsort(corpus, corpus_files, sizeof *corpus, by_content);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], save_input);

    for (size_t i = 0; i < corpus_files; i++)
        run(&corpus[i]);
    long mutations = atol(argv[1]);
#ifdef __SANITIZE_THREAD__
    mutations /= 50; /* all targets run on one thread, in which it has nothing to find */
#endif
    struct input changed = {.bytes = malloc(INPUT_BYTES_MOST)};
    if (!changed.bytes)
        abort();
    for (long n = 0; n < mutations; n++) {
        const struct input *in = &corpus[(size_t)n % corpus_files];
        memcpy(changed.bytes, in->bytes, in->size);
        changed.size = in->size;
        for (size_t i = random_below(4) + 1; i; i--)
            mutate(&changed);
        run(&changed);
    }
    printf("%zu files, %ld mutations\n", corpus_files, mutations);
    free(changed.bytes);
    for (size_t i = 0; i < corpus_files; i++)
        free(corpus[i].bytes);
    return 0;
}
