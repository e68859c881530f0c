"""The table of the shop in another SQLite database, restored from its topic and kept up to date.

    python -m examples.pipelines.commit_log.restore products products.db

It reads the broker of TIDELOG_BOOTSTRAP_SERVERS, 127.0.0.1:9092 by default. How far it has read is
in the same database, and changes with the rows in one transaction: killed at any moment, it goes on
where the table is. A record that comes a second time changes nothing, because a key's last record
comes last again.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidelog
from examples.pipelines.commit_log.shop import COLUMNS, PRODUCTS, rows_of
from examples.pipelines.targets import COMPACTED, Held, Kind, Place, as_texts
from tidelog.arrow.read import Options

POSITIONS = "CREATE TABLE positions (partition INTEGER PRIMARY KEY, next INTEGER)"
UPSERT = f"REPLACE INTO products VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
DELETE = "DELETE FROM products WHERE id = ?"


def open_database(path: str | Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    with database:
        for statement in (PRODUCTS, POSITIONS):
            database.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS", 1))
    return database


def restore(database: sqlite3.Connection, topic: str, **options: Any) -> int:
    """Bring the table to where the topic ends now; how many records that took."""
    positions = dict(database.execute("SELECT partition, next FROM positions"))
    columns = ["key", "value", "partition", "offset"]
    applied = 0
    for batch in tidelog.scan(topic, positions or "earliest", columns=columns, **options):
        with database:
            apply(database, batch.to_pylist())
        applied += batch.num_rows
    return applied


def apply(database: sqlite3.Connection, records: Sequence[dict[str, Any]]) -> None:
    """Records of a topic, in order, and how far they reach; a transaction is the caller's part."""
    for record in records:
        if record["value"] is None:
            database.execute(DELETE, (int(record["key"]),))
        else:
            row = json.loads(record["value"])
            database.execute(UPSERT, {name: row.get(name) for name in COLUMNS})
        reached = (record["partition"], record["offset"] + 1)
        database.execute("REPLACE INTO positions VALUES (?, ?)", reached)


@dataclass(frozen=True)
class Restored(Kind):
    """A compacted topic restored twice: as it comes, and at once from what compaction leaves."""

    topic: str
    configs = COMPACTED

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        options = Options(bootstrap_servers=place.servers)
        name = self.topic + place.suffix
        with closing(open_database(place.directory / "products.db")) as database:
            restore(database, name, **options)
            rows = rows_of(database)
        note = place.compacted(self.topic)
        with closing(open_database(":memory:")) as database:
            restore(database, name, **options)
            if rows_of(database) != rows:
                return Held(Counter(), note=f"{note}, which changed it")
        return Held(Counter(as_texts(rows)), note=note)


if __name__ == "__main__":
    with closing(open_database(sys.argv[2])) as database:
        count = restore(database, sys.argv[1])
        print(f"{count:,} records applied, {len(rows_of(database)):,} rows")
