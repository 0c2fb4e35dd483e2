"""Damaged and forged files, and limits on what reading them may cost."""

from __future__ import annotations

import io
import json
import math
import resource
import struct
import time
import warnings
import zipfile
from contextlib import contextmanager

import numpy as np


@contextmanager
def limited(seconds):
    """The block may take so much of the processor; other processes do not count."""
    began = time.process_time()
    yield
    spent = time.process_time() - began
    assert spent < seconds, f"{spent:.1f} s of the processor"


@contextmanager
def memory(limit):
    """An allocation beyond the limit fails at once instead of filling the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/status") as status:
        now = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def mutated(content, rng):
    """One to three random damages."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        start = int(rng.integers(0, max(1, len(data))))
        stop = start + int(rng.integers(1, 64))
        kind = rng.integers(0, 8)
        if kind == 0:
            data[start : start + 1] = (
                bytes([data[start] ^ (1 << int(rng.integers(0, 8)))]) if data else b""
            )
        elif kind == 1:
            data[start:stop] = rng.bytes(len(data[start:stop]))
        elif kind == 2:
            data[start:start] = rng.bytes(int(rng.integers(1, 64)))
        elif kind == 3:
            del data[start:stop]
        elif kind == 4:
            del data[start:]
        elif kind == 5:
            data[start:start] = data[start:stop]
        elif kind == 6:  # a length somewhere, forged
            data[start : start + 4] = struct.pack(
                "<I", int(rng.choice([0, 1, 2**16, 2**31 - 1, 2**32 - 1]))
            )
        else:  # a digit somewhere, forged: shapes and JSON are text
            digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
            if digits:
                data[int(rng.choice(digits))] = ord(str(rng.integers(0, 10)))
    return bytes(data)


def rewritten(saved, change):
    """The archive with its entries changed by `change(dict name -> bytes)`, well-formed and with
    right checksums.
    """
    with zipfile.ZipFile(saved) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, value in entries.items():
            archive.writestr(name, value)
    return out.getvalue()


def npy(array, **options):
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def forged_header(text):
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def with_meta(change):
    def apply(entries):
        meta = json.loads(str(np.load(io.BytesIO(entries["meta.npy"]))))
        entries["meta.npy"] = npy(np.array(json.dumps(change(meta))))

    return apply


VALUES = (0, 1, -1, 2, 3, 10**6, 2**31, 2**63, 10**30, 0.5, math.nan, math.inf, -math.inf, "", "a")
VALUES = (*VALUES, "given", None, True, False, [], {}, [1], {"array": "nowhere"}, [[]] * 50)


def places(tree, path=()):
    """All places in a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list) and value:
            yield from places(value, (*path, key))


def with_a_lie_in_words(meta, rng):
    """One value of the text replaced or left out."""
    every = [place for place in places(meta) if place[0] not in ("format", "versions")]
    *path, last = every[rng.integers(len(every))]
    node = meta
    for key in path:
        node = node[key]
    if rng.integers(8) == 0:
        del node[last]
    else:
        node[last] = VALUES[rng.integers(len(VALUES))]
    return f"{[*path, last]}: {node}"


def with_a_lie_in_numbers(arrays, rng):
    """One array of another shape or type, with another number, or left out."""
    name = sorted(arrays)[rng.integers(len(arrays))]
    array, kind = arrays[name], rng.integers(8)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[name] = array.astype(["float64", "int64", "int32", "bool", "U4"][rng.integers(5)])
    elif kind == 2:
        arrays[name] = np.stack([array, array])
    elif kind == 3:
        arrays[name] = array.reshape(-1)[: array.size // 2]
    elif kind == 4:
        arrays[f"{name}/more"] = array
    else:
        changed = np.array(array, ndmin=1)
        wrong = [np.nan, np.inf] if array.dtype.kind == "f" else [-1, 2**31 - 1, 2**40, 7]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            value = np.array(wrong[rng.integers(len(wrong))]).astype(array.dtype)
        if changed.size:
            changed.flat[rng.integers(changed.size)] = value
        arrays[name] = changed.reshape(array.shape)
    return f"{name} is {arrays.get(name)} by {kind}"
