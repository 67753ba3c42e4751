/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-30B-A3B, Qwen3-Coder and their larger kin, architecture `qwen3moe` (other-archs.md):
 *
 *     x = x + attention(norm(x, attn_norm))      every layer; the whole head turns; no gate
 *     x = x + moe(norm(x, ffn_norm))             no shared expert
 *     logits = output norm(x, output_norm)
 */
#include "model/single_stream.h"

static bool open_net(struct model *m, struct err *e)
{
    static const struct single_kind kind = {.arch = "qwen3moe", .ffn_norm = "ffn_norm"};
    return single_open(m, &kind, e);
}

const struct arch arch_qwen3moe = {
    .name = "qwen3moe",
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
