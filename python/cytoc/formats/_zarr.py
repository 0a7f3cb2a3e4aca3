# SPDX-License-Identifier: Apache-2.0
"""OME-Zarr by zarr: images of versions 0.4 and 0.5, plates, plain arrays; what is written is 0.4, which everything reads."""
from __future__ import annotations

import os
import posixpath
from typing import Any, Dict, List, Sequence

import numpy as np

from ._base import Array, FormatError, Image, Scale, Writer, guessed_axes, library

CHUNK = 1 << 20    # voxels of a chunk, about
ROWS = 16          # along Z


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


def chunk_of(axes: str) -> Dict[str, int]:
    """Sizes of chunks, some 2^20 voxels: 16 planes, and squares of them."""
    if "X" not in axes:
        return {"C": 1, "T": CHUNK}
    side = int((CHUNK // (ROWS if "Z" in axes else 1)) ** 0.5)
    return {"T": 1, "C": 1, "Z": ROWS, "Y": side, "X": side}


class _ZarrWriter(Writer):
    def __init__(self, path: str, shape: Sequence[int], dtype: Any, axes: str, array: Any) -> None:
        super().__init__(path, shape, dtype, axes)
        self.array: Any = array

    def write(self, start: Sequence[int], part: Array) -> None:
        self.array[tuple(slice(a, a + n) for a, n in zip(start, part.shape))] = part


def create_zarr(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    zarr = library("zarr", "volumes", path)
    if extra.get("goes_on"):
        return _ZarrWriter(path, shape, dtype, axes, zarr.open_group(path, mode="r+")["0"])
    chunk = {**chunk_of(axes), **extra.get("rows", {})}
    kinds = {"T": "time", "C": "channel"}
    described: List[Dict[str, str]] = []
    for letter in axes:
        described.append({"name": letter.lower(), "type": kinds.get(letter, "space")})
        if scale.get(letter, (0, ""))[1]:
            described[-1]["unit"] = scale[letter][1]
    name = posixpath.basename(path)
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.attrs["multiscales"] = [{
        "version": "0.4", "name": extra.get("name", name), "axes": described,
        "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [scale.get(a, (1.0, ""))[0] for a in axes]}]}]}]
    array = group.create_array("0", shape=tuple(shape), dtype=np.dtype(dtype), chunks=tuple(min(chunk[a], n) for a, n in zip(axes, shape)),
                               chunk_key_encoding={"name": "v2", "separator": "/"})
    return _ZarrWriter(path, shape, dtype, axes, array)
