# SPDX-License-Identifier: Apache-2.0
"""cytoc.formats: images, volumes, recordings and videos, read by regions and written by regions, each by the library of its format.

    from cytoc import formats
    with formats.open_image("plate.ome.tif") as image:
        print(image.shape, image.axes, image.scale)           # (3, 2, 64, 2048, 2048) TCZYX {'X': (0.1, 'micrometer'), ..}
        part = image[0, 1, :16, :256, :256]
    writer = formats.create("mask.ome.zarr", shape, "uint8", "ZYX", image.scale)
    writer.write((0, 0, 0), part)
    writer.close()

The libraries are extras of the package: pip install 'cytoc[images,volumes,audio,video]'.
"""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._array import create_npy, create_safetensors, open_npy, open_safetensors
from ._audio import create_audio, open_audio
from ._base import ORDER, ArrayImage, FormatError, Image, Scale, Writer, forget, fsync, fsync_below, reserve, sync_all
from ._nifti import create_nifti, open_nifti
from ._picture import create_picture, open_picture
from ._tiff import create_tiff, open_tiff
from ._video import create_video, open_video
from ._zarr import chunk_of, create_zarr, images_in, open_zarr


class Format(NamedTuple):
    """A row of the table: its name on the command line, suffixes (the first is what is written), how it is opened and made. in_order:
    its parts have to come in the order of its first axis. goes_on: a file that was begun can be gone on with. lossy: what is written is not
    what is read again."""
    name: str
    suffixes: Tuple[str, ...]
    open: Callable[[str], Image]
    create: Callable[[str, Sequence[int], Any, str, Scale, Dict[str, Any]], Writer]
    in_order: bool = False
    goes_on: bool = False
    lossy: bool = False


FORMATS = (
    Format("tiff", (".ome.tif", ".ome.tiff", ".tif", ".tiff"), open_tiff, create_tiff, goes_on=True),
    Format("zarr", (".ome.zarr", ".zarr"), open_zarr, create_zarr, goes_on=True),
    Format("nifti", (".nii.gz", ".nii"), open_nifti, create_nifti),
    Format("png", (".png", ".bmp"), open_picture, create_picture),
    Format("jpeg", (".jpg", ".jpeg"), open_picture, create_picture, lossy=True),
    Format("wav", (".wav",), open_audio, create_audio, in_order=True),
    Format("flac", (".flac", ".ogg"), open_audio, create_audio, in_order=True),
    Format("video", (".mp4", ".mkv", ".mov", ".avi", ".webm"), open_video, create_video, in_order=True, lossy=True),
    Format("npy", (".npy",), open_npy, create_npy, goes_on=True),
    Format("safetensors", (".safetensors",), open_safetensors, create_safetensors),
)


def suffix_of(path: str) -> Tuple[Optional[Format], str]:
    """The format of a path by its name, and the suffix that said so; (None, "") if no format has it. Inside a Zarr store: that."""
    lower = path.partition("::")[0].rstrip("/").lower()
    found = [(f, s) for f in FORMATS for s in f.suffixes if lower.endswith(s)]
    if found:
        return max(found, key=lambda pair: len(pair[1]))
    if ".zarr/" in lower and os.path.isdir(path):
        return format_named("zarr"), ""
    return None, ""


def format_named(name: str) -> Format:
    for f in FORMATS:
        if f.name == name:
            return f
    raise FormatError("format: expected one of %s, found '%s'" % (", ".join(f.name for f in FORMATS), name))


def open_image(path: str) -> Image:
    """Opens a file. FormatError: it is missing, of no format that is known, damaged, or its library is not installed."""
    f, _ = suffix_of(path)
    if f is None:
        raise FormatError("'%s': no format is known by that name: expected one of %s" % (path, " ".join(known_suffixes())))
    place = path.partition("::")[0]
    if not os.path.exists(place):
        raise FormatError("no such file: '%s'" % path)
    if not os.path.isfile(place) and not os.path.isdir(place):  # a pipe would be waited for
        raise FormatError("'%s' is neither a file nor a folder" % path)
    try:
        return f.open(path)
    except (FormatError, OSError, MemoryError):
        raise
    except Exception as e:  # what the formats' libraries raise for files that are damaged is anything
        raise FormatError("'%s' cannot be read: %s: %s" % (path, type(e).__name__, str(e).splitlines()[0] if str(e) else "")) from e


def create(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Optional[Scale] = None, *,
           extra: Optional[Dict[str, Any]] = None, named: Optional[str] = None, goes_on: bool = False) -> Writer:
    """Makes a file. axes: a letter of TCZYX for each axis, in that order. named: the path that it will get, whose suffix tells the format,
    where it is written under another name first. extra: of an image, for what its format and the new one have in common; "rows": {letter: n},
    parts will have so many rows of that axis. goes_on: the file is there, and parts of it are written already. FormatError: the format does not hold that; OSError: the disk is full."""
    f, suffix = suffix_of(named or path)
    if f is None:
        raise FormatError("'%s': no format is known by that name: expected one of %s" % (named or path, " ".join(known_suffixes())))
    return f.create(path, shape, dtype, axes, dict(scale or {}), {**(extra or {}), "suffix": suffix, "packed": suffix.endswith(".gz"),
                                                                  "name": os.path.basename(named or path), "goes_on": goes_on})


def rows_at_once(space: str, shape: Sequence[int]) -> int:
    """In how many rows of the first of these axes it is best to write: what the chunks of Zarr have."""
    return chunk_of(space, shape)[space[0]]


def known_suffixes() -> List[str]:
    return [s for f in FORMATS for s in f.suffixes]


__all__ = ["ArrayImage", "FORMATS", "Format", "FormatError", "Image", "ORDER", "Scale", "Writer", "create", "forget", "format_named", "fsync", "fsync_below",
           "images_in", "known_suffixes", "open_image", "reserve", "rows_at_once", "suffix_of", "sync_all"]
