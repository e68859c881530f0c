"""How a broker keeps its image: fed by the controller, change by change.

Promises: the image moves forward only, by whole transactions, in the controller's order; what an
older controller says, or one that is behind, is refused. Subscribers are called synchronously, in
the order of subscription, with the image before, the image after and the changes between; whoever
waits for a version goes on after all of them. A subscriber that fails is given the whole image
instead; if it fails again, the broker stops. After a gap the changes are computed from both images.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tidelog.cluster.changes import Change, TopicDeleted, Update, changes_between
from tidelog.cluster.controller import UNKNOWN_EPOCH
from tidelog.cluster.image import MetadataImage
from tidelog.errors import ErrorCode, KafkaError, TidelogError

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataImage, MetadataImage, tuple[Change, ...]], None]
# The arguments are those of `Controller.changes_after`: version, time to wait, controller epoch.
Poll = Callable[[int, float, int], Awaitable[Update]]

_POLL_TIMEOUT_S: Final = 30.0
_RETRY_DELAY_S: Final = 0.1
_RETRY_DELAY_MAX_S: Final = 2.0


class ImageFeed:
    """Holds the broker's image, from `start` to `close`.

    feed = ImageFeed(controller.changes_after)
    await feed.start()
    await feed.wait_for_version(controller.image.version)
    """

    def __init__(self, poll: Poll) -> None:
        self._poll = poll
        self.image = MetadataImage()
        self._epoch = UNKNOWN_EPOCH
        self._delay_s = _RETRY_DELAY_S
        self._hurried = asyncio.Event()
        self._subscribers: list[Subscriber] = []
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        # Why the last try failed, where it did.
        self._fault = ""
        # Since when the controller cannot be asked, on the loop's clock; None while it can.
        self.stale_since: float | None = None

    async def start(self) -> None:
        """Take the first image, then follow; a controller that cannot be reached is waited for."""
        assert self._task is None, "a feed starts once"
        while not self.image.version:
            await self._poll_patiently()
        self._task = asyncio.create_task(self._run(), name="image-feed")

    async def close(self) -> None:
        """Stop following; whoever still waits for a version is refused."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def wait_closed(self) -> None:
        """Return once the feed has stopped; raise what made it stop, if it was not asked."""
        assert self._task is not None, "the feed was not started"
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(old, new, changes)` from the next change on; returns what ends that."""
        self._subscribers.append(subscriber)

        def cancel() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return cancel

    async def wait_for_version(self, version: int) -> None:
        """Return once the image is at `version` or later, at once where it is."""
        await self.wait_for(lambda image: image.version >= version)

    async def wait_for(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Return once the image is as wanted, at once where it is."""
        if condition(self.image):
            return
        if self._task is None or self._task.done():
            raise _stopped()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (condition, waiter)
        self._waiters.append(entry)
        try:
            await waiter
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def _run(self) -> None:
        try:
            while True:
                await self._poll_patiently()
        finally:
            for _, waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(_stopped())

    async def _poll_patiently(self) -> None:
        """Ask once; where that fails, wait a little, longer each time."""
        try:
            update = await self._poll(self.image.version, _POLL_TIMEOUT_S, self._epoch)
            self._check(update)
        except (TidelogError, OSError) as error:
            if str(error) != self._fault:
                # Once for all tries that fail alike: how long it lasts is a metric.
                self._fault = str(error)
                logger.warning(
                    "metadata not followed reason=%s version=%d", error, self.image.version
                )
            if self.stale_since is None:
                self.stale_since = asyncio.get_running_loop().time()
            await self._rest()
        else:
            self._delay_s = _RETRY_DELAY_S
            self.stale_since = None
            self._fault = ""
            self._take(update)

    async def _rest(self) -> None:
        """Until it is time to ask again."""
        self._hurried.clear()
        rest_s = self._delay_s
        self._delay_s = min(2 * self._delay_s, _RETRY_DELAY_MAX_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._hurried.wait()

    def hurry(self) -> None:
        """Somebody else may be the controller: ask at once, and again soon."""
        self._delay_s = _RETRY_DELAY_S
        self._hurried.set()

    def _check(self, update: Update) -> None:
        image = update.image
        if image is not None and (
            image.version < self.image.version or image.controller_epoch < self._epoch
        ):
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"an older image was offered: version {image.version} of controller epoch"
                f" {image.controller_epoch}",
            )

    def _take(self, update: Update) -> None:
        image = update.image
        if image is not None:
            self._epoch = image.controller_epoch
            self._move_to(image, changes_between(self.image, image))
        for batch in update.batches:
            if batch.version <= self.image.version:
                continue
            self._move_to(self.image.apply_all(batch.changes, batch.version), batch.changes)

    def _move_to(self, image: MetadataImage, changes: tuple[Change, ...]) -> None:
        old, self.image = self.image, image
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(old, image, changes)
            except Exception:
                # Nothing is skipped: it gets the whole image, and the deletions, of which that says
                # nothing. The broker stops if that fails.
                logger.exception("a change was not followed version=%d", image.version)
                deletions = (each for each in changes if isinstance(each, TopicDeleted))
                whole = changes_between(MetadataImage(), image)
                subscriber(MetadataImage(), image, (*deletions, *whole))
        for condition, waiter in self._waiters:
            if not waiter.done() and condition(image):
                waiter.set_result(None)


def _stopped() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "The broker has stopped following the metadata.")
