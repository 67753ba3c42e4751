/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void err_clear(struct err *e)
{
    e->code = ERR_NONE;
    e->text[0] = 0;
}

bool err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (!e || e->code != ERR_NONE)
        return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    e->code = code;
    return false;
}

const char *err_escape(char *out, unsigned long out_bytes, const void *text, unsigned long n)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = text;
    unsigned long o = 0;
    for (unsigned long i = 0; i < n; i++) {
        bool plain = s[i] >= 0x20 && s[i] <= 0x7e && s[i] != '\\';
        unsigned long need = plain ? 1 : 4;
        if (o + need + 4 > out_bytes) { /* room for "..." and NUL */
            memcpy(out + o, "...", 3);
            o += 3;
            break;
        }
        if (plain) {
            out[o++] = (char)s[i];
        } else {
            out[o++] = '\\';
            out[o++] = 'x';
            out[o++] = hex[s[i] >> 4];
            out[o++] = hex[s[i] & 15];
        }
    }
    out[o] = 0;
    return out;
}
