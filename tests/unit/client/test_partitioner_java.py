"""10,000 random keys in the partitions that Java's own default partitioner picks."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from bench.peers.kafka import class_path
from tidelog.client.partitioner import partition_for_key

pytestmark = pytest.mark.java

PROGRAM = """
import java.io.*;
import java.util.*;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            byte[] key = HexFormat.of().parseHex(fields[1]);
            int count = Integer.parseInt(fields[0]);
            out.append(BuiltInPartitioner.partitionForKey(key, count)).append('\\n');
        }
        System.out.print(out);
    }
}
"""
KEYS = 10_000


def test_keys_land_where_java_puts_them(tmp_path: Path) -> None:
    source = tmp_path / "Partitions.java"
    source.write_text(PROGRAM)
    chosen = random.Random(2026)
    keys = [chosen.randbytes(chosen.randrange(0, 40)) for _ in range(KEYS)]
    counts = [chosen.choice([1, 2, 3, 6, 7, 12, 50, 1000]) for _ in range(KEYS)]
    lines = (f"{count} {key.hex()}\n" for count, key in zip(counts, keys, strict=True))
    command = ["java", "-XX:+UseSerialGC", "-cp", class_path(), str(source)]
    done = subprocess.run(
        command, input="".join(lines), capture_output=True, text=True, check=True, timeout=120
    )
    theirs = [int(line) for line in done.stdout.split()]
    ours = [partition_for_key(key, count) for key, count in zip(keys, counts, strict=True)]
    assert len(theirs) == KEYS
    assert ours == theirs
