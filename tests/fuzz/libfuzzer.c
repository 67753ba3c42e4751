/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a target the name under which libFuzzer looks for it. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_target(data, size);
}
