"""The original: a table in SQLite, whose every change is noted down by triggers."""

from __future__ import annotations

import random
import sqlite3

COLUMNS = ("id", "name", "cents", "stock")
PRODUCTS = "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, cents INTEGER, stock INTEGER)"
CHANGES = """
CREATE TABLE changes (number INTEGER PRIMARY KEY, operation TEXT, id INTEGER, name TEXT,
                      cents INTEGER, stock INTEGER);
CREATE TRIGGER inserted AFTER INSERT ON products BEGIN
  INSERT INTO changes SELECT NULL, 'insert', new.id, new.name, new.cents, new.stock; END;
CREATE TRIGGER updated AFTER UPDATE ON products BEGIN
  INSERT INTO changes SELECT NULL, 'update', new.id, new.name, new.cents, new.stock; END;
CREATE TRIGGER deleted AFTER DELETE ON products BEGIN
  INSERT INTO changes SELECT NULL, 'delete', old.id, NULL, NULL, NULL; END;
"""
CHANGES_PER_PRODUCT = 20
WORDS = ("lamp", "map", "book", "cup", "chair", "clock", "Schüssel", "椅子", "tom's", '12" disc')


def run_shop(count: int, chance: random.Random) -> sqlite3.Connection:
    """A database after so many changes, with all of them in `changes`."""
    database = sqlite3.connect(":memory:")
    database.execute(PRODUCTS)
    database.executescript(CHANGES)
    products = max(1, count // CHANGES_PER_PRODUCT)
    there: set[int] = set()
    for _ in range(count):
        # A product that was deleted may come back under its number.
        number = chance.randrange(products)
        if number not in there:
            there.add(number)
            row = (number, chance.choice((*WORDS, None)), chance.randrange(10_000), 0)
            database.execute("INSERT INTO products VALUES (?, ?, ?, ?)", row)
        elif chance.random() < 0.1:
            there.discard(number)
            database.execute("DELETE FROM products WHERE id = ?", (number,))
        elif chance.random() < 0.7:
            sold = (chance.randint(-5, 10), number)
            database.execute("UPDATE products SET stock = stock + ? WHERE id = ?", sold)
        else:
            priced = (chance.randrange(10_000), number)
            database.execute("UPDATE products SET cents = ? WHERE id = ?", priced)
    return database


def rows_of(database: sqlite3.Connection) -> list[dict[str, object]]:
    """The table, row by row."""
    found = database.execute(f"SELECT {', '.join(COLUMNS)} FROM products ORDER BY id")
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]
