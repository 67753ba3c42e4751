/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-30B-A3B, Qwen3-Coder and their larger kin, architecture `qwen3moe` (other-archs.md):
 *
 *     x = x + attention(norm(x, attn_norm))      every layer; the whole head turns; no gate
 *     x = x + moe(norm(x, ffn_norm))             no shared expert
 *     logits = output norm(x, output_norm)
 */
#include "model/single_stream.h"

static const struct single_kind kind = {
    .ffn_norm = "ffn_norm",
};

const struct arch arch_qwen3moe = {.name = "qwen3moe", .does = &single_stream, .kind = &kind};
