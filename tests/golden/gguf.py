# SPDX-License-Identifier: Apache-2.0
"""GGUF version 3 reader and writer in plain numpy.

Reading
    g = Gguf("model.gguf")            # maps the file, parses the header
    g.kv["general.architecture"]      # values as Python / numpy objects
    g.tensors["output.weight"]        # Tensor: name, shape (GGUF order), type, offset, nbytes
    g.raw("output.weight")            # bytes as a read-only uint8 view of the file
    g.array("output.weight")          # numpy array, C order = reversed GGUF shape

Writing
    w = GgufWriter("out.gguf")
    w.add("general.architecture", "qwen4exp")        # type is chosen from the Python value
    w.add("x.count", 4, "u32")                       # or given
    w.add("x.list", [1, 2, 3], "arr:u32")
    w.tensor("a.weight", array)                      # F32 / F16 / integer arrays as they are
    w.tensor("b.weight", array, "BF16")              # float array, converted
    w.tensor_raw("c.weight", (256, 8), "Q8_0", data) # any type: shape in GGUF order + raw bytes
    w.tensor_hole("d.weight", (4096, 4096), "F16")   # zeros that take no room on the drive
    w.write()                                        # or w.write_set("stem", 3): stem-00001-of-00003.gguf, ..

Shapes.  A GGUF shape lists the fastest-running dimension first.  A matrix
that maps n_in values to n_out values is stored as GGUF shape (n_in, n_out);
`array` gives it as numpy shape (n_out, n_in), so `y = W @ x`.
"""

import struct

import numpy as np

MAGIC = 0x46554747  # "GGUF", little endian

# value type codes of metadata
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
_KINDS = {
    "u8": U8, "i8": I8, "u16": U16, "i16": I16, "u32": U32, "i32": I32,
    "f32": F32, "bool": BOOL, "str": STR, "u64": U64, "i64": I64, "f64": F64,
}
_KIND_NAME = {code: name for name, code in _KINDS.items()}
_DTYPE = {
    U8: "<u1", I8: "<i1", U16: "<u2", I16: "<i2", U32: "<u4", I32: "<i4",
    F32: "<f4", BOOL: "<u1", U64: "<u8", I64: "<i8", F64: "<f8",
}

# tensor types: name -> (code, elements per block, bytes per block)
TENSOR_TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 36),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82), "IQ4_XS": (23, 256, 136),
    "I8": (24, 1, 1), "I16": (25, 1, 2), "I32": (26, 1, 4), "I64": (27, 1, 8),
    "F64": (28, 1, 8), "IQ1_M": (29, 256, 56), "BF16": (30, 1, 2),
    "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18),
}
_TYPE_NAME = {v[0]: k for k, v in TENSOR_TYPES.items()}
_PLAIN = {
    "F32": "<f4", "F16": "<f2", "F64": "<f8",
    "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
}
_FROM_DTYPE = {
    "float32": "F32", "float16": "F16", "float64": "F64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
}


def tensor_bytes(shape, kind):
    """Size in bytes of a tensor of GGUF shape `shape` and type name `kind`."""
    _, per_block, size = TENSOR_TYPES[kind]
    if shape and shape[0] % per_block:
        raise ValueError(f"{kind}: row length {shape[0]} is not a multiple of {per_block}")
    n = 1
    for d in shape:
        n *= int(d)
    return n // per_block * size


def bf16_to_f32(u16):
    return (np.asarray(u16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x):
    """Round to nearest, ties to even; NaN stays NaN (quiet)."""
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    half = 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))
    out = ((bits + half) >> np.uint64(16)).astype(np.uint16)
    nan = np.isnan(x)
    if nan.any():
        out[nan] = ((bits[nan] >> np.uint64(16)) | np.uint64(0x40)).astype(np.uint16)
    return out


class Tensor:
    """One directory entry. `offset` is absolute in the file."""

    def __init__(self, name, shape, kind, offset):
        self.name, self.shape, self.type, self.offset = name, tuple(shape), kind, offset
        self.nbytes = tensor_bytes(self.shape, kind) if kind in TENSOR_TYPES else None

    def __repr__(self):
        return f"{self.name} {self.type} {list(self.shape)} @{self.offset}"


