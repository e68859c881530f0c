"""The file of the embedded store: an SQLite database behind synchronous calls for one thread.

Promises: a transaction that returned is on the disk (WAL, `synchronous=FULL`). A file that is
torn, foreign, of another format version or whose rows fail their checksums is refused with a
sentence that names it; nothing is ever initialised over a file that exists. One process at a time
(a lock file beside the database).

Format 1. `PRAGMA application_id` is 0x5449444C ("TIDL"), `PRAGMA user_version` is 1.
    node(parent, name, value, version, created, modified, session, crc)   primary key (parent, name)
    state(revision, digest, crc)                                          one row
`crc` is the CRC-32 of the row's other columns, `digest` the sum of all rows' `crc`, so that a row
which vanished without a transaction is noticed too. `session` is 0 for lasting nodes. A new file is
built under the name `<file>.new` and renamed when it is whole.

All of it is looked at through a connection that cannot write, before one that can is opened: a
store that is refused stays as it was found, its write-ahead log included. A log that is missing,
cut or rotten ends where SQLite sees its end; `revision_file` tells what should have been there.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import quote

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.store.port import (
    ANY_VERSION,
    NO_SESSION,
    Check,
    Conflict,
    ConflictReason,
    ConnectionLoss,
    Create,
    Delete,
    Operation,
    Set,
    Stored,
    StoreError,
    StoreFull,
)
from tidelog.store.revision_file import RevisionFile

FORMAT_VERSION: Final = 1
_APPLICATION_ID: Final = 0x5449444C
# SQLite's primary result codes; the extended code keeps them in its low byte.
_BUSY: Final = 5
_FULL: Final = 13
# SQLite needs 32 KiB for the index of its log; a failure with less than this left is a full disk.
_ROOM_TO_OPEN: Final = 1024**2

_SCHEMA = (
    "CREATE TABLE node (parent TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,"
    " version INTEGER NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL,"
    " session INTEGER NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (parent, name)) WITHOUT ROWID",
    "CREATE TABLE state (revision INTEGER NOT NULL, digest INTEGER NOT NULL, crc INTEGER NOT NULL)",
)
_SELECT = "SELECT parent, name, value, version, created, modified, session, crc FROM node"


class Database:
    """The open file. Every call, `close` included, comes from the thread that opened it."""

    def __init__(self, path: str, disk: Disk, *, create: bool) -> None:
        self._path = path
        self._disk = disk
        self._lock = self._take_lock()
        try:
            self._remove_unfinished()
            self._revision_file = RevisionFile(path, disk)
            if not disk.exists(path):
                self._build(create)
            self._inspect()
            self._connection = self._open()
        except (sqlite3.Error, OSError) as error:
            disk.close(self._lock)
            raise StorageError(f"{path} cannot be made or opened: {error}") from error
        except BaseException:
            disk.close(self._lock)
            raise

    def read(self, path: str) -> Stored | None:
        rows = self._rows(_SELECT + " WHERE parent = ? AND name = ?", _split(path))
        return self._checked(path, rows[0][2:]) if rows else None

    def children(self, path: str) -> list[str]:
        parent = "" if path == "/" else path
        rows = self._rows("SELECT name FROM node WHERE parent = ? ORDER BY name", (parent,))
        return [name for (name,) in rows]

    def tree(self, path: str) -> dict[str, Stored]:
        """Everything at and below `path`; for "/" every row, wherever it claims to belong."""
        if path == "/":
            rows = self._rows(_SELECT)
        else:
            # "0" follows "/", so the range is every parent that begins with "<path>/".
            rows = self._rows(
                _SELECT + " WHERE (parent = ? AND name = ?) OR parent = ?"
                " OR (parent >= ? AND parent < ?)",
                (*_split(path), path, path + "/", path + "0"),
            )
        found: dict[str, Stored] = {}
        for parent, name, *rest in rows:
            child = f"{parent}/{name}"
            found[child] = self._checked(child, rest)
        return found

    def multi(self, operations: Sequence[Operation], session: int) -> int:
        """All of the operations or none; the new revision."""
        committing = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            revision = self._apply(operations, session)
            committing = True
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if _primary_code(error) == _FULL:
                raise StoreFull(f"no space left to write {self._path}") from error
            if committing:
                # It may or may not be in the log file: only reading it again can tell.
                raise ConnectionLoss(f"{self._path} could not be written: {error}") from error
            raise StoreError(f"{self._path} could not be read: {error}") from error
        except BaseException:
            self._roll_back()
            raise
        self._revision_file.advance(revision)
        return revision

    def begin_session(self) -> int:
        """A number for a new session: a revision, hence never used before."""
        return self.multi((), NO_SESSION)

    def end_session(self, session: int) -> list[str]:
        """Delete the session's ephemeral nodes; their paths."""
        rows = self._rows("SELECT parent, name FROM node WHERE session = ?", (session,))
        paths = [f"{parent}/{name}" for parent, name in rows]
        if paths:
            self.multi([Delete(path) for path in paths], session)
        return paths

    @property
    def revision(self) -> int:
        return int(self._rows("SELECT revision FROM state")[0][0])

    def close(self) -> None:
        """Fold the log into the file and let the next process in."""
        self._connection.close()
        self._revision_file.close()
        self._disk.close(self._lock)

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """What a query gives, all of it: a cursor left half read would hold on to the file."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path} could not be read: {error}") from error

    def _take_lock(self) -> int:
        try:
            return self._disk.lock(self._path + ".lock")
        except BlockingIOError:
            raise StorageError(
                f"{self._path} is in use by another process; stop that one first"
            ) from None
        except OSError as error:
            raise StorageError(f"{self._path}.lock cannot be opened: {error}") from error

    def _remove_unfinished(self) -> None:
        for leftover in (".new", ".new-journal", ".new-wal", ".new-shm"):
            if self._disk.exists(self._path + leftover):
                self._disk.unlink(self._path + leftover)

    def _build(self, create: bool) -> None:
        """Make a whole new file, then give it its name: a crash leaves no half of one."""
        used_before = self._disk.exists(self._path + "-wal") or self._revision_file.acknowledged
        if not create or used_before:
            raise StorageError(
                f"{self._path} is missing although this broker has run before; it holds the"
                " metadata of the cluster. Put it back from a copy, or make it again with"
                " tidelog cluster restore"
            )
        unfinished = self._path + ".new"
        # Made by the disk, for its owner alone; SQLite gives its other files the mode of this one.
        self._disk.close(self._disk.open(unfinished, create=True))
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO state VALUES (0, 0, ?)", (_state_checksum(0, 0),))
            connection.execute("COMMIT")
            # Now, while nothing can be lost: later it would take a journal of another kind.
            connection.execute("PRAGMA journal_mode=WAL")
        descriptor = self._disk.open(unfinished)
        try:
            self._disk.fdatasync(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(unfinished, self._path)
        self._disk.sync_dir(os.path.dirname(self._path) or ".")

    def _inspect(self) -> None:
        """Refuse what cannot be used, through a connection that changes no file."""
        # SQLite takes an empty file for a new database; ours are never empty.
        if self._disk.file_size(self._path) == 0:
            raise self._unreadable("the file is empty")
        log, index = self._path + "-wal", self._path + "-shm"
        has_log = self._disk.exists(log) and self._disk.file_size(log) > 0
        had_index = self._disk.exists(index)
        # Without a log the file is all there is, and `immutable` keeps SQLite from making one.
        mode = "mode=ro" if has_log else "immutable=1"
        uri = f"file:{quote(self._path)}?{mode}"
        try:
            with self._refusing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
                self._check_format(connection)
                revision = self._check_content(connection)
                connection.close()
        finally:
            if not had_index and self._disk.exists(index):
                self._disk.unlink(index)
        self._check_revision(revision, self._disk.exists(log))

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        with self._refusing(connection):
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")
            self._connection = connection
            self._drop_ephemerals()
        return connection

    @contextmanager
    def _refusing(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        """Turn what goes wrong into a refusal that names the file, and close the connection."""
        try:
            yield connection
        except sqlite3.Error as error:
            connection.close()
            if _primary_code(error) == _BUSY:
                raise StorageError(f"{self._path} is in use by another process") from error
            if self._disk.free_bytes(os.path.dirname(self._path) or ".") < _ROOM_TO_OPEN:
                raise StorageError(
                    f"no space left to open {self._path}: free at least 1 MiB and start again"
                ) from error
            raise self._unreadable(str(error)) from error
        except (ValueError, TypeError, OverflowError) as error:
            # Rotten bytes in the place of a number or of text, an error message included.
            connection.close()
            raise self._unreadable(str(error)) from error
        except BaseException:
            connection.close()
            raise

    def _check_revision(self, revision: int, has_log: bool) -> None:
        """Refuse a store that has lost changes which were acknowledged."""
        acknowledged = self._revision_file.acknowledged
        if revision >= acknowledged:
            return
        if has_log:
            cause = f"{self._path} or {self._path}-wal was cut, or an older copy took its place"
        else:
            cause = f"{self._path}-wal is missing, or {self._path} is an older copy"
        raise StorageError(
            f"{cause}: the metadata ends at revision {revision}, but revision {acknowledged} was"
            f" acknowledged. Nothing was changed. Restore both files from one copy, or remove"
            f" {self._revision_file.path} to start without what is lost (topics, settings,"
            " producer ids)"
        )

    def _check_format(self, connection: sqlite3.Connection) -> None:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if application_id != _APPLICATION_ID:
            raise StorageError(f"{self._path} is a database, but not one that Tidelog wrote")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != FORMAT_VERSION:
            raise StorageError(
                f"{self._path} has store format {version}, this version of Tidelog reads format"
                f" {FORMAT_VERSION}; start the version that wrote it"
            )

    def _check_content(self, connection: sqlite3.Connection) -> int:
        """Look at every row; the revision."""
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise self._unreadable(problem)
        states = connection.execute("SELECT revision, digest, crc FROM state").fetchall()
        if len(states) != 1:
            raise self._unreadable(f"it has {len(states)} state rows in place of one")
        revision, expected, crc = states[0]
        if _state_checksum(revision, expected) != crc:
            raise self._unreadable("its state fails its checksum")
        digest = 0
        for parent, name, *columns in connection.execute(_SELECT).fetchall():
            self._checked(f"{parent}/{name}", columns)
            digest += columns[5]
        if digest != expected:
            raise self._unreadable("its nodes do not add up to its digest")
        return int(revision)

    def _drop_ephemerals(self) -> None:
        """No session outlives its process, so whatever is ephemeral is left over."""
        sessions = self._connection.execute("SELECT DISTINCT session FROM node WHERE session != 0")
        for (session,) in sessions.fetchall():
            self.end_session(session)

    def _apply(self, operations: Sequence[Operation], session: int) -> int:
        revision, digest = self._connection.execute("SELECT revision, digest FROM state").fetchone()
        revision += 1
        for index, operation in enumerate(operations):
            digest += self._apply_one(index, operation, revision, session)
        self._connection.execute(
            "UPDATE state SET revision = ?, digest = ?, crc = ?",
            (revision, digest, _state_checksum(revision, digest)),
        )
        return int(revision)

    def _apply_one(self, index: int, operation: Operation, revision: int, session: int) -> int:
        """Do one operation; by how much it changes the digest."""
        parent, name = _split(operation.path)
        row = self._connection.execute(
            "SELECT version, created, session, crc FROM node WHERE parent = ? AND name = ?",
            (parent, name),
        ).fetchone()
        if isinstance(operation, Create):
            if row is not None:
                raise Conflict(index, operation, ConflictReason.NODE_EXISTS)
            self._check_parent(index, operation, parent)
            owner = session if operation.ephemeral else NO_SESSION
            return self._insert(
                operation.path, Stored(operation.value, 0, revision, revision, owner)
            )
        if row is None:
            raise Conflict(index, operation, ConflictReason.NO_NODE)
        version, created, owner, crc = row
        if operation.version not in (ANY_VERSION, version):
            raise Conflict(index, operation, ConflictReason.BAD_VERSION)
        if isinstance(operation, Check):
            return 0
        if isinstance(operation, Set):
            new = Stored(operation.value, version + 1, created, revision, owner)
            return self._update(operation.path, new) - int(crc)
        if self.children(operation.path):
            raise Conflict(index, operation, ConflictReason.NOT_EMPTY)
        self._connection.execute("DELETE FROM node WHERE parent = ? AND name = ?", (parent, name))
        return -int(crc)

    def _check_parent(self, index: int, operation: Create, parent: str) -> None:
        if parent == "":
            return
        row = self._connection.execute(
            "SELECT session FROM node WHERE parent = ? AND name = ?", _split(parent)
        ).fetchone()
        if row is None:
            raise Conflict(index, operation, ConflictReason.NO_PARENT)
        if row[0] != NO_SESSION:
            raise Conflict(index, operation, ConflictReason.EPHEMERAL_PARENT)

    def _insert(self, path: str, node: Stored) -> int:
        crc = _checksum(path, node)
        self._connection.execute(
            "INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*_split(path), *node, crc)
        )
        return crc

    def _update(self, path: str, node: Stored) -> int:
        crc = _checksum(path, node)
        self._connection.execute(
            "UPDATE node SET value = ?, version = ?, modified = ?, crc = ?"
            " WHERE parent = ? AND name = ?",
            (node.value, node.version, node.modified, crc, *_split(path)),
        )
        return crc

    def _checked(self, path: str, columns: Sequence[object]) -> Stored:
        node = Stored(*columns[:5])  # type: ignore[arg-type]
        if not isinstance(node.value, bytes) or _checksum(path, node) != columns[5]:
            raise self._unreadable(f"node {path} fails its checksum")
        return node

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _unreadable(self, problem: str) -> StorageError:
        return StorageError(
            f"{self._path} cannot be used: {problem}; restore it from a copy, it holds the metadata"
            " of the cluster and is never made anew"
        )


def _split(path: str) -> tuple[str, str]:
    parent, slash, name = path.rpartition("/")
    if not slash or not name:
        raise ValueError(f"{path!r} is not an absolute path of a node")
    return parent, name


def _checksum(path: str, node: Stored) -> int:
    crc = zlib.crc32(node.value)
    rest = f"{path} {node.version} {node.created} {node.modified} {node.session}"
    return zlib.crc32(rest.encode(), crc)


def _state_checksum(revision: int, digest: int) -> int:
    return zlib.crc32(f"{revision} {digest}".encode())


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
