/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"

/* ---- stdout --------------------------------------------------------------------------------- */

bool output_write(const char *text, size_t bytes, struct strata_error *e)
{
    while (bytes) {
        ssize_t done = write(STDOUT_FILENO, text, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail(e, STRATA_IO, "stdout: %s", strerror(errno));
        text += done;
        bytes -= (size_t)done;
    }
    return true;
}

bool output_json(struct json_out *text, struct strata_error *e)
{
    bool ok = text->failed ? fail(e, STRATA_MEMORY, "no memory for the output")
                           : output_write(text->text ? text->text : "", text->bytes, e);
    json_out_free(text);
    return ok;
}

bool output_is_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

bool output_is_where_messages_are(void)
{
    struct stat out, err;
    return !fstat(STDOUT_FILENO, &out) && !fstat(STDERR_FILENO, &err) && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}

/* The symbol of a control character (U+2400 and on), or 0 for what may pass. */
static uint32_t symbol_of(uint32_t code)
{
    if (code == '\n' || code == '\t' || (code >= 0x20 && code < 0x7f) || code >= 0xa0)
        return 0;
    return code < 0x20 ? 0x2400 + code : code == 0x7f ? 0x2421 : 0xfffd;
}

bool output_text(const char *text, size_t bytes, struct strata_error *e)
{
    if (!output_is_terminal())
        return output_write(text, bytes, e);
    size_t from = 0, at = 0, length;
    uint32_t code;
    for (; at < bytes; at += length) {
        bool is_whole = utf8_decode(text + at, bytes - at, &code, &length) == UTF8_WHOLE;
        uint32_t symbol = is_whole ? symbol_of(code) : 0xfffd;
        if (!symbol)
            continue;
        char shown[4];
        if (!output_write(text + from, at - from, e) ||
            !output_write(shown, utf8_encode(symbol, shown), e))
            return false;
        from = at + length;
    }
    return output_write(text + from, at - from, e);
}

/* ---- Files ---------------------------------------------------------------------------------- */

bool output_spares_model(const char *what, const char *path, struct strata_error *e)
{
    char magic[4];
    uint64_t bytes;
    struct err ignored;
    err_clear(&ignored);
    int fd = file_open(path, &bytes, &ignored);
    bool is_model = fd >= 0 && bytes >= sizeof magic &&
                    file_read_at(fd, path, 0, magic, sizeof magic, &ignored) &&
                    !memcmp(magic, "GGUF", sizeof magic);
    if (fd >= 0)
        file_close(fd);
    return !is_model || fail(e, STRATA_USAGE, "%s: %s is a model, which is not written over", what, path);
}

bool output_spares_models(const struct options *o, struct strata_error *e)
{
    static const enum option outputs[] = {OPTION_SAVE,  OPTION_STATS, OPTION_OUT,
                                          OPTION_TRACE, OPTION_SVG,   OPTION_PACK_OUT};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char what[32];
        snprintf(what, sizeof what, "--%s", option_lines[outputs[i]].name);
        if (option_given(o, outputs[i]) && !output_spares_model(what, option_text(o, outputs[i]), e))
            return false;
    }
    return true;
}

bool output_begin(struct file_writer *w, const char *path, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    file_write_begin(w, path, 0666, &low);
    return take_error(e, &low);
}

bool output_can_begin(const char *path, struct strata_error *e)
{
    struct file_writer w;
    if (path && !output_begin(&w, path, e))
        return false;
    if (path)
        file_write_abort(&w);
    return true;
}

bool output_file(const char *path, const char *text, size_t bytes, struct strata_error *e)
{
    struct file_writer w;
    if (!output_begin(&w, path, e))
        return false;
    struct err low;
    err_clear(&low);
    if (!file_write(&w, text, bytes, &low) || !file_write_commit(&w, &low))
        file_write_abort(&w);
    return take_error(e, &low);
}

/* ---- .npy ----------------------------------------------------------------------------------- */

size_t npy_element_bytes(enum strata_element type)
{
    return type == STRATA_BOOL ? 1 : 4;
}

size_t npy_header(char out[NPY_HEADER_MOST], enum strata_element type, const size_t *dims,
                  int n_dims)
{
    static const char *const names[] = {
        [STRATA_F32] = "<f4", [STRATA_I32] = "<i4", [STRATA_BOOL] = "|b1"};
    char shape[128] = "";
    size_t n = 0;
    for (int i = 0; i < n_dims && i < NPY_DIMS; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%zu", i ? ", " : "", dims[i]);
    int text = snprintf(out + 10, NPY_HEADER_MOST - 10,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", names[type],
                        shape, n_dims == 1 ? "," : "");
    size_t bytes = (10 + (size_t)text + 1 + 63) / 64 * 64;
    memset(out + 10 + text, ' ', bytes - 10 - (size_t)text);
    out[bytes - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01", 8); /* the NUL of the string is the minor version */
    out[8] = (char)((bytes - 10) & 0xff);
    out[9] = (char)((bytes - 10) >> 8);
    return bytes;
}
