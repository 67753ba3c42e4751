/* SPDX-License-Identifier: Apache-2.0 */
/* What a measurement of memory reads is all of it: another bit anywhere is another result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"

static void reading_touches_every_byte(void **state)
{
    (void)state;
    _Alignas(64) uint8_t memory[3 * MEM_READ_STEP] = {0};
    const uint64_t nothing = mem_read(memory, sizeof memory);
    for (size_t i = 0; i < sizeof memory; i++) {
        memory[i] = 1;
        assert_int_not_equal(mem_read(memory, sizeof memory), nothing);
        memory[i] = 0;
    }
    memory[MEM_READ_STEP] = 1; /* behind the end */
    assert_int_equal(mem_read(memory, MEM_READ_STEP), nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reading_touches_every_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
