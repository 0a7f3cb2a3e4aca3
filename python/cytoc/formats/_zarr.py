# SPDX-License-Identifier: Apache-2.0
"""OME-Zarr by zarr: images of versions 0.4 and 0.5, plates, plain arrays; what is written is 0.4, which
everything reads, without the library."""
from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import posixpath
import shutil
from typing import Any, Dict, List, Sequence, Set, Tuple

import numpy as np

from ._base import Array, FormatError, Image, Scale, Writer, fsync, guessed_axes, library

CHUNK = 1 << 20    # voxels of a chunk, about
ROWS, MOST_ROWS = 16, 32  # along Z
_NAME = json.dumps("\0").encode()
BESIDE = ".part"  # behind the name of a chunk that is being written


def _open(path: str) -> Any:
    zarr = library("zarr", "volumes", path)
    try:
        return zarr.open(path, mode="r")
    except (FileNotFoundError, KeyError, ValueError, TypeError) as e:
        raise FormatError("'%s': no Zarr array or group that can be read: %s" % (path, str(e).splitlines()[0] if str(e) else e)) from None


def _attributes(node: Any) -> Dict[str, Any]:
    found = dict(node.attrs)
    return {**found, **found.get("ome", {})}  # version 0.5 has them one level down


def _is_group(node: Any) -> bool:
    return not hasattr(node, "chunks")


def images_in(path: str) -> List[str]:
    """The images of a store: itself, the fields of a plate's wells, or the series of a converted file."""
    node = _open(path)
    about = _attributes(node) if _is_group(node) else {}
    if "plate" in about:
        found = []
        for well in about["plate"].get("wells", []):
            fields = _attributes(_open(os.path.join(path, well["path"]))).get("well", {}).get("images", [])
            found += [os.path.join(path, well["path"], field["path"]) for field in fields]
        return found
    if "bioformats2raw.layout" in about and "multiscales" not in about:
        return [os.path.join(path, name) for name in sorted((n for n in os.listdir(path) if n.isdigit()), key=int)]
    return [path]


class _ZarrImage(Image):
    def __init__(self, path: str, array: Any, axes: str, scale: Scale) -> None:
        super().__init__(path, array.shape, array.dtype, axes, scale)
        self.array = array

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        try:
            return np.asarray(self.array[tuple(slice(a, b) for a, b in zip(start, stop))])
        except Exception as e:  # of codecs, and of zarr's many versions
            raise FormatError("'%s': a chunk cannot be read: %s" % (self.path, e)) from None


def open_zarr(path: str) -> Image:
    node = _open(path)
    if not _is_group(node):
        return _ZarrImage(path, node, guessed_axes(node.shape), {})
    scales = _attributes(node).get("multiscales")
    if not scales:
        raise FormatError("'%s' is a Zarr group without an image (no 'multiscales'); give the path of an array or image in it" % path)
    dataset = scales[0]["datasets"][0]
    try:
        array = node[dataset["path"]]
    except KeyError:
        raise FormatError("'%s': its array '%s' is missing" % (path, dataset["path"])) from None
    given = scales[0].get("axes") or list(guessed_axes(array.shape))
    axes = "".join((a["name"] if isinstance(a, dict) else a).upper() for a in given)
    sizes: List[float] = next((t["scale"] for t in dataset.get("coordinateTransformations", []) if t.get("type") == "scale"), [])
    scale = {letter: (float(size), a.get("unit", "")) for letter, size, a in zip(axes, sizes, given)
             if isinstance(a, dict) and letter != "C"}
    return _ZarrImage(path, array, axes, scale)


