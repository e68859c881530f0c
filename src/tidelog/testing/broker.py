"""The real broker on a thread of its own, for tests and notebooks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping

from tidelog.config import BrokerConfig, load
from tidelog.config.local_defaults import LOCAL_DEFAULTS
from tidelog.host.host import Host, system_host
from tidelog.server.broker import Broker as ServerBroker
from tidelog.server.passing_time import let_pass
from tidelog.server.process import new_event_loop
from tidelog.server.stores import store_connector
from tidelog.testing.loop_thread import LoopThread
from tidelog.testing.security import Secured, Security
from tidelog.testing.settings import (
    SettingValue,
    StrPath,
    path_text,
    setting_texts,
)
from tidelog.testing.virtual_clock import CLOCK_DEFAULTS, BrokersClock, VirtualClock


class Broker(Secured):
    """A broker on a free port of the loopback, in a temporary directory unless one is given.

    >>> with Broker() as broker:
    ...     broker.bootstrap_servers
    '127.0.0.1:...'

    Settings are Kafka's: `Broker(settings={"num.partitions": 3})`. Their values are text, numbers,
    booleans, paths, or lists of text and paths; ConfigError names one that does not fit. Several
    brokers may run in one process. The directory given with `data_dir` is kept, so that a second
    broker can be started on what the first one left. With a `clock`, tests let time pass: records
    are then dated by the broker, unless the settings say otherwise.

    With `security`, a protocol or a `Security`, clients prove who they are; `client_settings` and
    `librdkafka_settings` say how.
    """

    def __init__(
        self,
        *,
        data_dir: StrPath | None = None,
        port: int = 0,
        settings: Mapping[str, SettingValue] | None = None,
        clock: VirtualClock | None = None,
        security: Security | str | None = None,
    ) -> None:
        super().__init__(security)
        self._clock = clock
        self._brokers_clock: BrokersClock | None = None
        self._data_dir = None if data_dir is None else path_text("data_dir", data_dir)
        self._port = port
        self._settings = setting_texts(settings)
        self._temporary: str | None = None
        self._thread: LoopThread | None = None
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
            self._let_go()
            raise
        return self

    def _start_in(self, directory: str) -> None:
        protocol, secured = "PLAINTEXT", {}
        self._make_keys()
        if self._security is not None:
            assert self._secrets is not None
            protocol, secured = self._security.protocol, self._secrets.broker_settings()
        config = load(
            overrides={
                "listeners": f"{protocol}://127.0.0.1:{self._port}",
                **secured,
                "log.dirs": directory,
                **LOCAL_DEFAULTS,
                **(CLOCK_DEFAULTS if self._clock is not None else {}),
                **self._settings,
            }
        )
        host = system_host("broker", config.get_int("offload.threads"))
        if self._clock is not None:
            host.clock = self._brokers_clock = self._clock.follow(self._let_pass)
        thread = LoopThread("tidelog-broker", new_event_loop)
        try:
            broker = thread.call(_bring_up(config, host))
            if self._security is not None:
                thread.call(_add_users(broker, host, self._security))
        except BaseException:
            thread.close()
            raise
        self._thread, self._broker = thread, broker
        self.bootstrap_servers = broker.bootstrap_servers
        self.metrics_port = broker.metrics_port

    def stop(self) -> None:
        """Drain, stop, and remove the temporary directory."""
        if self._thread is None:
            return
        assert self._broker is not None
        self._thread.call(self._broker.stop())
        self._thread.close()
        self._thread = self._broker = None
        self._let_go()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _let_pass(self, ms: int) -> None:
        if self._thread is not None:
            self._thread.call(self._pass(ms))

    async def _pass(self, ms: int) -> None:
        clock, broker = self._brokers_clock, self._broker
        assert clock is not None and broker is not None, "a broker that runs, with a clock"

        def move() -> None:
            clock.ahead_ms += ms

        await let_pass([broker], ms, move)

    def _let_go(self) -> None:
        """Forget the clock and remove the temporary directory."""
        if self._clock is not None and self._brokers_clock is not None:
            self._clock.unfollow(self._brokers_clock)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
        self._drop_keys()


async def _bring_up(config: BrokerConfig, host: Host) -> ServerBroker:
    broker = ServerBroker(config, host, connect_store=store_connector(config, host))
    await broker.start()
    return broker


async def _add_users(broker: ServerBroker, host: Host, security: Security) -> None:
    """Those whose credentials the cluster keeps."""
    from tidelog.cluster.commands import AlterScramCredentials
    from tidelog.security.credentials import credential_of_password
    from tidelog.security.scram import ITERATIONS_MIN, SCRAM_SHA_256, SCRAM_SHA_512

    for user, password in security.scram_users.items():
        is_short = security.mechanism == SCRAM_SHA_256.name
        mechanism = SCRAM_SHA_256 if is_short else SCRAM_SHA_512
        # Few iterations: a test's password guards nothing, and each takes time.
        made = credential_of_password(mechanism, password, host.random.uuid().bytes, ITERATIONS_MIN)
        command = AlterScramCredentials(user, {mechanism.name: made})
        await broker.parts.submitter.submit(command)
