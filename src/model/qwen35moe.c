/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.5 and Qwen3.6 mixtures, architecture `qwen35moe` (other-archs.md):
 *
 *     x = x + delta_net(norm(x, attn_norm))                 every fourth layer: gated attention
 *     x = x + moe(norm(x, post_attention_norm))             with a shared expert
 *     logits = output norm(x, output_norm)
 *
 * Value head h of the delta net works with key head h mod n_k. */
#include "model/single_stream.h"

static bool open_net(struct model *m, struct err *e)
{
    static const struct single_kind kind = {.arch = "qwen35moe", .has_delta = true,
                                            .ffn_norm = "post_attention_norm",
                                            .sections = ROPE_SECTIONS_REQUIRED,
                                            .bind_delta = delta_net_bind};
    return single_open(m, &kind, e);
}

const struct arch arch_qwen35moe = {
    .name = "qwen35moe",
    .open = open_net,
    .close = single_close,
    .experts = single_experts,
    .row_table = single_row_table,
    .limits = single_limits,
    .scratch = single_carve,
    .list_state = single_list_state,
    .restored = single_restored,
    .forward = single_forward,
    .commit = single_commit,
    .draft_input = single_draft_input,
    .draft = single_draft,
};
