# SPDX-License-Identifier: Apache-2.0
"""What is done, so that --resume goes on with the rest: one line of JSON for each thing, in the output folder.

The first line says with which options; `done` and `rows` say of an item that it is whole, or up to which row it is on the disk. An item
whose file has changed since is done anew. The last line of a run that was killed may be cut: it is left out.
"""
from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from fractions import Fraction
from typing import Any, Dict, List, Optional

from .._errors import InputError
from ._items import Item
from ._job import Begin

NAME = ".cytoc-predict.jsonl"
SAFE_SECONDS = 1.0


def stamp(path: str) -> List[int]:
    """What tells that a file is another one: size and time."""
    stat = os.stat(path.partition("::")[0])
    return [stat.st_size, stat.st_mtime_ns]


def digest_of(path: str) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


class Journal:
    """One process at a time has it. settings: what results depend on."""

    def __init__(self, folder: str, settings: Dict[str, Any], resume: bool) -> None:
        self.path = os.path.join(folder, NAME)
        self.file = open(self.path, "a+", encoding="utf-8")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.file.close()
            raise InputError("another cytoc predict writes to '%s'" % folder) from None
        self.safe = -SAFE_SECONDS  # when it was last
        self.done: Dict[str, Dict[str, Any]] = {}
        self.rows: Dict[str, Dict[str, Any]] = {}
        if resume:
            self._read(settings)
        else:
            self.file.truncate(0)
        if os.path.getsize(self.path) == 0:
            self._append({"settings": settings})

    def _read(self, settings: Dict[str, Any]) -> None:
        self.file.seek(0)
        text = self.file.read()
        whole = text[:text.rfind("\n") + 1]
        self.file.truncate(len(whole.encode()))
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                raise InputError("'%s' is damaged: run without --resume to begin anew" % self.path) from None
            if "settings" in entry:
                other = sorted(k for k in {**settings, **entry["settings"]} if settings.get(k) != entry["settings"].get(k))
                if other:
                    raise InputError("--resume: the results in '%s' were made with other options: %s; run without --resume to begin anew, or "
                                     "choose another folder" % (os.path.dirname(self.path), ", ".join(
                                         "%s was %s and is %s" % (k, entry["settings"].get(k), settings.get(k)) for k in other)))
            elif "rows" in entry:
                self.rows[entry["item"]] = entry
            else:
                self.done[entry["item"]] = entry

    def _append(self, entry: Dict[str, Any]) -> None:
        """Handed to the system at once, so that a kill loses nothing, and written to the disk (fsync) once a second: what a power failure
        takes is done again."""
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()
        if time.monotonic() - self.safe > SAFE_SECONDS:
            os.fsync(self.file.fileno())
            self.safe = time.monotonic()

    def is_done(self, item: Item) -> bool:
        entry = self.done.get(item.path)
        return entry is not None and entry["stamp"] == stamp(item.path) and os.path.exists(entry["output"])

    def begin(self, item: Item) -> Optional[Begin]:
        """Where an item goes on, of which a part is there."""
        entry = self.rows.get(item.path)
        if entry is None or entry["stamp"] != stamp(item.path) or not os.path.exists(entry["partial"]):
            return None
        return Begin(entry["position"], entry["rows"], Fraction(entry["zoom"]))

    def add_done(self, item: Item, output: str) -> None:
        self._append({"item": item.path, "stamp": stamp(item.path), "output": output})

    def add_rows(self, item: Item, partial: str, position: int, rows: int, zoom: Fraction) -> None:
        self._append({"item": item.path, "stamp": stamp(item.path), "partial": partial, "position": position, "rows": rows, "zoom": str(zoom)})

    def close(self) -> None:
        if not self.file.closed:
            os.fsync(self.file.fileno())
        self.file.close()
