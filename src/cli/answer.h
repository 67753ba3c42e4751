/* SPDX-License-Identifier: Apache-2.0 */
/* One answer, token by token: sampled, shown as it comes, fed back. */
#ifndef STRATA_CLI_ANSWER_H
#define STRATA_CLI_ANSWER_H

#include "base/json.h"
#include "strata.h"

enum answer_part { ANSWER_TEXT, ANSWER_REASONING };
enum answer_finish { ANSWER_STOPPED, ANSWER_LENGTH, ANSWER_INTERRUPTED };

struct answer_request {
    struct strata_model *model;
    struct strata_session *session; /* has logits; its sampling is set */
    const char *const *stops;       /* looked for in the text, not in reasoning */
    size_t n_stops;
    size_t most;               /* tokens; SIZE_MAX: until the model ends or the context is full */
    bool feeds_last;           /* the session shall hold the whole answer afterwards */
    bool splits_reasoning;     /* what stands between <think> and </think> is a part of its own */
    bool begins_with_reasoning; /* the prompt ended with an open <think> */
    /* Takes whole characters as they come. */
    bool (*show)(void *ctx, enum answer_part part, const char *text, size_t bytes,
                 struct strata_error *e);
    void *ctx;
};

struct answer {
    struct json_out text, reasoning;
    int32_t *ids; /* without the token that ended it */
    size_t n;
    enum answer_finish finish;
};

/* False on an error; what there was until then is in *out all the same. Ctrl-C is no error. */
bool answer_generate(const struct answer_request *r, struct answer *out, struct strata_error *e);
void answer_free(struct answer *a);
/* "stop", "length", "interrupted". */
const char *answer_finish_name(enum answer_finish f);

#endif
