"""What `tidelog doctor` found out about one thing."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Finding:
    """Whether something is well, in a sentence, and what to do where it is not."""

    ok: bool
    name: str
    sentence: str
    hint: str = ""

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "hint": self.hint or None}


def well(name: str, sentence: str) -> Finding:
    return Finding(True, name, sentence)


def fault(name: str, sentence: str, hint: str) -> Finding:
    return Finding(False, name, sentence, hint)
