"""The real broker on a thread of its own, for tests and notebooks."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog.config import load
from tidelog.config.setting import format_value
from tidelog.errors import ConfigError
from tidelog.host.host import system_host
from tidelog.server.broker import Broker as ServerBroker
from tidelog.server.process import new_event_loop

StrPath: TypeAlias = str | os.PathLike[str]
SettingValue: TypeAlias = StrPath | bool | int | float | Sequence[StrPath]


class Broker:
    """A broker on a free port of the loopback, in a temporary directory unless one is given.

    >>> with Broker() as broker:
    ...     broker.bootstrap_servers
    '127.0.0.1:...'

    Settings are Kafka's: `Broker(settings={"num.partitions": 3})`. Their values are text, numbers,
    booleans, paths, or lists of text and paths; ConfigError names one that does not fit. Several
    brokers may run in one process. The directory given with `data_dir` is kept, so that a second
    broker can be started on what the first one left.
    """

    def __init__(
        self,
        *,
        data_dir: StrPath | None = None,
        port: int = 0,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None else _path_text("data_dir", data_dir)
        self._port = port
        self._settings = {
            name: _setting_text(name, value) for name, value in (settings or {}).items()
        }
        self._temporary: str | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: ServerBroker | None = None
        self.bootstrap_servers = ""
        self.metrics_port: int | None = None

    def start(self) -> Broker:
        """Start and return when clients are served; raises what kept it from starting."""
        directory = self._data_dir
        if directory is None:
            directory = self._temporary = tempfile.mkdtemp(prefix="tidelog-")
        try:
            self._start_in(directory)
        except BaseException:
            self._remove_temporary()
            raise
        return self

    def _start_in(self, directory: str) -> None:
        overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": directory,
            "auto.create.topics.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "500",
            **self._settings,
        }
        config = load(overrides=overrides)
        loop = new_event_loop()
        started: list[BaseException | None] = []
        ready = threading.Event()

        async def bring_up() -> None:
            broker = ServerBroker(config, system_host("broker", config.get_int("offload.threads")))
            await broker.start()
            self._broker = broker

        def run() -> None:
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(bring_up())
                started.append(None)
            except BaseException as error:
                started.append(error)
            ready.set()
            if started == [None]:
                loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()

        self._loop = loop
        self._thread = threading.Thread(target=run, name="tidelog-broker")
        self._thread.start()
        ready.wait()
        if started[0] is not None:
            self._thread.join()
            self._thread = None
            raise started[0]
        assert self._broker is not None
        self.bootstrap_servers = self._broker.bootstrap_servers
        self.metrics_port = self._broker.metrics_port

    def stop(self) -> None:
        """Drain, stop, and remove the temporary directory."""
        if self._thread is None:
            return
        assert self._loop is not None and self._broker is not None
        asyncio.run_coroutine_threadsafe(self._broker.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = self._broker = None
        self._remove_temporary()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def _setting_text(name: object, value: object) -> str:
    """A setting's value as the text that the broker reads; the table says whether it fits."""
    if not isinstance(name, str):
        raise ConfigError(f"the name of a setting is text, not {name!r}")
    if isinstance(value, list | tuple):
        return ",".join(_path_text(name, each) for each in value)
    if isinstance(value, bool | int | float):
        return str(format_value(value))
    return _path_text(name, value)


def _path_text(name: str, value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ConfigError(
            f"{name}: {value!r} is a {type(value).__name__}; give text, a number, a boolean, a path"
            " or a list of these, or leave it out for its default"
        )
    return text
