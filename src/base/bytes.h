/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian numbers at any address. */
#ifndef STRATA_BASE_BYTES_H
#define STRATA_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t bytes_u16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t bytes_u32(const void *p)
{
    const uint8_t *b = p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t bytes_u64(const void *p)
{
    return bytes_u32(p) | (uint64_t)bytes_u32((const uint8_t *)p + 4) << 32;
}

static inline void bytes_put_u16(void *p, uint16_t v)
{
    uint8_t *b = p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void bytes_put_u32(void *p, uint32_t v)
{
    bytes_put_u16(p, (uint16_t)v);
    bytes_put_u16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void bytes_put_u64(void *p, uint64_t v)
{
    bytes_put_u32(p, (uint32_t)v);
    bytes_put_u32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

#endif