def chunk_of(axes: str, shape: Sequence[int]) -> Dict[str, int]:
    """Sizes of chunks, some 2^20 voxels: squares of 16 planes, or up to 32 planes where these are smaller."""
    if "X" not in axes:
        return {"C": 1, "T": CHUNK}
    side = int((CHUNK // (ROWS if "Z" in axes else 1)) ** 0.5)
    sizes = dict(zip(axes, shape))
    plane = max(min(side, sizes["X"]) * min(side, sizes.get("Y", 1)), 1)
    return {"T": 1, "C": 1, "Z": min(max(CHUNK // plane, ROWS), MOST_ROWS), "Y": side, "X": side}


class _ZarrWriter(Writer):
    """Writes the files of chunks (version 2) itself, as zarr takes some 5 ms of both CPUs for each. A part that covers a whole chunk
    is encoded and written; otherwise the chunk is read first, and written with the part in it. As with zarr, a chunk of zeros has no
    file. A file is replaced as a whole, so that it is never cut; sync() makes sure of those that were written since the last one."""

    def __init__(self, path: str, shape: Sequence[int], dtype: Any, axes: str, chunks: Sequence[int], codec: Any, files: Sequence[str]) -> None:
        super().__init__(path, shape, dtype, axes)
        self.chunks, self.codec = tuple(chunks), codec
        self.unsafe = set(files)  # which may not be on the disk yet
        self.folders = {os.path.dirname(f) for f in files}  # the same of their names in folders

    def write(self, start: Sequence[int], part: Array) -> None:
        stop = [a + n for a, n in zip(start, part.shape)]
        for place in itertools.product(*(range(a // c, -(-b // c)) for a, b, c in zip(start, stop, self.chunks))):
            begin = [p * c for p, c in zip(place, self.chunks)]
            low = [max(a, b) for a, b in zip(start, begin)]
            high = [min(a, b + c) for a, b, c in zip(stop, begin, self.chunks)]
            mine = part[tuple(slice(a - o, b - o) for a, b, o in zip(low, high, start))]
            whole = all(a == b and h == min(b + c, n) for a, b, h, c, n in zip(low, begin, high, self.chunks, self.shape))
            self._write_chunk(place, tuple(slice(a - o, b - o) for a, b, o in zip(low, high, begin)), mine, whole)

    def _write_chunk(self, place: Sequence[int], inside: Tuple[slice, ...], values: Array, whole: bool) -> None:
        path = os.path.join(self.path, "0", *map(str, place))
        if whole and values.shape == self.chunks:
            chunk = np.ascontiguousarray(values, self.dtype)
        else:
            chunk = np.zeros(self.chunks, self.dtype) if whole else self._read_chunk(path)
            chunk[inside] = values
        self.folders.add(os.path.dirname(path))
        if chunk.any():
            self._replace(path, self.codec.encode(chunk), not whole)
            return
        self.unsafe.discard(path)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def _replace(self, path: str, data: Any, keeps: bool) -> None:
        """keeps: the file has rows in it that were there before."""
        beside = path + BESIDE
        try:
            f = open(beside, "wb", buffering=0)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            f = open(beside, "wb", buffering=0)
        with f:
            done, view = 0, memoryview(data)
            while done < len(view):
                done += f.write(view[done:])
            if keeps and path not in self.unsafe:
                os.fsync(f.fileno())  # it takes the place of what is on the disk for certain
            else:
                self.unsafe.add(path)
        os.replace(beside, path)

    def sync(self) -> None:
        for path in self.unsafe:
            fsync(path)
        for folder in self._with_parents():
            fsync(folder)
        self.unsafe.clear()
        self.folders.clear()

    def _with_parents(self) -> Set[str]:
        """Folders whose entries are new, and those above them in the store."""
        found = set()
        for folder in self.folders:
            while folder not in found and len(folder) >= len(self.path) and os.path.isdir(folder):
                found.add(folder)
                folder = os.path.dirname(folder)
        return found

    def _read_chunk(self, path: str) -> Array:
        try:
            with open(path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            return np.zeros(self.chunks, self.dtype)
        try:
            return np.frombuffer(self.codec.decode(data), self.dtype).reshape(self.chunks).copy()
        except (RuntimeError, ValueError) as e:
            raise FormatError("'%s' is damaged (%s); run without --resume to begin anew" % (path, e)) from None


@functools.lru_cache(16)
def _metadata(shape: Tuple[int, ...], chunks: Tuple[int, ...], dtype: str, axes: str, scale: Tuple[Tuple[float, str], ...],
              compressor: str) -> Tuple[Tuple[str, bytes], ...]:
    """The files that say what a store is, and what they have in them, with _NAME where its name goes: made once for stores that are alike."""
    kinds = {"T": "time", "C": "channel"}
    described: List[Dict[str, str]] = []
    for letter, (_, unit) in zip(axes, scale):
        described.append({"name": letter.lower(), "type": kinds.get(letter, "space"), **({"unit": unit} if unit else {})})
    about: Dict[str, Dict[str, Any]] = {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": {"multiscales": [{
            "version": "0.4", "name": json.loads(_NAME), "axes": described,
            "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [size for size, _ in scale]}]}]}]},
        "0/.zattrs": {},
        "0/.zarray": {
            "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": 0, "order": "C", "filters": None,
            "dimension_separator": "/", "compressor": json.loads(compressor)}}
    return tuple((file, json.dumps(value, indent=1).encode()) for file, value in about.items())


def _put(path: str, files: Sequence[Tuple[str, bytes]]) -> List[str]:
    os.makedirs(os.path.join(path, "0"))
    names = []
    for name, text in files:
        names.append(os.path.join(path, name))
        with open(names[-1], "wb") as f:
            f.write(text)
    return names


def _go_on(path: str, shape: Sequence[int], dtype: Any, axes: str, codecs: Any) -> Writer:
    """With a store that a killed run has left."""
    about = os.path.join(path, "0", ".zarray")
    try:
        with open(about, encoding="utf-8") as f:
            there = json.load(f)
        chunks, codec = there["chunks"], codecs.get_codec(there["compressor"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise FormatError("'%s' is damaged (%s); run without --resume to begin anew" % (about, e)) from None
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith(BESIDE):
                os.remove(os.path.join(folder, name))
    return _ZarrWriter(path, shape, dtype, axes, chunks, codec, [])


def create_zarr(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    codecs = library("numcodecs", "volumes", path)  # zarr has it
    dtype = np.dtype(dtype).newbyteorder("<")
    if extra.get("goes_on"):
        return _go_on(path, shape, dtype, axes, codecs)
    chunk = {**chunk_of(axes, shape), **extra.get("rows", {})}
    codec = codecs.Blosc("lz4", 5, codecs.Blosc.BITSHUFFLE if dtype.itemsize == 1 else codecs.Blosc.SHUFFLE)
    chunks = tuple(max(min(chunk[a], n), 1) for a, n in zip(axes, shape))
    if os.path.isdir(path):
        shutil.rmtree(path)
    name = json.dumps(extra.get("name", posixpath.basename(path))).encode()
    files = _metadata(tuple(map(int, shape)), chunks, dtype.str, axes, tuple(scale.get(a, (1.0, "")) for a in axes), json.dumps(codec.get_config()))
    written = _put(path, [(file, text.replace(_NAME, name)) for file, text in files])
    return _ZarrWriter(path, shape, dtype, axes, chunks, codec, written)
