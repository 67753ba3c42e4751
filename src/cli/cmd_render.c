/* SPDX-License-Identifier: Apache-2.0 */
/* `strata render`: the prompt that a conversation becomes. */
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/output.h"

enum status command_render(const struct options *o)
{
    struct strata_error e = {0};
    struct strata_render_options how = render_options(o);
    struct strata_model *m = open_model(o, 0, &e);
    char *messages = m ? input_read_text(option_text(o, OPTION_MESSAGES), &e) : NULL;
    char *tools = messages && option_given(o, OPTION_TOOLS)
                      ? input_read_text(option_text(o, OPTION_TOOLS), &e)
                      : NULL;
    struct strata_prompt *p =
        e.code == STRATA_OK ? strata_render(m, messages, tools, &how, &e) : NULL;
    if (p)
        note_idle_effort(o, m);
    size_t bytes;
    const char *text = p ? strata_prompt_text(p, &bytes) : NULL;
    bool ok = text && output_write(text, bytes, &e);
    strata_prompt_free(p);
    mem_free(tools);
    mem_free(messages);
    strata_model_free(m);
    return ok ? STATUS_DONE : message_error(&e);
}