class _Cursor:
    def __init__(self, buf):
        self.buf, self.at = buf, 0

    def take(self, n):
        if self.at + n > len(self.buf):
            raise ValueError("file ends inside the header")
        out = self.buf[self.at:self.at + n]
        self.at += n
        return out

    def num(self, fmt):
        return struct.unpack("<" + fmt, self.take(struct.calcsize(fmt)).tobytes())[0]

    def text(self):
        n = self.num("Q")
        return self.take(n).tobytes()

    def value(self, kind):
        if kind == STR:
            return _decode(self.text())
        if kind == ARR:
            inner, count = self.num("I"), self.num("Q")
            if inner in (STR, ARR):
                return [self.value(inner) for _ in range(count)]
            dt = np.dtype(_DTYPE[inner])
            arr = np.frombuffer(self.take(count * dt.itemsize).tobytes(), dt)
            return arr.astype(bool) if inner == BOOL else arr
        if kind not in _DTYPE:
            raise ValueError(f"unknown metadata type {kind}")
        dt = np.dtype(_DTYPE[kind])
        v = np.frombuffer(self.take(dt.itemsize).tobytes(), dt)[0]
        if kind == BOOL:
            return bool(v)
        return float(v) if kind in (F32, F64) else int(v)


def _decode(b):
    # metadata strings are byte strings; keep the bytes of anything that is not UTF-8
    return b.decode("utf-8", "surrogateescape")


class Gguf:
    def __init__(self, path):
        self.path = str(path)
        self.map = np.memmap(self.path, np.uint8, "r")
        c = _Cursor(self.map)
        if c.num("I") != MAGIC:
            raise ValueError(f"{path}: not a GGUF file")
        self.version = c.num("I")
        if self.version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {self.version} is not supported")
        n_tensors, n_kv = c.num("Q"), c.num("Q")
        self.kv, self.kv_type = {}, {}
        for _ in range(n_kv):
            key = _decode(c.text())
            kind = c.num("I")
            if kind == ARR:
                peek = c.at
                inner = c.num("I")
                c.at = peek
                self.kv_type[key] = "arr:" + _KIND_NAME.get(inner, "arr")
            else:
                self.kv_type[key] = _KIND_NAME.get(kind, str(kind))
            self.kv[key] = c.value(kind)
        entries = []
        for _ in range(n_tensors):
            name = _decode(c.text())
            dims = [c.num("Q") for _ in range(c.num("I"))]
            kind = c.num("I")
            entries.append((name, dims, _TYPE_NAME.get(kind, f"type{kind}"), c.num("Q")))
        self.alignment = int(self.kv.get("general.alignment", 32))
        self.data_start = -(-c.at // self.alignment) * self.alignment
        self.tensors = {}
        for name, dims, kind, off in entries:
            self.tensors[name] = Tensor(name, dims, kind, self.data_start + off)

    @property
    def arch(self):
        return self.kv["general.architecture"]

    def get(self, key, default=None):
        """Metadata value of KEY or else of ARCH.KEY."""
        if key in self.kv:
            return self.kv[key]
        return self.kv.get(f"{self.kv.get('general.architecture')}.{key}", default)

    def __contains__(self, name):
        return name in self.tensors

    def raw(self, name):
        t = self.tensors[name]
        if t.nbytes is None:
            raise ValueError(f"{name}: unknown tensor type {t.type}")
        if t.offset + t.nbytes > len(self.map):
            raise ValueError(f"{name}: data runs past the end of the file")
        return self.map[t.offset:t.offset + t.nbytes]

    def array(self, name, dtype=np.float32):
        """Tensor as a numpy array (reversed shape); quantized types are decoded by quants.py.

        Float and decoded tensors come as `dtype` (None: as stored; BF16 and decoded ones then as float32)."""
        t = self.tensors[name]
        raw = self.raw(name)
        if t.type == "BF16":
            a = bf16_to_f32(raw.view("<u2"))
        elif t.type in _PLAIN:
            a = raw.view(_PLAIN[t.type])
        else:
            import quants                                    # beside this file
            a = quants.decode(t.type, bytes(raw), int(np.prod(t.shape)))
        a = a.reshape(t.shape[::-1])
        if dtype is not None and a.dtype.kind == "f":
            a = a.astype(dtype)
        return a


def _guess(v):
    if isinstance(v, (bool, np.bool_)):
        return "bool"
    if isinstance(v, (int, np.integer)):
        return "u32" if 0 <= int(v) < 1 << 32 else "i64"
    if isinstance(v, (float, np.floating)):
        return "f32"
    if isinstance(v, (str, bytes)):
        return "str"
    if isinstance(v, np.ndarray):
        by = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32",
              "int32": "i32", "uint64": "u64", "int64": "i64", "float32": "f32",
              "float64": "f64", "bool": "bool"}
        return "arr:" + by[v.dtype.name]
    if isinstance(v, (list, tuple)):
        return "arr:" + (_guess(v[0]) if v else "i32")
    raise TypeError(f"no GGUF type for {type(v)}")


def _pack_text(s):
    b = s if isinstance(s, bytes) else s.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(b)) + b


