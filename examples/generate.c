/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest useful program: continues a text with the most likely words.
 *
 *     generate MODEL.gguf "Once upon a time" [TOKENS]
 *
 * Uses <strata.h> alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata.h>

static void show(const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

/* Feeds the prompt, then samples and feeds until the model ends or `most` tokens are out. */
static bool generate(struct strata_model *m, struct strata_session *s, struct strata_text *t,
                     const char *prompt, int most, struct strata_error *e)
{
    int32_t *ids;
    size_t n;
    if (!strata_encode(m, prompt, strlen(prompt), STRATA_SPECIAL_USER, &ids, &n, e))
        return false;
    bool ok = strata_feed(s, ids, n, NULL, e);
    strata_free(ids);

    struct strata_sampling greedy;
    ok = ok && strata_sampling_defaults(m, &greedy, e);
    greedy.temp = 0;
    ok = ok && strata_answer_begin(s, &greedy, e);

    const char *text;
    size_t bytes;
    for (int i = 0; ok && i < most; i++) {
        int32_t id;
        bool stopped;
        ok = strata_sample(s, &id, e);
        if (!ok || strata_token_is_end(m, id))
            break;
        ok = strata_text_push(t, id, &text, &bytes, &stopped, e);
        if (ok)
            show(text, bytes);
        ok = ok && strata_step(s, &id, 1, NULL, e);
    }
    if (ok && (ok = strata_text_finish(t, &text, &bytes, e)))
        show(text, bytes);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: generate MODEL.gguf TEXT [TOKENS]\n");
        return 2;
    }
    struct strata_error e = {0};
    struct strata_model *m = strata_model_open(argv[1], NULL, &e);
    bool ok = m && strata_model_load(m, &e);
    struct strata_session *s = ok ? strata_session_create(m, &e) : NULL;
    struct strata_text *t = s ? strata_text_create(m, NULL, 0, &e) : NULL;
    ok = t && generate(m, s, t, argv[2], argc > 3 ? atoi(argv[3]) : 32, &e);
    if (ok)
        putchar('\n');
    else
        fprintf(stderr, "generate: %s\n", e.text);

    strata_text_free(t);
    strata_session_free(s);
    strata_model_free(m);
    return ok ? 0 : 1;
}
