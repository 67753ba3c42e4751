#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that every #include of the sources points down in the picture of README.md, "How the source is laid out".
# The table below is that picture; a line is a folder and the folders whose headers it may use besides its own.
set -u
cd "$(dirname "$0")/.."

find src include examples -name '*.[ch]' | sort | xargs awk '
BEGIN {
    allow("base",    "")
    allow("gguf",    "base")
    allow("synth",   "base gguf")
    allow("quant",   "base")
    allow("backend", "base gguf quant")
    allow("io",      "base")
    allow("cpu",     "base gguf quant backend")
    allow("gpu",     "base gguf quant backend")
    allow("stream",  "base gguf io")
    allow("model",   "base gguf quant backend")
    allow("text",    "base gguf")
    allow("session", "base gguf quant backend io cpu gpu stream model text strata.h")
    allow("cli",     "base gguf quant backend io cpu gpu stream model text session synth strata.h")
    allow("include", "")    # the public header stands alone
    allow("examples", "strata.h")
}

function allow(folder, others,   names, i, n) {
    known[folder] = 1
    may[folder, folder] = 1
    n = split(others, names, " ")
    for (i = 1; i <= n; i++) may[folder, names[i]] = 1
}

FNR == 1 {
    split(FILENAME, path, "/")
    folder = path[1] == "src" ? path[2] : path[1]
    if (!(folder in known)) report("the folder " folder " is not in the table of tests/layers.sh")
}

# A name in quotes is ours; in angle brackets only strata.h is.
/^[ \t]*#[ \t]*include/ {
    if (match($0, /"[^"]*"/)) name = substr($0, RSTART + 1, RLENGTH - 2)
    else if ($0 ~ /<strata\.h>/) name = "strata.h"
    else next
    slash = index(name, "/")
    target = slash ? substr(name, 1, slash - 1) : name
    includes++
    if (name ~ /\.\./) report("\"" name "\" leaves its folder; includes are written from src")
    else if (!((folder, target) in may)) report(folder " may not include \"" name "\"")
}

function report(what) {
    print FILENAME ":" FNR ": " what
    bad++
}

END {
    if (!includes) { print "layers: no include line was found"; bad++ }
    exit bad > 0
}'
