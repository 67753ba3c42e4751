#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes codebooks.c from quant-tables.json (gguf-and-quants.md section 2.5), after checking each
grid against the checksum that the file states.

    /usr/bin/python3 src/quant/gen_codebooks.py > src/quant/codebooks.c
"""

import hashlib
import json
import pathlib

GRIDS = [("iq2xxs", 8), ("iq2xs", 8), ("iq2s", 8), ("iq1s", 8), ("iq3xxs", 4), ("iq3s", 4)]


def rows_of(name, grid):
    """The rows of a grid as tuples of values."""
    levels = grid["levels"]
    digits = " ".join(grid["entries"]).split()
    rows = [tuple(levels[int(digit)] for digit in row) for row in digits]
    data = bytes(value & 255 for row in rows for value in row)
    if len(rows) != grid["count"] or hashlib.sha256(data).hexdigest() != grid["sha256"]:
        raise SystemExit(f"{name}: the entries do not fit the count or checksum of the file")
    return rows


def array(head, numbers, per_line):
    lines = [", ".join(numbers[i : i + per_line]) for i in range(0, len(numbers), per_line)]
    return head + " = {\n    " + ",\n    ".join(lines) + ",\n};\n"


def main():
    tables = json.loads((pathlib.Path(__file__).parent / "quant-tables.json").read_text())
    out = [
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        "/* Written by gen_codebooks.py from quant-tables.json: change those. */\n"
        '#include "quant/codebooks.h"\n'
    ]
    for name, width in GRIDS:
        rows = rows_of(name, tables[name + "_grid"])
        numbers = [
            "0x" + "".join(f"{value & 255:02x}" for value in reversed(row)) for row in rows
        ]
        head = f"const uint{8 * width}_t codebook_{name}[{len(rows)}]"
        out.append(array(head, numbers, 4 if width == 8 else 7))
    out.append(
        array("const uint8_t codebook_ksigns[128]", [str(v) for v in tables["ksigns"]], 16)
    )
    masks = [sum(255 << 8 * j for j in range(8) if v >> j & 1) for v in tables["ksigns"]]
    head = "const uint64_t codebook_ksign_masks[128]"
    out.append(array(head, [f"0x{mask:016x}" for mask in masks], 4))
    for name in ("iq4nl", "mxfp4"):
        values = [str(v) for v in tables["kvalues_" + name]]
        out.append(array(f"const int8_t codebook_{name}[16]", values, 16))
    print("\n".join(out), end="")


main()
