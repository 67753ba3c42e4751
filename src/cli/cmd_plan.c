/* SPDX-License-Identifier: Apache-2.0 */
/* `strata plan`: what memory a run takes. */
#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"

enum status command_plan(const struct options *o)
{
    struct strata_error e = {0};
    struct strata_model *m = open_model(o, 0, &e);
    bool is_json = option_given(o, OPTION_JSON);
    char *text = m ? strata_plan_text(m, is_json, &e) : NULL;
    bool ok =
        text && output_write(text, strlen(text), &e) && (!is_json || output_write("\n", 1, &e));
    strata_free(text);
    strata_model_free(m);
    return ok ? STATUS_DONE : message_error(&e);
}
