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
from typing import Any, Dict, Iterable, List, Optional

from .. import formats
from .._errors import InputError
from ._items import Item, stamp
from ._job import Begin

NAME = ".cytoc-predict.jsonl"
SAFE_SECONDS = 1.0  # between two times that results are synced
SAFE_SHARE = 9      # .. which take at most a tenth of the time


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
        self.boot, self.device, self.due = boot_of(), os.stat(folder).st_dev, time.monotonic() + SAFE_SECONDS  # when results are synced
        self.waiting: List[Dict[str, Any]] = []  # lines of results that may not be on the disk
        self.safe_size = 0                       # of the file, up to the last line behind which all is
        self.done: Dict[str, Dict[str, Any]] = {}
        self.rows: Dict[str, Dict[str, Any]] = {}
        if resume:
            self._read(settings)
        else:
            self.file.truncate(0)
        if os.path.getsize(self.path) == 0:  # after a power failure it must not be an older one, of results that are replaced now
            self._append({"settings": settings})
            os.fsync(self.file.fileno())
            formats.fsync(folder)
            self.safe_size = os.path.getsize(self.path)

    def _read(self, settings: Dict[str, Any]) -> None:
        self.file.seek(0)
        text = self.file.read()
        whole = text[:text.rfind("\n") + 1]
        self.file.truncate(len(whole.encode()))
        at = 0
        for line in whole.splitlines():
            at += len(line.encode()) + 1
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
                self.safe_size = self.safe_size or at
            elif "rows" in entry:
                self.rows[entry["item"]] = entry
            elif "safe" in entry:
                self._count(e for e in self.waiting if e["boot"] == entry["safe"])
                self.waiting, self.safe_size = [], at
            elif "boot" in entry:
                self.waiting.append(entry)
            else:  # of a version that synced each result for itself
                self._count([entry])
        self.waiting = [e for e in self.waiting if self.boot and e["boot"] == self.boot]
        self._count(self.waiting)

    def _count(self, entries: Iterable[Dict[str, Any]]) -> None:
        self.done.update((e["item"], e) for e in entries)

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

    def add_done(self, item: Item, read: List[int], output: str) -> None:
        """read: the stamp of what the result is of. OSError: as of sync()."""
        self.waiting.append({"item": item.path, "stamp": read, "output": output, "boot": self.boot})
        self._append(self.waiting[-1])
        self.sync_due()

    def sync_due(self) -> None:
        if self.waiting and (not self.boot or time.monotonic() >= self.due):
            self.sync()

    def add_rows(self, item: Item, read: List[int], partial: str, position: int, rows: int, zoom: Fraction) -> None:
        self._append({"item": item.path, "stamp": read, "partial": partial, "position": position, "rows": rows, "zoom": str(zoom)})
        os.fsync(self.file.fileno())

    def sync(self) -> None:
        """What it says, and the results that it names, are on the disk when it returns. OSError: the system could not write them; then those
        that failed are no more in the journal."""
        if not self.waiting:
            return
        begun, waiting = time.monotonic(), self.waiting
        failed: Dict[str, OSError] = {}
        if not formats.sync_all(self.file.fileno()):
            for e in waiting:
                try:
                    formats.fsync_below(e["output"])
                except OSError as why:
                    failed[e["output"]] = why
        self.waiting = []
        if failed:
            self.file.truncate(self.safe_size)
            for e in waiting:
                if e["output"] not in failed:
                    self._append(e)
        self._append({"safe": self.boot})
        os.fsync(self.file.fileno())
        self.safe_size, ended = os.path.getsize(self.path), time.monotonic()
        self.due = ended + max(SAFE_SECONDS, SAFE_SHARE * (ended - begun))
        for error in failed.values():
            raise error

    def close(self, whole: bool) -> None:
        """whole: the run came to its end; else results that were not synced count for as long as the system runs."""
        if self.file.closed:
            return
        try:
            if whole:
                self.sync()
        finally:
            self.file.close()
