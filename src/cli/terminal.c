/* SPDX-License-Identifier: Apache-2.0 */
/* A paste. Terminals put ESC [200~ and ESC [201~ around what is pasted when they are asked to
 * (bracketed paste); between them line breaks and tabs become the symbols U+2424 and U+2409, which
 * the line editor shows and edits like any character, and which become line breaks and tabs again
 * when the line is done. A long paste (redrawing it would take the editor seconds) is set aside,
 * and a mark stands for it in the line: [paste 1: 600 lines]. */
#include "cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"

#define SYMBOL_BREAK L'\u2424'
#define SYMBOL_TAB L'\u2409'
#define HISTORY_LINES 500
/* Characters of a paste that are shown. */
#define PASTE_SHOWN 1000
/* How long the rest of a key's sequence may take after its ESC. */
#define SEQUENCE_MS 50

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
static const char paste_begin[] = "[200~", paste_end[] = "\033[201~";

/* A long paste: the text, and what stands for it in the line and in the history. */
struct paste {
    struct json_out text;
    char mark[48];
};

struct terminal {
    bool is_person;
    struct json_out message;

    /* plain lines */
    char buffer[4096];
    size_t at, filled;
    bool ended;

    /* the line editor */
    EditLine *editor;
    HistoryW *history;
    FILE *screen; /* where the line is shown */
    const wchar_t *prompt;
    wchar_t *pending; /* characters that were read before their time, or pasted */
    size_t pending_at, pending_n, pending_room;
    struct paste *pastes;
    size_t n_pastes;
    int returned;              /* a byte that was read too early, or -1 */
    bool cancelled, was_empty; /* Ctrl-C came; nothing was written then */
};

bool terminal_is_person(const struct terminal *t)
{
    return t->is_person;
}

/* ---- Plain lines ---------------------------------------------------------------------------- */

/* Appends a line without its break to the message. */
static enum terminal_read read_plain(struct terminal *t, struct strata_error *e)
{
    size_t before = t->message.bytes;
    bool any = false;
    for (;;) {
        if (t->at == t->filled && !t->ended) {
            if (!interrupt_wait_for_input(STDIN_FILENO)) {
                atomic_store(&interrupted, false);
                return t->message.bytes > before ? TERMINAL_CLEARED : TERMINAL_INTERRUPTED;
            }
            ssize_t n = read(STDIN_FILENO, t->buffer, sizeof t->buffer);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0) {
                fail(e, STRATA_IO, "stdin: %s", strerror(errno));
                return TERMINAL_FAILED;
            }
            t->at = 0;
            t->filled = (size_t)n;
            t->ended = n == 0;
        }
        if (t->at == t->filled)
            return any ? TERMINAL_MESSAGE : TERMINAL_END;
        any = true;
        const char *from = t->buffer + t->at, *end = memchr(from, '\n', t->filled - t->at);
        size_t n = end ? (size_t)(end - from) : t->filled - t->at;
        json_put(&t->message, from, n);
        t->at += n + (end != NULL);
        if (end)
            return TERMINAL_MESSAGE;
    }
}

/* ---- Characters for the line editor --------------------------------------------------------- */

static bool push(struct terminal *t, wchar_t c)
{
    if (t->pending_n == t->pending_room) {
        size_t room = t->pending_room ? t->pending_room * 2 : 64;
        wchar_t *grown = mem_grow(t->pending, room * sizeof *grown, "a paste", NULL);
        if (!grown)
            return false;
        t->pending = grown;
        t->pending_room = room;
    }
    t->pending[t->pending_n++] = c;
    return true;
}

/* One byte; false at the end of input or when Ctrl-C came. */
static bool read_byte(struct terminal *t, unsigned char *out)
{
    if (t->returned >= 0) {
        *out = (unsigned char)t->returned;
        t->returned = -1;
        return true;
    }
    if (interrupt_wait_for_input(STDIN_FILENO))
        return read(STDIN_FILENO, out, 1) == 1;
    atomic_store(&interrupted, false); /* seen: the next one is another */
    const LineInfoW *line = el_wline(t->editor);
    t->cancelled = true;
    t->was_empty = line->lastchar == line->buffer;
    return false;
}

static bool comes_soon(const struct terminal *t)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return t->returned >= 0 || poll(&p, 1, SEQUENCE_MS) == 1;
}

/* The character that begins with `first`; U+FFFD for what is no UTF-8. */
static bool read_character(struct terminal *t, unsigned char first, wchar_t *out)
{
    char bytes[4] = {(char)first};
    uint32_t code;
    size_t n = 1, length;
    while (utf8_decode(bytes, n, &code, &length) == UTF8_INCOMPLETE) {
        unsigned char next;
        if (!read_byte(t, &next))
            return false;
        bytes[n++] = (char)next;
    }
    bool is_whole = utf8_decode(bytes, n, &code, &length) == UTF8_WHOLE;
    *out = is_whole ? (wchar_t)code : L'\ufffd';
    if (length < n) /* the byte that broke it stands for itself */
        t->returned = (unsigned char)bytes[n - 1];
    return true;
}

