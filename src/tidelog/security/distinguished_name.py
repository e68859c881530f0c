"""The subject of a certificate, as Java writes it (RFC 2253), and the rules that make a principal.

The name is read from the certificate's DER, because the standard library gives it in a form that
tells neither the order of several values in one part nor their types. The certificate was verified
before; bytes that are none raise `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.errors import ConfigError

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# How the text of a value is encoded, by its ASN.1 type.
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """The subject's name of a certificate in DER."""
    try:
        return _subject_of(certificate)
    except (IndexError, StopIteration):
        raise ValueError("the certificate is cut off") from None


def _subject_of(certificate: bytes) -> str:
    ((_, whole, _),) = _elements(certificate)
    _, signed, _ = next(_elements(whole))
    fields = [each for each in _elements(signed) if each[0] != _VERSION]
    # Serial number, algorithm, issuer, validity, subject.
    tag, subject, _ = fields[4]
    if tag != _SEQUENCE:
        raise ValueError("the certificate has no subject")
    parts = []
    for _, relative, _ in _elements(subject):
        parts.append("+".join(_attribute(pair) for _, pair, _ in _elements(relative)))
    return ",".join(reversed(parts))


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements one behind the other: tag, content, and all of its bytes."""
    position = 0
    while position < len(data):
        begin = position
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("a length of the certificate is malformed")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("the certificate is cut off")
        yield tag, data[position:end], data[begin:end]
        position = end


def _attribute(pair: bytes) -> str:
    (_, oid, _), (tag, value, whole) = _elements(pair)
    name = _dotted(oid)
    keyword = _KEYWORDS.get(name)
    if keyword is None or tag not in _ENCODINGS:
        return f"{keyword or name}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(_ENCODINGS[tag]))}"


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    body = "".join(
        "\\00" if each == "\0" else "\\" + each if each in _ESCAPED else each for each in text
    )
    stripped = body.strip(" ")
    leading = len(body) - len(body.lstrip(" "))
    trailing = len(body) - leading - len(stripped)
    return "\\ " * leading + stripped + "\\ " * trailing


class _Rule(NamedTuple):
    """What a name is turned into where the pattern matches all of it; None takes it as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


_GROUP: Final = re.compile(r"\$(\d)")
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^/\\])*)/([^/]*)/([LU]?))\s*(?:,|$)")


class PrincipalRules:
    """`ssl.principal.mapping.rules`; ConfigError where they are malformed."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {text[position:]} is neither DEFAULT nor"
                    " RULE:pattern/replacement/[LU]"
                )
            self._rules.append(_rule(found))
            position = found.end()

    def name_of(self, subject: str) -> str | None:
        """The name without `User:`; None where no rule fits."""
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            found = rule.pattern.fullmatch(subject)
            if found is None:
                continue
            name = _filled(rule.replacement, found)
            return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
        return None


def _filled(replacement: str, found: re.Match[str]) -> str:
    return _GROUP.sub(lambda group: found[int(group[1])] or "", replacement)


def _rule(found: re.Match[str]) -> _Rule:
    default, pattern, replacement, case = found.groups()
    if default:
        return _Rule(None)
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"ssl.principal.mapping.rules: {pattern} is no pattern: {error}"
        ) from None
    wanted = max((int(each) for each in _GROUP.findall(replacement)), default=0)
    if wanted > compiled.groups:
        raise ConfigError(
            f"ssl.principal.mapping.rules: ${wanted} has no group in the pattern {pattern}"
        )
    return _Rule(compiled, replacement, case)
