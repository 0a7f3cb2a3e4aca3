# SPDX-License-Identifier: Apache-2.0
"""Which files are meant, and where the result of each goes.

In:  paths, folders and patterns of the command line, and those of --exclude. Out: items in a fixed order, each with a name of its own.
"""
from __future__ import annotations

import fnmatch
import glob
import os
from typing import List, NamedTuple, Optional, Sequence

from .. import formats
from .._errors import InputError

FLOAT_HOLDERS = ("tiff", "zarr", "nifti", "npy", "safetensors", "wav", "flac")  # formats that hold float32


class Item(NamedTuple):
    """path: of what is read. name: of the result below the output folder, without suffix."""
    path: str
    name: str

    def __str__(self) -> str:  # in messages of the pipeline
        return self.path


def stamp(path: str) -> List[int]:
    """What tells that a file is another one: size and time."""
    stat = os.stat(path.partition("::")[0])
    return [stat.st_size, stat.st_mtime_ns]


def _is_store(path: str) -> bool:
    return os.path.isdir(path) and (path.rstrip("/").endswith(".zarr") or any(os.path.exists(os.path.join(path, n))
                                                                           for n in (".zgroup", ".zarray", "zarr.json")))


def _inside(folder: str, results: str) -> List[str]:
    """Files of known formats in a folder, and in folders of it; results of an earlier run, in a folder of it, are no inputs."""
    found: List[str] = []
    for root, folders, files in os.walk(folder):
        folders[:] = [d for d in folders if os.path.realpath(os.path.join(root, d)) != results]
        stores = [d for d in folders if _is_store(os.path.join(root, d))]
        found += [os.path.join(root, n) for n in stores + files if not n.startswith(".") and formats.suffix_of(n)[0]]
        folders[:] = sorted(d for d in folders if d not in stores and not d.startswith("."))
    return found


def _one(pattern: str, results: str) -> List[str]:
    if _is_store(pattern):
        return formats.images_in(pattern.rstrip("/"))
    if os.path.isdir(pattern):
        found = _inside(pattern, results)
        if not found:
            raise InputError("there is no file of a known format in '%s': expected one of %s" %
                             (pattern, " ".join(formats.known_suffixes())))
        return found
    if os.path.exists(pattern.partition("::")[0]):
        return [pattern]
    found = glob.glob(pattern, recursive=True)
    if not found:
        raise InputError(("nothing matches '%s'" if glob.has_magic(pattern) else "no such file: '%s'") % pattern)
    return [path for match in found for path in (_inside(match, results) if os.path.isdir(match) and not _is_store(match) else [match])]


def find(patterns: Sequence[str], exclude: Sequence[str] = (), output: str = "") -> List[Item]:
    """output: the folder of the results. InputError: a pattern that matches nothing."""
    results = os.path.realpath(output) if output else ""
    paths = sorted({os.path.normpath(p) for pattern in patterns for p in _one(pattern, results)}, key=_natural)
    paths = [p for p in paths if not any(fnmatch.fnmatch(p, e) or fnmatch.fnmatch(os.path.basename(p), e) for e in exclude)]
    if not paths:
        raise InputError("nothing is left to do: --exclude excludes all files")
    places = [p.partition("::")[0] for p in paths]
    base = os.path.commonpath([os.path.dirname(os.path.abspath(p)) for p in places])
    items, named = [], {}  # type: ignore[var-annotated]
    for path, place in zip(paths, places):
        f, suffix = formats.suffix_of(place)
        name = os.path.relpath(os.path.abspath(place), base)
        name = name[:len(name) - len(suffix)] if suffix else name.replace(".ome.zarr", "").replace(".zarr", "")
        if named.setdefault(name, path) != path:  # a.tif and a.png
            name = os.path.relpath(os.path.abspath(path), base).replace("::", "-")
        items.append(Item(path, name))
    return items


def _natural(path: str) -> List[object]:
    """a2 before a10."""
    words: List[object] = []
    for k, word in enumerate(_digits(path)):
        words.append(int(word) if k % 2 else word)
    return words


def _digits(path: str) -> List[str]:
    import re
    return re.split(r"(\d+)", path)


def output_of(item: Item, folder: str, chosen: Optional[str], is_float: bool) -> str:
    """The result's path. chosen: a format's name, or None: that of the item, if it holds such numbers."""
    f, suffix = formats.suffix_of(item.path)
    assert f is not None or chosen
    if chosen:
        wanted = formats.format_named(chosen)
        suffix = suffix if f is wanted and suffix else wanted.suffixes[0]
    elif f is not None and (f.lossy or is_float and f.name not in FLOAT_HOLDERS):
        suffix = ".png" if f.name == "jpeg" and not is_float else ".ome.tif"
    elif not suffix:
        suffix = ".ome.zarr"
    return os.path.join(folder, item.name + {".tif": ".ome.tif", ".tiff": ".ome.tif", ".zarr": ".ome.zarr"}.get(suffix, suffix))


def keep_inputs(items: Sequence[Item], folder: str, chosen: Optional[str], is_float: bool) -> None:
    """InputError: a result would take the place of a file that is read."""
    places = {os.path.realpath(item.path.partition("::")[0]): item for item in items}
    for item in items:
        for result in (output_of(item, folder, chosen, is_float), os.path.join(folder, item.name + ".npy")):
            place = os.path.realpath(result)
            for path, other in places.items() if os.path.isdir(place) else [(place, places.get(place))]:
                if other is not None and (path == place or path.startswith(place + os.sep)):
                    raise InputError("-o %s: the result of '%s' would replace the input '%s'; choose another folder" % (folder, item, other))