static bool push_pasted(struct terminal *t, wchar_t c)
{
    if (c == L'\n' || c == L'\r')
        return push(t, SYMBOL_BREAK);
    if (c == L'\t')
        return push(t, SYMBOL_TAB);
    /* Other control characters would be commands to the editor. */
    return c < 0x20 || c == 0x7f || push(t, c);
}

static void put_wide(struct json_out *out, const wchar_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        uint32_t code = text[i] == SYMBOL_BREAK ? '\n'
                        : text[i] == SYMBOL_TAB ? '\t'
                                                : (uint32_t)text[i];
        bool is_scalar = code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000);
        json_put(out, bytes, utf8_encode(is_scalar ? code : 0xfffd, bytes));
    }
}

/* Sets a long paste in `pending` aside and puts its mark there. */
static bool set_aside(struct terminal *t)
{
    struct paste *grown = mem_grow(t->pastes, (t->n_pastes + 1) * sizeof *grown, "a paste", NULL);
    if (!grown)
        return false;
    t->pastes = grown;
    struct paste *p = &t->pastes[t->n_pastes++];
    *p = (struct paste){0};
    size_t lines = 1;
    for (size_t i = 0; i < t->pending_n; i++)
        lines += t->pending[i] == SYMBOL_BREAK;
    put_wide(&p->text, t->pending, t->pending_n);
    snprintf(p->mark, sizeof p->mark, "[paste %zu: %zu line%s]", t->n_pastes, lines,
             lines == 1 ? "" : "s");
    t->pending_n = 0;
    for (const char *at = p->mark; *at; at++)
        push(t, *at);
    return !p->text.failed;
}

/* Puts pastes that were set aside where their marks stand in the message, from `from` on. */
static void put_back(struct terminal *t, size_t from)
{
    if (!t->n_pastes || t->message.bytes == from)
        return;
    struct json_out whole = {0};
    json_put(&whole, t->message.text, from);
    for (const char *at = t->message.text + from; *at;) {
        size_t i = 0;
        while (i < t->n_pastes && strncmp(at, t->pastes[i].mark, strlen(t->pastes[i].mark)) != 0)
            i++;
        if (i < t->n_pastes) {
            json_put(&whole, t->pastes[i].text.text, t->pastes[i].text.bytes);
            at += strlen(t->pastes[i].mark);
        } else {
            json_put(&whole, at++, 1);
        }
    }
    json_out_free(&t->message);
    t->message = whole;
}

/* What is pasted, up to its end mark, into `pending`. */
static bool read_paste(struct terminal *t)
{
    size_t matched = 0;
    bool after_return = false;
    for (;;) {
        unsigned char byte;
        if (!read_byte(t, &byte))
            return false;
        if (byte == (unsigned char)paste_end[matched]) {
            if (!paste_end[++matched])
                break;
            continue;
        }
        for (size_t i = 1; i < matched; i++) /* the ESC itself is dropped */
            push_pasted(t, paste_end[i]);
        matched = byte == 033;
        wchar_t c;
        if (matched)
            continue;
        if (!read_character(t, byte, &c))
            return false;
        if (!(c == L'\n' && after_return) && !push_pasted(t, c))
            return false;
        after_return = c == L'\r';
    }
    /* The break at the end of a paste is the Enter that the person will press. */
    if (t->pending_n && t->pending[t->pending_n - 1] == SYMBOL_BREAK)
        t->pending_n--;
    return t->pending_n <= PASTE_SHOWN || set_aside(t);
}

/* After an ESC: a paste, or a key whose sequence goes to the editor as it is. */
static bool read_escape(struct terminal *t)
{
    push(t, 033);
    for (size_t i = 0; paste_begin[i]; i++) {
        unsigned char byte;
        if (!comes_soon(t))
            return true;
        if (!read_byte(t, &byte))
            return false;
        wchar_t c;
        if (!read_character(t, byte, &c) || !push(t, c))
            return false;
        if (c != (wchar_t)paste_begin[i])
            return true;
    }
    t->pending_n = 0;
    return read_paste(t);
}

/* libedit's source of characters: 1 with a character, 0 at the end, -1 on an error. */
static int next_character(EditLine *editor, wchar_t *out)
{
    struct terminal *t;
    el_wget(editor, EL_CLIENTDATA, &t);
    while (t->pending_at == t->pending_n) {
        t->pending_at = t->pending_n = 0;
        unsigned char byte;
        if (!read_byte(t, &byte))
            return 0;
        if (byte != 033)
            return read_character(t, byte, out) ? 1 : 0;
        if (!read_escape(t))
            return 0;
    }
    *out = t->pending[t->pending_at++];
    return 1;
}

static wchar_t *prompt_of(EditLine *editor)
{
    struct terminal *t;
    el_wget(editor, EL_CLIENTDATA, &t);
    return (wchar_t *)t->prompt;
}

/* ---- The line editor ------------------------------------------------------------------------ */

