#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_table.c from the class table of the tokenizer fixture (Unicode 15.1).

    src/text/gen_unicode.py tests/data/fixtures/tokenizer/unicode-classes.tsv > src/text/unicode_table.c
"""
import sys

NAMES = {"L": "LETTER", "M": "MARK", "N": "NUMBER", "W": "SPACE"}


def main():
    ranges = []
    for line in open(sys.argv[1], encoding="ascii"):
        if line.startswith("#"):
            continue
        first, last, name = line.split()
        ranges.append((int(first, 16), int(last, 16), NAMES[name]))
    assert all(a[1] < b[0] for a, b in zip(ranges, ranges[1:])), "ranges must rise"
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by gen_unicode.py from unicode-classes.tsv; do not edit. */")
    print('#include "text/unicode.h"\n')
    print(f"const size_t unicode_ranges_count = {len(ranges)};")
    print("const struct unicode_range unicode_ranges[] = {")
    for first, last, name in ranges:
        print(f"    {{0x{first:05x}, 0x{last:05x}, UNICODE_{name}}},")
    print("};")


main()
