/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool cache_path(const char *name, bool make, char *out, size_t room)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool is_own = cache && *cache == '/';
    if (!is_own && (!home || *home != '/'))
        return false;
    const char *base = is_own ? cache : home, *below = is_own ? "" : "/.cache";
    int n = snprintf(out, room, "%s%s/strata/%s", base, below, name);
    if (n < 0 || (size_t)n >= room)
        return false;
    size_t folder = strlen(base) + strlen(below), ends[] = {folder, folder + strlen("/strata")};
    for (int i = 0; make && i < 2; i++) {
        char slash = out[ends[i]];
        out[ends[i]] = 0;
        mkdir(out, 0700);
        out[ends[i]] = slash;
    }
    return true;
}
