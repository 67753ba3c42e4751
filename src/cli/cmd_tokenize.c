/* SPDX-License-Identifier: Apache-2.0 */
/* `strata tokenize`: text to ids, and back. */
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/output.h"

static bool to_ids(const struct options *o, struct strata_model *m, const char *text, size_t bytes,
                   struct strata_error *e)
{
    enum strata_special mode = option_given(o, OPTION_SPECIAL)      ? STRATA_SPECIAL_ALL
                               : option_given(o, OPTION_NO_SPECIAL) ? STRATA_SPECIAL_NONE
                                                                    : STRATA_SPECIAL_USER;
    int32_t *ids;
    size_t n;
    if (!strata_encode(m, text, bytes, mode, &ids, &n, e))
        return false;
    struct json_out out = {0};
    json_puts(&out, "[");
    for (size_t i = 0; i < n; i++)
        json_putf(&out, "%s%d", i ? ", " : "", ids[i]);
    json_puts(&out, "]\n");
    strata_free(ids);
    return output_json(&out, e);
}

static bool to_text(struct strata_model *m, const char *text, size_t bytes, struct strata_error *e)
{
    int32_t *ids;
    size_t n;
    if (!input_ids(text, bytes, "stdin", strata_vocabulary_size(m), &ids, &n, e))
        return false;
    struct json_out out = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        const char *piece;
        size_t piece_bytes;
        ok = strata_token_bytes(m, ids[i], &piece, &piece_bytes, e);
        if (ok)
            json_put(&out, piece, piece_bytes);
    }
    mem_free(ids);
    if (ok)
        return output_json(&out, e);
    json_out_free(&out);
    return false;
}

/* Makes the reason known why a file has no tokenizer. */
static bool check_words(struct strata_model *m, struct strata_error *e)
{
    int32_t *ids;
    size_t n;
    bool ok = strata_encode(m, "", 0, STRATA_SPECIAL_NONE, &ids, &n, e);
    if (ok)
        strata_free(ids);
    return ok;
}

enum status command_tokenize(const struct options *o)
{
    struct strata_error e = {0};
    struct strata_model *m = open_model(o, 0, &e);
    char *text = NULL;
    size_t bytes = 0;
    bool ok = m && check_words(m, &e) && (text = input_read("-", &bytes, &e)) != NULL &&
              (option_given(o, OPTION_TO_TEXT) ? to_text(m, text, bytes, &e)
                                               : to_ids(o, m, text, bytes, &e));
    mem_free(text);
    strata_model_free(m);
    return ok ? STATUS_DONE : message_error(&e);
}
