/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.5 and Qwen3.6 mixtures, architecture `qwen35moe` (other-archs.md):
 *
 *     x = x + delta_net(norm(x, attn_norm))                 every fourth layer: gated attention
 *     x = x + moe(norm(x, post_attention_norm))             with a shared expert
 *     logits = output norm(x, output_norm)
 *
 * Value head h of the delta net works with key head h mod n_k. */
#include "model/single_stream.h"

static const struct single_kind kind = {
    .has_delta = true,
    .ffn_norm = "post_attention_norm",
    .sections = ROPE_SECTIONS_REQUIRED,
    .bind_delta = delta_net_bind,
};

const struct arch arch_qwen35moe = {.name = "qwen35moe", .does = &single_stream, .kind = &kind};