def _pack_value(v, kind):
    if kind.startswith("arr:"):
        inner = kind[4:]
        head = struct.pack("<IQ", _KINDS[inner], len(v))
        if inner == "str":
            return head + b"".join(_pack_text(s) for s in v)
        return head + np.asarray(v).astype(_DTYPE[_KINDS[inner]]).tobytes()
    if kind == "str":
        return _pack_text(v)
    return np.asarray(v).astype(_DTYPE[_KINDS[kind]]).tobytes()


class _Hole:
    """So many zeros that are not written."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


class GgufWriter:
    def __init__(self, path, alignment=32):
        self.path, self.alignment = str(path), alignment
        self.kv, self.items = {}, {}
        if alignment != 32:
            self.add("general.alignment", alignment, "u32")

    def add(self, key, value, kind=None):
        self.kv[key] = (value, kind or _guess(value))

    def add_all(self, mapping):
        for k, v in mapping.items():
            self.add(k, v)

    def tensor(self, name, array, kind=None):
        a = np.asarray(array)
        shape = a.shape[::-1]
        if kind is None:
            kind = _FROM_DTYPE[a.dtype.name]
        if kind == "BF16":
            data = f32_to_bf16(a)
        elif kind in _PLAIN:
            data = np.ascontiguousarray(a).astype(_PLAIN[kind])
        else:
            raise ValueError(f"{kind}: quantise first and use tensor_raw()")
        self.tensor_raw(name, shape, kind, data)

    def tensor_raw(self, name, shape, kind, data):
        """Any type: `shape` in GGUF order, `data` bytes or a contiguous array."""
        if name in self.items:
            raise ValueError(f"{name}: given twice")
        shape = tuple(int(d) for d in shape)
        if not 1 <= len(shape) <= 4:
            raise ValueError(f"{name}: 1 to 4 dimensions, got {len(shape)}")
        data = np.ascontiguousarray(data) if isinstance(data, np.ndarray) else data
        view = data.view(np.uint8).reshape(-1) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        want = tensor_bytes(shape, kind)
        if len(view) != want:
            raise ValueError(f"{name}: {kind} {shape} takes {want} bytes, got {len(view)}")
        self.items[name] = (shape, TENSOR_TYPES[kind][0], view)

    def tensor_hole(self, name, shape, kind):
        self.items[name] = (tuple(shape), TENSOR_TYPES[kind][0], _Hole(tensor_bytes(shape, kind)))

    def write(self):
        self._write(self.path, self.kv, self.items)

    def write_set(self, stem, parts):
        """A split set, the tensors in equal numbers; returns the paths."""
        names, paths = list(self.items), []
        for i in range(parts):
            kv = {"split.no": (i, "u16"), "split.count": (parts, "u16"), "split.tensors.count": (len(names), "i32")}
            if i == 0:
                kv.update(self.kv)
            elif self.alignment != 32:
                kv["general.alignment"] = (self.alignment, "u32")
            own = names[len(names) * i // parts:len(names) * (i + 1) // parts]
            paths.append("%s-%05d-of-%05d.gguf" % (stem, i + 1, parts))
            self._write(paths[-1], kv, {name: self.items[name] for name in own})
        return paths

    def _write(self, path, kv, items):
        pad = lambda n: -(-n // self.alignment) * self.alignment
        head = [struct.pack("<IIQQ", MAGIC, 3, len(items), len(kv))]
        for key, (value, kind) in kv.items():
            code = ARR if kind.startswith("arr:") else _KINDS[kind]
            head.append(_pack_text(key) + struct.pack("<I", code) + _pack_value(value, kind))
        at = 0
        for name, (shape, code, view) in items.items():
            head.append(_pack_text(name) + struct.pack("<I", len(shape)))
            head.append(struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", code, at))
            at = pad(at + len(view))
        blob = b"".join(head)
        with open(path, "wb") as f:
            f.write(blob.ljust(pad(len(blob)), b"\0"))
            for shape, code, view in items.values():
                end = f.tell() + pad(len(view))
                if not isinstance(view, _Hole):
                    f.write(view.tobytes())
                f.seek(end)
            f.truncate()


def copy(src, dst, change_kv=None, drop=(), replace=None):
    """Copy a file: change or remove (value None) metadata, drop or replace tensors.

    replace: name -> (shape, type name, bytes)."""
    g, w = Gguf(src), GgufWriter(dst)
    change_kv = dict(change_kv or {})
    for k, v in g.kv.items():
        if k in change_kv:
            v = change_kv.pop(k)
            if v is None:
                continue
        w.add(k, v, g.kv_type[k])
    for k, v in change_kv.items():
        if v is not None:
            w.add(k, v)
    w.alignment = g.alignment
    for name, t in g.tensors.items():
        if name in drop:
            continue
        shape, kind, data = (replace or {}).get(name, (t.shape, t.type, None))
        w.tensor_raw(name, shape, kind, g.raw(name) if data is None else data)
    w.write()
