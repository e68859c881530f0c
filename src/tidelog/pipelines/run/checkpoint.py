"""What is kept of a query between runs: Spark's checkpoint, a fingerprint beside it, and a lock.

The fingerprint (`_tidelog.json`) holds what a checkpoint cannot follow when the file is edited: the
topics, the state's shape, how it is written and where. A run that differs is refused with the
remedy, before Spark would fail in its own words or, worse, go on; so is one whose checkpoint is cut
off or contradicts itself. Two runs on one checkpoint are refused by a lock on the local file
system; object stores have none, and it is said so.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.pipelines.declare.pipeline import PipelineError
from tidelog.spark.jvm import hadoop_file
from tidelog.spark.locations import is_local, local_path

FINGERPRINT: Final = "_tidelog.json"
# 2: the state with the order, the arguments and the keys of what is kept.
VERSION: Final = 2
TOPIC_SINK: Final = "topic"
ONCE_SINK: Final = "topic, exactly once"
_LOG_VERSION: Final = re.compile(r"v\d+")


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
        """None where it is none, or one of another version."""
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
    if (old.sink, new.sink) == (TOPIC_SINK, ONCE_SINK):
        # Nothing is open yet. The other way round, a batch that was decided might not be finished.
        return found
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


class LocalStore:
    """A checkpoint on a disk of this machine."""

    def read(self, path: str) -> str | None:
        try:
            # A damaged file is still read, and then found to be none.
            return Path(path).read_text(errors="replace")
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

    def names(self, path: str) -> list[str]:
        """What is in a directory; nothing where there is none."""
        return os.listdir(path) if Path(path).is_dir() else []


class HadoopStore:
    """A checkpoint wherever Spark can keep one, through Hadoop's file systems."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def read(self, path: str) -> str | None:
        files, place = hadoop_file(self._session, path)
        if not files.exists(place):
            return None
        with closing(files.open(place)) as stream:
            return bytes(stream.readAllBytes()).decode(errors="replace")

    def write(self, path: str, text: str) -> None:
        files, place = hadoop_file(self._session, path)
        with closing(files.create(place, True)) as stream:
            stream.write(bytearray(text.encode()))

    def delete(self, path: str) -> None:
        files, place = hadoop_file(self._session, path)
        files.delete(place, True)

    def names(self, path: str) -> list[str]:
        files, place = hadoop_file(self._session, path)
        if not files.exists(place):
            return []
        return [each.getPath().getName() for each in files.listStatus(place)]


class Checkpoint:
    """The checkpoint of one query, held by one runner at a time."""

    def __init__(self, root: str, query: str, session: Any = None) -> None:
        self.query = query
        self._root = root
        self.path = f"{root.rstrip('/')}/{query}"
        self._store: LocalStore | HadoopStore = (
            LocalStore() if is_local(root) else HadoopStore(session)
        )
        if is_local(root):
            self.path = str(local_path(self.path))
        self._lock: int | None = None

    @property
    def exists(self) -> bool:
        """Whether a run has left something here."""
        return self.planned is not None or self.done is not None

    @property
    def planned(self) -> int | None:
        """The newest micro-batch whose offsets are noted; that is done before it is written."""
        return self._newest("offsets")

    @property
    def done(self) -> int | None:
        """The newest micro-batch that is noted as written."""
        return self._newest("commits")

    @property
    def query_id(self) -> str:
        """By which tables know the query; empty where the file that holds it cannot be read."""
        try:
            found = json.loads(self._store.read(f"{self.path}/metadata") or "")
            return str(found["id"])
        except (ValueError, TypeError, KeyError):
            return ""

    @property
    def is_gone(self) -> bool:
        """Whether it was taken from under a query; asked of local disks alone, where it is cheap.

        Spark would go on and write to what nobody could resume from.
        """
        return is_local(self._root) and not Path(self.path, "metadata").exists()

    def _newest(self, log: str) -> int | None:
        names = self._store.names(f"{self.path}/{log}")
        return max((int(name) for name in names if name.isdecimal()), default=None)

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
                f"{self.path}: this checkpoint is in use{by}; stop that run first"
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
        self.compare(fingerprint, file)
        place = f"{self.path}/{FINGERPRINT}"
        if self._store.read(place) != fingerprint.to_json():
            self._store.write(place, fingerprint.to_json())

    def compare(self, fingerprint: Fingerprint, file: str) -> None:
        """PipelineError where this query cannot go on from here; nothing is written."""
        text = self._store.read(f"{self.path}/{FINGERPRINT}")
        if text is not None and self.exists:
            self._compare(Fingerprint.from_json(text), fingerprint, file)

    def check_whole(self, file: str) -> None:
        """PipelineError where a part is missing or cut off: rows would be lost or come twice."""
        damage = self._damage() if self.exists else ""
        if damage:
            raise PipelineError(
                f"{self.query}: its checkpoint is damaged: {damage}. Put a whole copy of"
                f" {self.path} back, or {self.anew(file)}"
            )

    def _damage(self) -> str:
        planned, done = self.planned, self.done
        if planned is None or (done is not None and done > planned):
            last = "is empty" if planned is None else f"ends at {planned}"
            return f"{self.path}/offsets {last}, and commits at {done}"
        if not self.query_id:
            return f"{self.path}/metadata is missing or cut off"
        for log, newest in (("offsets", planned), ("commits", done)):
            place = f"{self.path}/{log}/{newest}"
            if newest is not None and not _is_whole(self._store.read(place) or ""):
                return f"{place} is cut off"
        return ""

    def anew(self, file: str) -> str:
        """The remedy that always helps."""
        return f"begin anew with `tidelog pipeline run {file} --reset {self.query}`"

    def _compare(self, old: Fingerprint | None, new: Fingerprint, file: str) -> None:
        remedy = f"give it a new name in {file}, or {self.anew(file)}"
        if old is None:
            raise PipelineError(
                f"{self.path}/{FINGERPRINT} cannot be read by this version; {remedy}"
            )
        found = changes(old, new)
        if found:
            raise PipelineError(
                f"{self.query}: its checkpoint cannot follow this edit: {'; '.join(found)}."
                f" {remedy[0].upper()}{remedy[1:]}"
            )


def _is_whole(text: str) -> bool:
    """Whether a file of Spark's logs has its version, and no JSON that breaks off."""
    version, *lines = text.split("\n")
    try:
        for line in lines:
            if line.startswith("{"):
                json.loads(line)
    except ValueError:
        return False
    return bool(_LOG_VERSION.fullmatch(version)) and any(lines)
