"""What `tidelog doctor` found out about one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Finding:
    """Whether something is well, in a sentence, and what to do where it is not."""

    ok: bool
    name: str
    sentence: str
    hint: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "name": self.name,
            "sentence": self.sentence,
            "hint": self.hint or None,
        }
