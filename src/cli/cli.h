/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share: exit statuses, messages on stderr, Ctrl-C, and the model as the options
 * want it. Only this folder prints and decides about exit statuses. */
#ifndef STRATA_CLI_CLI_H
#define STRATA_CLI_CLI_H

#include "base/err.h"
#include "base/json.h"
#include "cli/options.h"
#include "strata.h"

enum status { STATUS_DONE = 0, STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_INTERRUPTED = 130 };

/* One a command; the options are checked. */
enum status command_run(const struct options *o);
enum status command_chat(const struct options *o);
enum status command_inspect(const struct options *o);
enum status command_plan(const struct options *o);
enum status command_tokenize(const struct options *o);
enum status command_logits(const struct options *o);
enum status command_render(const struct options *o);
enum status command_bench(const struct options *o);
enum status command_synth(const struct options *o);
enum status command_probe(const struct options *o);
enum status command_replay(const struct options *o);
enum status command_pack(const struct options *o);
enum status command_kld(const struct options *o);
enum status command_help(const struct options *o);

/* ---- Messages (message.c) ------------------------------------------------------------------- */

/* How much is said: --quiet, --verbose. */
void message_level(const struct options *o);
/* A line on stderr, unless --quiet. */
void message_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr with --verbose only. */
void message_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The error as one line on stderr; returns the exit status that it means. A Ctrl-C is no message.
 */
enum status message_error(const struct strata_error *e);
/* A line that is overwritten by the next; only when stderr is a terminal and not --quiet. */
void message_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void message_progress_end(void);
/* Whether message_progress would show something now, for what is costly to say. */
bool message_progress_is_due(void);

/* Fills an error unless it holds one; returns false. */
bool fail(struct strata_error *e, enum strata_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Takes over an error of the layers below; returns whether there was none. */
bool take_error(struct strata_error *e, const struct err *low);

/* ---- What has no effect (idle.c) ------------------------------------------------------------ */

/* A note for each option that changes nothing beside the others, or without one. */
void note_idle_options(const struct options *o);
/* A note if the prompts of the model's family say nothing about --effort. */
void note_idle_effort(const struct options *o, struct strata_model *m);

/* ---- Ctrl-C (interrupt.c) ------------------------------------------------------------------- */

/* Set by Ctrl-C from interrupt_listen on; the cancel flag of everything that takes long. */
extern atomic_bool interrupted;
/* A second Ctrl-C ends the program at once, unless it is `patient`. */
void interrupt_listen(bool patient);
/* Waits until a read of fd would not block; false when a Ctrl-C came, before or meanwhile. */
bool interrupt_wait_for_input(int fd);

/* ---- The model (open.c) --------------------------------------------------------------------- */

/* Opens the model of -m with the options that were given; `snapshots` are kept by its session. */
struct strata_model *open_model(const struct options *o, int snapshots, struct strata_error *e);
/* Begins to read its weights; what is computed first shows the progress. */
bool begin_model(struct strata_model *m, struct strata_error *e);
/* Reads them all, with progress. */
bool load_model(struct strata_model *m, struct strata_error *e);
/* Cancel flag and progress of a pass over a prompt. */
extern const struct strata_pass prompt_pass;
/* --think, --preserve-thinking, --effort, --no-generation-prompt. */
struct strata_render_options render_options(const struct options *o);
/* How to sample: the options, else what a loaded state says, else the file, else the defaults. */
bool sampling_options(const struct options *o, struct strata_model *m,
                      const struct strata_session *s, struct strata_sampling *out,
                      struct strata_error *e);

#endif
