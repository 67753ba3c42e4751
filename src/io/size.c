/* SPDX-License-Identifier: Apache-2.0 */
#include "io/size.h"

#include <string.h>

bool io_parse_size(const char *text, size_t n, uint64_t *bytes)
{
    static const char letters[] = "KMGT";
    const char *letter = n ? memchr(letters, text[n - 1] & ~0x20, 4) : NULL;
    unsigned shift = letter ? 10 * (unsigned)(letter - letters + 1) : 0;
    n -= letter != NULL;

    uint64_t whole = 0;
    double fraction = 0, unit = 1;
    size_t digits = 0;
    bool after_point = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '.' && !after_point) {
            after_point = true;
            continue;
        }
        unsigned digit = (unsigned char)text[i] - (unsigned)'0';
        if (digit > 9)
            return false;
        digits++;
        if (after_point)
            fraction += digit * (unit /= 10);
        else if (whole > (UINT64_MAX >> 1) / 10 - 1)
            return false;
        else
            whole = whole * 10 + digit;
    }
    if (!digits || whole > (UINT64_MAX >> 1 >> shift))
        return false;
    whole = (whole << shift) + (uint64_t)(fraction * (double)(UINT64_C(1) << shift));
    *bytes = whole;
    return whole <= UINT64_MAX >> 1;
}
