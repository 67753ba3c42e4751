/* SPDX-License-Identifier: Apache-2.0 */
/* `strata pack`: the experts once more, each in one piece. */
#include "cli/cli.h"

enum status command_pack(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct strata_pack_options wanted = {.path = option_text(o, OPTION_PACK_OUT),
                                         .checksums = option_given(o, OPTION_CHECKSUMS),
                                         .only_verify = option_given(o, OPTION_VERIFY)};
    struct strata_model *m = open_model(o, 0, &e);
    bool ok = m && strata_pack(m, &wanted, &e);
    message_progress_end();
    strata_model_free(m);
    if (!ok)
        return message_error(&e);
    message_note(wanted.only_verify ? "every expert is as the model has it" : "packed");
    return STATUS_DONE;
}
