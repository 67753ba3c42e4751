# SPDX-License-Identifier: Apache-2.0
"""The tensor types that the random models use: all are decoded; Q4_K is made from random blocks, the others encoded.

    decode(type, data, n)   -> float32 array of n values
    encode(type, x)         -> bytes
    TYPES[id]               -> (name, values per block, bytes per block)

`type` is a number of the ggml type enum or a name such as "Q4_K".
"""
import numpy as np

F32 = np.float32

TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144), 30: ("BF16", 1, 2),
}
IDS = {v[0]: k for k, v in TYPES.items()}


def type_id(t):
    return IDS[t] if isinstance(t, str) else int(t)


def _f16(b):
    """n x 2 bytes -> n x 1 float32"""
    return np.ascontiguousarray(b).view("<f2").astype(F32)


def _f(x):
    return np.asarray(x).astype(F32)


def _nib(q):
    """n x k bytes -> n x 2k: low nibbles first, then high nibbles"""
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.int32)


def _q4_0(b):
    return _f(_nib(b[:, 2:]) - 8) * _f16(b[:, :2])


def _q8_0(b):
    return _f(np.ascontiguousarray(b[:, 2:]).view(np.int8)) * _f16(b[:, :2])


def _k4_scales(s):
    """12 bytes -> 8 scales, 8 mins (six bits each)"""
    s = s.astype(np.int32)
    sc = np.concatenate([s[:, 0:4] & 63, (s[:, 8:12] & 15) | ((s[:, 0:4] >> 6) << 4)], axis=1)
    mn = np.concatenate([s[:, 4:8] & 63, (s[:, 8:12] >> 4) | ((s[:, 4:8] >> 6) << 4)], axis=1)
    return sc, mn


def _nib64(qs):
    """n x 128 bytes -> n x 8 x 32: low then high nibbles of each 32 bytes"""
    q = qs.reshape(len(qs), 4, 1, 32) >> np.array([0, 4]).reshape(1, 1, 2, 1)
    return (q & 15).reshape(len(qs), 8, 32).astype(np.int32)


def _q4_K(b):
    sc, mn = _k4_scales(b[:, 4:16])
    dl = (_f16(b[:, 0:2]) * _f(sc))[:, :, None]
    ml = (_f16(b[:, 2:4]) * _f(mn))[:, :, None]
    return (dl * _f(_nib64(b[:, 16:144])) - ml).reshape(len(b), 256)


_DECODERS = {"Q4_0": _q4_0, "Q8_0": _q8_0, "Q4_K": _q4_K}


def decode(t, data, n):
    """n values of type t from data (bytes-like) as float32"""
    name, per_block, block_bytes = TYPES[type_id(t)]
    raw = np.frombuffer(data, np.uint8, count=n // per_block * block_bytes)
    if name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(F32)
    if name in ("F32", "F16"):
        return raw.view("<f4" if name == "F32" else "<f2").astype(F32)
    return np.ascontiguousarray(_DECODERS[name](raw.reshape(-1, block_bytes))).reshape(n)


def _rha(v):
    """round half away from zero (C roundf)"""
    return np.copysign(np.floor(np.abs(v).astype(np.float64) + 0.5), v).astype(np.int64)


def _inv(d):
    with np.errstate(divide="ignore"):
        return np.where(d != 0, F32(1) / d, F32(0)).astype(F32)


def _absmax_signed(x):
    """the value of largest magnitude of each row, the first one on ties"""
    return x[np.arange(len(x)), np.argmax(np.abs(x), axis=1)][:, None]


def _pack(*parts):
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8).reshape(len(p), -1) for p in parts], axis=1).tobytes()


def _e_q8_0(x):
    x = x.reshape(-1, 32)
    d = np.max(np.abs(x), axis=1, keepdims=True) / F32(127)
    q = _rha(x * _inv(d)).astype(np.int8)
    return _pack(d.astype("<f2"), q)


def _trunc8(v, hi):
    return np.minimum(hi, np.trunc(v).astype(np.int64)).astype(np.uint8)


def _e_q4_0(x):
    x = x.reshape(-1, 32)
    d = _absmax_signed(x) / F32(-8)
    q = _trunc8(x * _inv(d) + F32(8.5), 15)
    return _pack(d.astype("<f2"), q[:, :16] | (q[:, 16:] << 4))


def encode(t, x):
    """float32 values -> blocks of Q8_0 or Q4_0; values must be finite and fill whole blocks"""
    return {"Q8_0": _e_q8_0, "Q4_0": _e_q4_0}[t](np.ascontiguousarray(x, F32).reshape(-1))
