"""Secrets that tests give to brokers and clients, and whether any of them is shown (X23, X34).

Every password that passes through the settings of a broker, through a file of settings that a
program is started with, or into a SCRAM credential is learned while the suite runs. From then on it
must not be in:

- a line that anything in this process logs, with its traceback;
- the command line of a program that a test starts, and what that program writes, to a file or to a
  pipe;
- the audit log, the metrics, the described settings or the `repr` of the settings of a broker in
  this process, when it stops.

`tests/conftest.py` installs this for the whole run, and fails the test during which a secret was
shown. What is too short or a plain word is not watched: it would be found where it is no secret.
"""

from __future__ import annotations

import functools
import logging
import re
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tidelog.config import BrokerConfig
from tidelog.config.describe import describe_broker
from tidelog.security.scram import Mechanism
from tidelog.server.broker import Broker

_LENGTH_MIN: Final = 6
_FILES_BYTES_MAX: Final = 64 << 20
# Settings whose value is a secret, or has some in it.
_NAMES: Final = re.compile(
    r"(password|jaas\.config|digest|metrics\.users|ssl\.keystore\.key|token)$"
)
_QUOTED: Final = re.compile(r'(?:user_\S+|password)\s*=\s*"([^"]*)"')
_SETTINGS_FILES: Final = (".properties", ".yaml", ".yml", ".conf")


class Canaries:
    """The secrets of the run, and where one was shown."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.leaks: list[str] = []
        # What programs write into files: looked at when the test is over.
        self._files: dict[str, int] = {}
        self.looks = 0

    @property
    def count(self) -> int:
        return len(self._secrets)

    def learn(self, secret: str) -> None:
        """Watch for a password from now on."""
        is_word = secret.isalpha() and secret.islower()
        if len(secret) < _LENGTH_MIN or is_word or secret in self._secrets:
            return
        self._secrets.add(secret)
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._secrets))))

    def learn_setting(self, name: str, value: str) -> None:
        if not _NAMES.search(name):
            return
        quoted = _QUOTED.findall(value)
        for each in quoted or re.split(r"[,\s]+", value):
            # `user:password` in the settings that hold pairs.
            is_pair = name.endswith(("digest", "metrics.users"))
            self.learn(each.partition(":")[2] if is_pair else each)

    def look(self, where: str, text: str) -> None:
        self.looks += 1
        if self._pattern is not None and (found := self._pattern.search(text)) is not None:
            around = text[max(0, found.start() - 60) : found.end() + 20]
            self.leaks.append(f"{where}: …{around}…")

    def watch_file(self, path: str) -> None:
        self._files.setdefault(path, 0)

    def look_at_files(self) -> None:
        """What programs have written since this was asked last."""
        for path, start in self._files.items():
            try:
                with open(path, "rb") as file:
                    file.seek(start)
                    data = file.read(_FILES_BYTES_MAX)
            except OSError:
                continue
            self._files[path] = start + len(data)
            self.look(f"output of a program in {Path(path).name}", data.decode(errors="replace"))

    def take_leaks(self) -> list[str]:
        self.look_at_files()
        taken, self.leaks = self.leaks, []
        return taken


class _LogWatch(logging.Handler):
    """Looks at every line that is logged in this process."""

    def __init__(self, canaries: Canaries) -> None:
        super().__init__()
        self._canaries = canaries

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += "".join(traceback.format_exception(record.exc_info[1]))
        self._canaries.look(f"log of {record.name}", text)


def shown_by(broker: Broker) -> Iterator[tuple[str, str]]:
    """What somebody without special rights can see of a broker."""
    config = broker._config
    for each in describe_broker(config, dynamic_broker={}, dynamic_default={}):
        yield "described settings", repr(each)
    yield "repr of the settings", repr(config)
    if broker._parts is not None:
        yield "metrics", "\n".join(broker._parts.requests.metrics.lines())


def audited_by(broker: Broker) -> Iterator[tuple[str, str]]:
    for directory in broker._config.data_dirs:
        for path in Path(directory, "audit").glob("*"):
            yield f"audit log {path.name}", path.read_text(errors="replace")


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Put a function around a method; returns what takes it away again."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, original)


def install(canaries: Canaries) -> Callable[[], None]:
    """Learn and look from now on; returns what ends it."""

    def configured(original: Any, config: BrokerConfig, static: Any = None, **named: Any) -> None:
        given = {**(static or {}), **(named.get("dynamic") or {})}
        for name, value in given.items():
            canaries.learn_setting(name, str(value))
        original(config, static, **named)

    def salted(original: Any, mechanism: Mechanism, password: bytes, *rest: Any) -> Any:
        canaries.learn(password.decode(errors="replace"))
        return original(mechanism, password, *rest)

    async def stopped(original: Any, broker: Broker, *given: Any, **named: Any) -> None:
        # Most brokers of the suite know no secret, and so does a run without any.
        if canaries.count:
            for where, text in shown_by(broker):
                canaries.look(where, text)
        await original(broker, *given, **named)
        if canaries.count:
            for where, text in audited_by(broker):
                canaries.look(where, text)

    def started(original: Any, process: Any, args: Any, *given: Any, **named: Any) -> None:
        words = [str(each) for each in args] if isinstance(args, (list, tuple)) else [str(args)]
        for word in words:
            if word.endswith(_SETTINGS_FILES):
                _learn_file(canaries, word)
        if any("tidelog" in word for word in words):
            canaries.look("command line", " ".join(words))
            for stream in (named.get("stdout"), named.get("stderr")):
                path = getattr(stream, "name", None)
                if isinstance(path, str):
                    canaries.watch_file(path)
        original(process, args, *given, **named)

    def communicated(original: Any, process: Any, *given: Any, **named: Any) -> Any:
        result = original(process, *given, **named)
        if "tidelog" in str(process.args):
            for data in result:
                text = data.decode(errors="replace") if isinstance(data, bytes) else data
                canaries.look("output of a program", text or "")
        return result

    handler = _LogWatch(canaries)
    logging.getLogger().addHandler(handler)
    undo = [
        _wrap(BrokerConfig, "__init__", configured),
        _wrap(Mechanism, "salt_password", salted),
        _wrap(Broker, "stop", stopped),
        _wrap(subprocess.Popen, "__init__", started),
        _wrap(subprocess.Popen, "communicate", communicated),
    ]

    def end() -> None:
        logging.getLogger().removeHandler(handler)
        for each in undo:
            each()

    return end


def _learn_file(canaries: Canaries, path: str) -> None:
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        name, _, value = line.partition("=")
        canaries.learn_setting(name.strip(), value.strip())
