"""A mutant: the product without one rule, and how it is found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.sim.run import Outcome, Plan, run_seed

# Whose attribute, which one, and what it is instead.
Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule, and the product without it.

    It is found out by seeds of a profile, by seeds of a script, or, where a world does not show
    it, by a test: its file and name, as pytest takes them.
    """

    name: str
    rule: str
    patches: Callable[[], list[Patch]]
    profile: str = ""
    script: str = ""
    groups: bool = False
    # What fires is an error, not an invariant. Of others that says that the patch does not fit.
    by_error: bool = False
    test: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = []
        for owner, name, value in self.patches():
            # An inherited attribute goes again; a missing one is a mistake.
            before.append((owner, name, vars(owner).get(name), name in vars(owner)))
            getattr(owner, name)
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, name, value, was_own in reversed(before):
                if was_own:
                    setattr(owner, name, value)
                else:
                    delattr(owner, name)

    @property
    def plan(self) -> Plan:
        return Plan(3, self.profile, script=self.script, groups=self.groups)

    @property
    def how(self) -> str:
        found_by = self.test or self.script or self.profile or "any profile"
        return f"{found_by}, with groups" if self.groups else found_by

    def run(self, seed: int) -> Outcome:
        with self.applied():
            return run_seed(seed, self.plan)
