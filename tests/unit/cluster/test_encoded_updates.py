"""However many brokers ask for the same update, it is encoded once; and all get what they lack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tidelog.cluster import wire
from tidelog.cluster.change_history import ChangeHistory
from tidelog.cluster.changes import AclsChanged, BrokerGone, ChangeBatch, Update
from tidelog.cluster.encoded_updates import EncodedUpdates
from tidelog.cluster.image import MetadataImage
from tidelog.security.acl import AclBinding


class CountedOffload:
    """Does what it is given in a later turn of the loop, and counts."""

    def __init__(self) -> None:
        self.runs = 0
        self.failure: Exception | None = None

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        self.runs += 1

        async def later() -> Any:
            await asyncio.sleep(0)
            if self.failure is not None:
                raise self.failure
            return function(*arguments)

        return asyncio.ensure_future(later())


def image(version: int, epoch: int = 1) -> MetadataImage:
    return replace(MetadataImage(), version=version, controller_epoch=epoch)


def batch(version: int) -> ChangeBatch:
    return ChangeBatch(version, (BrokerGone(version),))


def test_all_who_ask_for_an_update_have_it_encoded_once() -> None:
    async def run() -> None:
        offload = CountedOffload()
        updates = EncodedUpdates(offload)  # type: ignore[arg-type]
        for number, update in enumerate(
            (Update(image=image(5)), Update(batches=(batch(6), batch(7))), Update(image=image(7)))
        ):
            asked = [updates.encode(update, 1) for _ in range(350)]
            assert set(await asyncio.gather(*asked)) == {wire.encode(update)}
            assert await updates.encode(update, 1) == wire.encode(update)
            assert offload.runs == number + 1
        again = Update(image=image(7, epoch=2))
        assert await updates.encode(again, 2) == wire.encode(again), "of another controller"
        assert await updates.encode(Update(), 2) == wire.encode(Update())

    asyncio.run(run())


def test_one_who_leaves_does_not_take_it_from_the_others() -> None:
    async def run() -> None:
        updates = EncodedUpdates(CountedOffload())  # type: ignore[arg-type]
        update = Update(image=image(5))
        leaving = asyncio.ensure_future(updates.encode(update, 1))
        staying = asyncio.ensure_future(updates.encode(update, 1))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == wire.encode(update)

    asyncio.run(run())


def test_a_failure_is_not_kept() -> None:
    async def run() -> None:
        offload = CountedOffload()
        updates = EncodedUpdates(offload)  # type: ignore[arg-type]
        offload.failure = MemoryError("no room")
        with pytest.raises(MemoryError):
            await updates.encode(Update(image=image(5)), 1)
        offload.failure = None
        assert await updates.encode(Update(image=image(5)), 1) == wire.encode(
            Update(image=image(5))
        )

    asyncio.run(run())


def test_all_brokers_are_given_one_image_while_the_changes_lead_on_from_it() -> None:
    async def run() -> None:
        history = ChangeHistory(10, size_max=3)
        assert history.whole(0, image(10)).image == image(10)
        for version in (11, 12, 13):
            history.add(batch(version))
            assert history.whole(10, image(version)).image == image(10)
            led_on = history.after(10, image(version))
            assert [each.version for each in led_on.batches] == list(range(11, version + 1))
        history.add(batch(14))
        assert history.whole(10, image(14)).image == image(14), "the changes since 10 are gone"

    asyncio.run(run())


def test_nobody_is_given_an_image_older_than_its_own() -> None:
    async def run() -> None:
        history = ChangeHistory(10, size_max=100)
        history.whole(0, image(10))
        history.add(batch(11))
        assert history.whole(11, image(11)).image == image(11)

    asyncio.run(run())


def test_a_change_of_many_rules_takes_as_much_of_the_history_as_they_do() -> None:
    def rules(version: int, count: int) -> ChangeBatch:
        made = [
            AclBinding(2, 3, f"t{version}-{each}", "User:a", "*", 3, 3) for each in range(count)
        ]
        return ChangeBatch(version, (AclsChanged(tuple(made[1:]), tuple(made[:1])),))

    history = ChangeHistory(10, size_max=1_000)
    for version in range(11, 15):
        history.add(rules(version, 400))
    assert [each.version for each in history.after(12, image(14)).batches] == [13, 14]
    assert history.after(11, image(14)).image == image(14), "800 of 1,000 are kept"
    history.add(rules(15, 1_001))
    assert history.after(14, image(15)).image == image(15)
    history.add(batch(16))
    assert [each.version for each in history.after(15, image(16)).batches] == [16]
