/* SPDX-License-Identifier: Apache-2.0 */
/* Proves how a name of an instruction set becomes a choice, and what an unknown one says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "cpu/isa.h"

static void auto_is_the_best_that_the_machine_has(void **state)
{
    enum cpu_isa isa = CPU_ISAS;
    struct err e = {0};
    assert_true(cpu_isa_parse("auto", &isa, &e));
    assert_int_equal(isa, cpu_isa_best());
    assert_true(cpu_isa_available(isa));
    assert_true(cpu_isa_available(CPU_ISA_C));
}

static void names_are_what_the_machine_has_or_an_error(void **state)
{
    for (enum cpu_isa wanted = 0; wanted < CPU_ISAS; wanted++) {
        enum cpu_isa isa = CPU_ISAS;
        struct err e = {0};
        const char *name = cpu_isa_name(wanted);
        enum cpu_isa plain = wanted == CPU_ISA_AVX512 ? CPU_ISA_AVX512_PLAIN : CPU_ISA_NEON_PLAIN;
        bool has_plain = wanted == CPU_ISA_AVX512 || wanted == CPU_ISA_NEON;
        bool fallback =
            has_plain && !cpu_isa_available(wanted) && cpu_isa_available(plain);
        if (cpu_isa_available(wanted) || fallback) {
            assert_true(cpu_isa_parse(name, &isa, &e));
            assert_int_equal(isa, fallback ? plain : wanted);
        } else {
            assert_false(cpu_isa_parse(name, &isa, &e));
            assert_int_equal(e.code, ERR_UNSUPPORTED);
            assert_non_null(strstr(e.text, name));
            assert_non_null(strstr(e.text, "it has c"));
        }
    }
}

static void an_unknown_name_is_a_usage_error_that_shows_it(void **state)
{
    enum cpu_isa isa;
    struct err e = {0};
    assert_false(cpu_isa_parse("sse9\n", &isa, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_non_null(strstr(e.text, "\"sse9\\x0a\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_the_best_that_the_machine_has),
        cmocka_unit_test(names_are_what_the_machine_has_or_an_error),
        cmocka_unit_test(an_unknown_name_is_a_usage_error_that_shows_it),
    };
    return cmocka_run_group_tests_name("isa", tests, NULL, NULL);
}
