# SPDX-License-Identifier: Apache-2.0
"""What is done, so that --resume goes on with the rest: one line of JSON for each thing, in the output folder.

The first line says with which options; others say of an item that it is whole ("output"), or up to which row it is on the disk ("rows"). An
item whose file has changed since is done anew. The last line of a run that was killed may be cut: it is left out.

A result is handed to the system, which keeps it when the process is killed, and comes to the disk with others: syncing each for itself
takes longer than writing it. So a line names the system's boot, and a line "safe" says that all lines of that boot before it are on the
disk, results as well: those without one count for as long as the system runs, and not after a power failure.
"""
from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from fractions import Fraction
from typing import Any, Dict, List, Optional

from .. import formats
from .._errors import InputError
from ._items import Item
from ._job import Begin

NAME = ".cytoc-predict.jsonl"
SAFE_SECONDS = 1.0  # between two times that results are synced
SAFE_SHARE = 9      # .. which take at most a tenth of the time


def stamp(path: str) -> List[int]:
    """What tells that a file is another one: size and time."""
    stat = os.stat(path.partition("::")[0])
    return [stat.st_size, stat.st_mtime_ns]


def boot_of(path: str = "/proc/sys/kernel/random/boot_id") -> str:
    """Another one after each start of the system; "": it does not say."""
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


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
        self.boot, self.device = boot_of(), os.fstat(self.file.fileno()).st_dev
        self.unsafe, self.due = False, time.monotonic() + SAFE_SECONDS  # when results are synced
        self.done: Dict[str, Dict[str, Any]] = {}
        self.rows: Dict[str, Dict[str, Any]] = {}
        if resume:
            self._read(settings)
        else:
            self.file.truncate(0)
        if os.path.getsize(self.path) == 0:
            self._append({"settings": settings})
        self.safe_size = os.path.getsize(self.path)

    def _read(self, settings: Dict[str, Any]) -> None:
        self.file.seek(0)
        text = self.file.read()
        whole = text[:text.rfind("\n") + 1]
        self.file.truncate(len(whole.encode()))
        waiting: List[Dict[str, Any]] = []
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
            elif "safe" in entry:
                self.done.update((e["item"], e) for e in waiting if e["boot"] == entry["safe"])
            else:
                waiting.append(entry)
        self.done.update((e["item"], e) for e in waiting if self.boot and e["boot"] == self.boot)

    def _append(self, entry: Dict[str, Any]) -> None:
        """Handed to the system at once, so that a kill loses nothing."""
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()

    def is_done(self, item: Item) -> bool:
        entry = self.done.get(item.path)
        return entry is not None and entry["stamp"] == stamp(item.path) and os.path.exists(entry["output"])

    def begin(self, item: Item) -> Optional[Begin]:
        """Where an item goes on, of which a part is there."""
        entry = self.rows.get(item.path)
        if entry is None or entry["stamp"] != stamp(item.path) or not os.path.exists(entry["partial"]):
            return None
        return Begin(entry["position"], entry["rows"], Fraction(entry["zoom"]))

    def syncs(self, folder: str) -> bool:
        """Does sync() see to files there? Else who writes them does: they are on another file system."""
        return os.stat(folder).st_dev == self.device

    def add_done(self, item: Item, output: str) -> None:
        """OSError: as of sync()."""
        self._append({"item": item.path, "stamp": stamp(item.path), "output": output, "boot": self.boot})
        self.unsafe = True
        if not self.boot or time.monotonic() >= self.due:
            self.sync()

    def add_rows(self, item: Item, partial: str, position: int, rows: int, zoom: Fraction) -> None:
        self._append({"item": item.path, "stamp": stamp(item.path), "partial": partial, "position": position, "rows": rows, "zoom": str(zoom)})
        os.fsync(self.file.fileno())

    def sync(self) -> None:
        """What it says, and the results that it names, are on the disk when it returns. OSError: the system could not write them; then those
        that came since the last time are no more in the journal."""
        if not self.unsafe:
            return
        begun = time.monotonic()
        try:
            formats.sync_all(self.file.fileno())
        except OSError:
            self.file.truncate(self.safe_size)
            raise
        finally:
            self.unsafe = False
        self._append({"safe": self.boot})
        os.fsync(self.file.fileno())
        self.safe_size, ended = os.path.getsize(self.path), time.monotonic()
        self.due = ended + max(SAFE_SECONDS, SAFE_SHARE * (ended - begun))

    def close(self) -> None:
        if self.file.closed:
            return
        try:
            self.sync()
        finally:
            self.file.close()
