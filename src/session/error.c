/* SPDX-License-Identifier: Apache-2.0 */
/* From the errors inside to those of the public header. */
#include <string.h>

#include "base/mem.h"
#include "session/session.h"

_Static_assert((int)STRATA_USAGE == ERR_USAGE && (int)STRATA_IO == ERR_IO &&
                   (int)STRATA_FORMAT == ERR_FORMAT && (int)STRATA_UNSUPPORTED == ERR_UNSUPPORTED &&
                   (int)STRATA_MEMORY == ERR_MEMORY && (int)STRATA_NUMERIC == ERR_NUMERIC &&
                   (int)STRATA_INTERRUPTED == ERR_INTERRUPTED,
               "the public codes are those inside");
_Static_assert(sizeof((struct strata_error){0}.text) == ERR_TEXT_BYTES,
               "messages are copied whole");

bool session_report(struct strata_error *out, const struct err *e)
{
    if (out) {
        out->code = (enum strata_code)e->code;
        memcpy(out->text, e->text, sizeof out->text);
        if (e->code == ERR_NONE)
            out->text[0] = 0;
    }
    return e->code == ERR_NONE;
}

void strata_free(void *p)
{
    mem_free(p);
}
