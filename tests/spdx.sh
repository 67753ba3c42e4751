#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that every source file and script says its licence within its first three lines. Data and prose are exempt.
set -u
cd "$(dirname "$0")/.."

# With git: what is tracked. From an archive without git: what is there.
files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files
    else
        find . -type f -not -path './.git/*' -not -path './build*/*' | sed 's#^\./##'
    fi
}

exempt='^(LICENSE|NOTICE|\.gitignore|\.clang-format|models/|tests/data/|tests/fuzz/corpus/)|\.(md|svg|gguf|bin|npy|npz|json)$'

files | grep -v -E "$exempt" | {
    bad=0
    seen=0
    while read -r file; do
        [ -f "$file" ] || continue
        seen=$((seen + 1))
        head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' && continue
        echo "$file: no SPDX line in its first three lines"
        bad=$((bad + 1))
    done
    [ "$seen" -gt 0 ] || { echo 'spdx: no file was found'; bad=1; }
    [ "$bad" = 0 ]
}
