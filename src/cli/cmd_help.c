/* SPDX-License-Identifier: Apache-2.0 */
/* `strata help`: pages made from the option table. */
#include <string.h>

#include "cli/cli.h"
#include "cli/help.h"
#include "cli/output.h"

enum status command_help(const struct options *o)
{
    struct json_out out = {0};
    struct strata_error e = {0};
    if (option_given(o, OPTION_MAN)) {
        help_man(&out);
    } else if (option_given(o, OPTION_COMPLETION)) {
        help_completion_bash(&out);
    } else {
        int c = 0;
        while (o->word && c < COMMANDS && strcmp(command_lines[c].name, o->word) != 0)
            c++;
        if (o->word && c == COMMANDS) {
            fail(&e, STRATA_USAGE, "%.100s is not a command: strata --help lists them", o->word);
            message_error(&e);
            return STATUS_USAGE;
        }
        help_page(o->word ? (enum command)c : COMMANDS, &out);
    }
    return output_json(&out, &e) ? STATUS_DONE : message_error(&e);
}
