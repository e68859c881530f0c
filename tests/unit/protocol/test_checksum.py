"""CRC-32C, loaded by itself."""

from __future__ import annotations

import crc32c as package

from tidelog.protocol.checksum import crc32c


def test_it_is_the_packages_function_and_the_right_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = memoryview(bytearray(range(256)) * 40)
    assert crc32c(data[7:9001]) == package.crc32c(bytes(data[7:9001]))
