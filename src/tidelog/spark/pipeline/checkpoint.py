"""What is kept of a query between runs: Spark's checkpoint, a fingerprint beside it, and a lock.

The fingerprint (`_tidelog.json`) holds what a checkpoint cannot follow when the file is edited: the
topics, the state's shape, how it is written and where. A run that differs is refused with the
remedy, before Spark would fail in its own words or, worse, go on. Two runs on one checkpoint are
refused by a lock on the local file system; object stores have none, and it is said so.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from tidelog.spark.pipeline.model import PipelineError

FINGERPRINT: Final = "_tidelog.json"
VERSION: Final = 1


@dataclass(slots=True)
class SourceShape:
    """Which topics the source at one place of the plan reads."""

    topics: list[str] = field(default_factory=list)
    pattern: str = ""


@dataclass(slots=True)
class Fingerprint:
    """What of a query must stay as it was for its checkpoint to be of use."""

    sources: list[SourceShape]
    state: list[str]
    mode: str
    sink: str
    table: str = ""
    partition_by: list[str] = field(default_factory=list)
    version: int = VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Fingerprint | None:
        """None where it is none, or one of a later version."""
        try:
            found: dict[str, Any] = json.loads(text)
            if found.get("version") != VERSION:
                return None
            sources = [SourceShape(**each) for each in found.pop("sources")]
            return cls(sources=sources, **found)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def changes(old: Fingerprint, new: Fingerprint) -> list[str]:
    """What the checkpoint cannot follow, in words; empty where it can."""
    found = []
    if len(old.sources) != len(new.sources):
        found.append(f"it read {len(old.sources)} sources and now reads {len(new.sources)}")
    for before, after in zip(old.sources, new.sources, strict=False):
        gone = sorted(set(before.topics) - set(after.topics))
        if gone or before.pattern != after.pattern:
            found.append(f"it read {_topics(before)} and now reads {_topics(after)}")
    if old.state != new.state:
        found.append(f"its state was {_listed(old.state)} and is now {_listed(new.state)}")
    if old.mode != new.mode:
        words = {"update": "emit: updates", "append": "emit: final"}
        found.append(f"it was written with {words[old.mode]} and now with {words[new.mode]}")
    if (old.sink, old.table) != (new.sink, new.table):
        was, now = (f"{each.sink} {each.table}".strip() for each in (old, new))
        found.append(f"it was written to a {was} and now to a {now}")
    elif old.partition_by != new.partition_by:
        was, now = (", ".join(each.partition_by) or "nothing" for each in (old, new))
        found.append(f"its table was partitioned by {was} and is now by {now}")
    return found


def _topics(shape: SourceShape) -> str:
    return f"the pattern {shape.pattern}" if shape.pattern else ", ".join(shape.topics)


def _listed(state: Sequence[str]) -> str:
    return "; ".join(state) or "none"


class Store(Protocol):
    """The few things that are done with files of a checkpoint."""

    def read(self, path: str) -> str | None: ...
    def write(self, path: str, text: str) -> None: ...
    def delete(self, path: str) -> None: ...
    def has_files(self, path: str) -> bool: ...


class LocalStore:
    """A checkpoint on a disk of this machine."""

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".draft")
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)

    def delete(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def has_files(self, path: str) -> bool:
        return Path(path).is_dir() and any(Path(path).iterdir())


class HadoopStore:
    """A checkpoint wherever Spark can keep one, through Hadoop's file systems."""

    def __init__(self, session: Any) -> None:
        self._jvm = session._jvm
        self._configuration = session._jsc.hadoopConfiguration()

    def _open(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._configuration), place

    def read(self, path: str) -> str | None:
        files, place = self._open(path)
        if not files.exists(place):
            return None
        stream = files.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        files, place = self._open(path)
        stream = files.create(place, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        files, place = self._open(path)
        files.delete(place, True)

    def has_files(self, path: str) -> bool:
        files, place = self._open(path)
        return bool(files.exists(place)) and len(files.listStatus(place)) > 0


def is_local(path: str) -> bool:
    """Whether a checkpoint lies on a file system of this machine."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    return Path(path.removeprefix("file://"))


class Checkpoint:
    """The checkpoint of one query, held by one runner at a time."""

    def __init__(self, root: str, query: str, session: Any = None) -> None:
        self.query = query
        self._root = root
        self.path = f"{root.rstrip('/')}/{query}"
        self._store: Store = LocalStore() if is_local(root) else HadoopStore(session)
        if is_local(root):
            self.path = str(local_path(self.path))
        self._lock: int | None = None

    @property
    def exists(self) -> bool:
        """Whether a run has left something here."""
        return self._store.has_files(f"{self.path}/offsets")

    def lock(self) -> None:
        """Keep other runners away; PipelineError where one is at it."""
        if not is_local(self._root):
            return
        root = local_path(self._root)
        root.mkdir(parents=True, exist_ok=True)
        path = root / f".{self.query}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            by = f" by process {holder}" if holder.isdigit() else ""
            raise PipelineError(
                [f"{self.path}: this checkpoint is in use{by}; stop that run first"]
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def reset(self) -> None:
        """Forget all, so that the next run begins where the sources say."""
        self._store.delete(self.path)

    def admit(self, fingerprint: Fingerprint, file: str) -> None:
        """Check that this query may go on from here, and note what it is."""
        place = f"{self.path}/{FINGERPRINT}"
        text = self._store.read(place)
        if text is not None and self.exists:
            self._compare(Fingerprint.from_json(text), fingerprint, file)
        if text != fingerprint.to_json():
            self._store.write(place, fingerprint.to_json())

    def _compare(self, old: Fingerprint | None, new: Fingerprint, file: str) -> None:
        remedy = (
            f"give it a new name in {file}, or begin anew with"
            f" `tidelog pipeline run {file} --reset {self.query}`"
        )
        if old is None:
            raise PipelineError(
                [f"{self.path}/{FINGERPRINT} cannot be read by this version; {remedy}"]
            )
        found = changes(old, new)
        if found:
            raise PipelineError(
                [
                    f"{self.query}: its checkpoint cannot follow this edit: {'; '.join(found)}."
                    f" {remedy[0].upper()}{remedy[1:]}"
                ]
            )


def set_aside(table: str) -> str | None:
    """Rename a table that is to be written anew; where it is now, or None where there was none."""
    path = Path(table)
    if not path.exists():
        return None
    aside = path.with_name(f"{path.name}.before-{time.strftime('%Y%m%dT%H%M%S')}")
    path.rename(aside)
    return str(aside)
