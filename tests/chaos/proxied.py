"""Brokers that others, brokers and clients, know only by the proxies before them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.brokers import Brokers
from tests.chaos.holding import HoldingProxy


class ProxiedBrokers(Brokers):
    """A proxy for each broker; `server` and `address` still name the broker itself."""

    def __init__(self, count: int, data: Path, settings: Mapping[str, str], store: str) -> None:
        super().__init__(count, data, settings, store)
        self.proxies = [HoldingProxy(self.address(each)) for each in self.ids]

    def address(self, broker: int) -> tuple[str, int]:
        host, _, port = self.server(broker).rpartition(":")
        return host, int(port)

    def end(self) -> None:
        for broker in self.ids:
            if self.is_running(broker):
                self.kill(broker)
        for proxy in self.proxies:
            proxy.close()

    def launch(self, broker: int) -> None:
        told = f"PLAINTEXT://127.0.0.1:{self.proxies[broker].port}"
        os.environ["TIDELOG_ADVERTISED_LISTENERS"] = told
        try:
            super().launch(broker)
        finally:
            del os.environ["TIDELOG_ADVERTISED_LISTENERS"]
