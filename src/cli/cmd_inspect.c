/* SPDX-License-Identifier: Apache-2.0 */
/* `strata inspect`: what a GGUF file holds, whatever its architecture. */
#include "cli/cli.h"
#include "cli/output.h"
#include "gguf/gguf.h"
#include "gguf/listing.h"

enum status command_inspect(const struct options *o)
{
    struct gguf_listing want = {.keys = option_given(o, OPTION_KEYS),
                                .tensors = option_given(o, OPTION_TENSORS)};
    struct err low;
    err_clear(&low);
    struct json_out out = {0};
    struct gguf_file *g = gguf_open(option_text(o, OPTION_MODEL), &low);
    bool ok = g != NULL;
    if (ok && option_given(o, OPTION_JSON)) {
        ok = gguf_list_json(g, want, &out, &low);
        json_puts(&out, "\n");
    } else if (ok) {
        ok = gguf_list_text(g, want, &out, &low);
    }
    gguf_close(g);
    struct strata_error e = {0};
    if (ok)
        ok = output_json(&out, &e);
    else
        take_error(&e, &low);
    json_out_free(&out);
    return ok ? STATUS_DONE : message_error(&e);
}