static bool create_editor(struct terminal *t, struct strata_error *e)
{
    t->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    t->editor = el_init("strata", stdin, t->screen, stderr);
    t->history = history_winit();
    if (!t->editor || !t->history)
        return fail(e, STRATA_MEMORY, "the line editor cannot be started on this terminal");
    HistEventW event;
    history_w(t->history, &event, H_SETSIZE, HISTORY_LINES);
    history_w(t->history, &event, H_SETUNIQUE, 1);
    el_wset(t->editor, EL_CLIENTDATA, t);
    el_wset(t->editor, EL_EDITOR, L"emacs");
    el_wset(t->editor, EL_PROMPT, prompt_of);
    el_wset(t->editor, EL_HIST, history_w, t->history);
    el_wset(t->editor, EL_SIGNAL, 1);
    el_wset(t->editor, EL_GETCFN, next_character);
    return true;
}

/* Appends a line without its break to the message. */
static enum terminal_read read_edited(struct terminal *t, const wchar_t *prompt)
{
    int n = 0;
    t->prompt = prompt;
    t->cancelled = false;
    fputs(paste_on, t->screen);
    fflush(t->screen);
    const wchar_t *line = el_wgets(t->editor, &n);
    fputs(paste_off, t->screen);
    if (!line || n <= 0)
        fputc('\n', t->screen);
    fflush(t->screen);
    t->pending_at = t->pending_n = 0;
    if (!line || n <= 0) {
        el_reset(t->editor);
        return !t->cancelled  ? TERMINAL_END
               : t->was_empty ? TERMINAL_INTERRUPTED
                              : TERMINAL_CLEARED;
    }
    size_t length = (size_t)n;
    if (length && line[length - 1] == L'\n')
        length--;
    if (length) {
        HistEventW event;
        history_w(t->history, &event, H_ENTER, line);
    }
    size_t from = t->message.bytes;
    put_wide(&t->message, line, length);
    put_back(t, from);
    return TERMINAL_MESSAGE;
}

/* ---- Messages ------------------------------------------------------------------------------- */

static enum terminal_read read_line(struct terminal *t, bool is_first, struct strata_error *e)
{
    if (!t->is_person)
        return read_plain(t, e);
    return read_edited(t, is_first ? L"> " : L"... ");
}

static bool is_quote(const struct terminal *t, size_t from)
{
    return t->message.bytes - from == 3 && memcmp(t->message.text + from, "\"\"\"", 3) == 0;
}

/* Lines until one of """ alone; Ctrl-D ends them too. */
static enum terminal_read read_quoted(struct terminal *t, struct strata_error *e)
{
    t->message.bytes = 0;
    for (;;) {
        size_t from = t->message.bytes;
        enum terminal_read r = read_line(t, false, e);
        if (r == TERMINAL_INTERRUPTED)
            return TERMINAL_CLEARED;
        if (r != TERMINAL_MESSAGE && r != TERMINAL_END)
            return r;
        if (r == TERMINAL_END || is_quote(t, from)) {
            t->message.bytes = from ? from - 1 : 0; /* and the break before it */
            return TERMINAL_MESSAGE;
        }
        json_puts(&t->message, "\n");
    }
}

static bool is_continued(const struct terminal *t)
{
    return t->message.bytes && t->message.text[t->message.bytes - 1] == '\\';
}

static enum terminal_read read_message(struct terminal *t, struct strata_error *e)
{
    t->message.bytes = 0;
    enum terminal_read r = read_line(t, true, e);
    if (r == TERMINAL_MESSAGE && is_quote(t, 0))
        return read_quoted(t, e);
    while (r == TERMINAL_MESSAGE && is_continued(t)) {
        t->message.text[t->message.bytes - 1] = '\n';
        r = read_line(t, false, e);
        if (r == TERMINAL_INTERRUPTED)
            return TERMINAL_CLEARED;
        if (r == TERMINAL_END)
            return TERMINAL_MESSAGE;
    }
    return r;
}

enum terminal_read terminal_read(struct terminal *t, const char **text, struct strata_error *e)
{
    enum terminal_read r = read_message(t, e);
    json_put(&t->message, "", 1); /* a NUL also where nothing was written */
    *text = t->message.text;
    if (t->message.failed) {
        fail(e, STRATA_MEMORY, "no memory for a message");
        return TERMINAL_FAILED;
    }
    return r;
}

struct terminal *terminal_create(struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    struct terminal *t = mem_alloc(sizeof *t, "a terminal", &low);
    if (!take_error(e, &low))
        return NULL;
    t->returned = -1;
    t->is_person = isatty(STDIN_FILENO) == 1;
    if (t->is_person && !create_editor(t, e)) {
        terminal_free(t);
        return NULL;
    }
    return t;
}

void terminal_free(struct terminal *t)
{
    if (!t)
        return;
    if (t->editor)
        el_end(t->editor);
    if (t->history)
        history_wend(t->history);
    for (size_t i = 0; i < t->n_pastes; i++)
        json_out_free(&t->pastes[i].text);
    mem_free(t->pastes);
    mem_free(t->pending);
    json_out_free(&t->message);
    mem_free(t);
}
