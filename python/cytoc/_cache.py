# SPDX-License-Identifier: Apache-2.0
"""Compiled libraries, kept from one process to the next.

A folder per library, named by a hash of the model, the options, the CPU and the compiler; in it the library and `ok`, which is written
last and holds the library's size and a checksum. Processes that want the same library at once wait for the one that compiles it. What is
damaged is compiled again. The least recently used libraries go when the whole is larger than CYTOC_CACHE_SIZE (default: 4G).

The folder is CYTOC_CACHE_DIR, else XDG_CACHE_HOME/cytoc/models, else ~/.cache/cytoc/models.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zlib
from typing import Callable, Iterator, Optional

from ._errors import warn

STAMP = "ok"
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.expanduser(os.environ.get("CYTOC_CACHE_DIR") or os.path.join(base, "cytoc", "models"))


def limit() -> int:
    """Bytes; CYTOC_CACHE_SIZE is a number with K, M, G or T behind it."""
    text = os.environ.get("CYTOC_CACHE_SIZE") or "4G"
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    try:
        return int(float(text[:len(text) - len(unit)]) * _UNITS[unit])
    except (ValueError, KeyError):
        raise ValueError("CYTOC_CACHE_SIZE: expected a size such as 500M or 4G, found '%s'" % text) from None


def _checksum(place: str) -> str:
    """Size and CRC of the files of an entry."""
    words = []
    for name in sorted(os.listdir(place)):
        if name not in (STAMP, "lock"):
            crc = size = 0
            with open(os.path.join(place, name), "rb") as f:
                for block in iter(lambda: f.read(1 << 20), b""):
                    crc, size = zlib.crc32(block, crc), size + len(block)
            words.append("%s %d %08x" % (name, size, crc))
    return "\n".join(words)


def _intact(place: str, file: str) -> bool:
    try:
        with open(os.path.join(place, STAMP), encoding="utf-8") as f:
            return os.path.exists(os.path.join(place, file)) and f.read() == _checksum(place)
    except (OSError, UnicodeDecodeError):
        return False


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Held by one process at a time; the system releases it when that dies."""
    import fcntl
    with open(path, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _trim(base: str, keep: str) -> None:
    """Removes what was not used for longest, until the whole fits."""
    entries = []
    for name in os.listdir(base):
        place = os.path.join(base, name)
        try:
            size = sum(os.path.getsize(os.path.join(place, f)) for f in os.listdir(place))
            entries.append((os.path.getmtime(os.path.join(place, STAMP)), size, place))
        except OSError:  # being written, or removed by another process
            continue
    total = sum(size for _, size, _ in entries)
    for _, size, place in sorted(entries):
        if total <= limit():
            return
        if place != keep:
            shutil.rmtree(place, ignore_errors=True)
            total -= size


def _fill(place: str, file: str, build: Callable[[str], None]) -> None:
    """Makes an entry; what a process that was killed has left of it goes."""
    for name in os.listdir(place):
        if name.startswith("new-"):
            shutil.rmtree(os.path.join(place, name))
        elif name != "lock":
            os.remove(os.path.join(place, name))
    work = tempfile.mkdtemp(prefix="new-", dir=place)
    try:
        build(os.path.join(work, file))
        for name in sorted(os.listdir(work)):
            os.replace(os.path.join(work, name), os.path.join(place, name))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    stamp = os.path.join(place, STAMP)
    text = _checksum(place)
    with open(stamp + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(stamp + ".new", stamp)


def library(key: str, file: str, build: Callable[[str], None]) -> Optional[str]:
    """The path of the library of this key, under the name `file`; build(path) makes it where it is missing, and raises OSError where it
    cannot write. None: the folder cannot be used, or is full, which a warning says, and there is no library."""
    base = folder()
    place = os.path.join(base, key)
    limit()  # which may be no size
    if _intact(place, file):
        _touch(os.path.join(place, STAMP))
        return os.path.join(place, file)
    try:
        os.makedirs(place, exist_ok=True)
        with _locked(os.path.join(place, "lock")):
            if not _intact(place, file):  # else another process has made it meanwhile
                _fill(place, file, build)
        _trim(base, place)
    except OSError as e:
        shutil.rmtree(place, ignore_errors=True)
        warn("compiled models are not kept: %s; CYTOC_CACHE_DIR names another folder" % e)
        return None
    return os.path.join(place, file)


def _touch(path: str) -> None:
    """Used now; a folder that may be read alone does as well."""
    with contextlib.suppress(OSError):
        os.utime(path)
