"""Scripts that bring a world to a moment that chance hardly ever finds, by name.

Each is one of the anomalies of RELIABILITY 3.1, played against real brokers: a message that is held
for a whole epoch, a crash right after a change. They are clean with the product as it is.
"""

from __future__ import annotations

from typing import Final

from tests.sim.stage import FETCH, FOLLOW_METADATA, SUBMIT_COMMAND, Script, Stage
from tidelog.model import ListedOffset
from tidelog.testing.disk import CrashMode


async def double_failover(stage: Stage) -> None:
    """KIP-279: a leader of a moment comes back, and its epoch is one that nobody else knows.

    The records of the first epoch end further up in the new leader's log than in its own.
    """
    short = stage.controller
    first, long = stage.others(short)
    await stage.create(first, short, long)
    await stage.write(first, 3)
    stage.part(short, first, long)
    await stage.write(first, 5, acks=1)
    await stage.until(lambda: stage.end(long) == 8, "a follower has all")
    # Cut off from its followers, not from the store and its clients: it elects itself.
    stage.expire(first)
    await stage.until(lambda: stage.leads(short), "the controller leads")
    await stage.write(short, 4, acks=1)
    short.kill()
    stage.join(short, first, long)
    await stage.until(lambda: stage.leads(long), "the other one leads")
    short.boot_up()
    await stage.until(lambda: short.is_serving, "the leader of a moment is back")
    await stage.until(lambda: len(stage.state.isr) > 1, "another one is in sync")
    await stage.write(long, 3)
    await stage.sleep(0.5)


async def watermarks_that_lag(stage: Stage) -> None:
    """KIP-101: followers have a record and do not know that it is committed; their leader dies."""
    heir = stage.controller
    first, follower = stage.others(heir)
    await stage.create(first, heir, follower)
    await stage.write(first, 3)
    await stage.sleep(0.2)
    for each in (heir, follower):
        stage.hold(FETCH, sender=first, receiver=each, answer=True, passing=1)
    await stage.write(first, 1)
    first.kill()
    await stage.until(lambda: stage.leads(heir), "the heir leads")
    await stage.sleep(0.5)


async def power_cut_after_a_sync(stage: Stage) -> None:
    """I31: a follower has had the time to bring its records to the disk."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, controller, follower, flush_ms="500")
    await stage.write(leader, 3)
    await stage.sleep(3.0)
    follower.cut_power(CrashMode.LOSE_ALL)
    follower.boot_up()
    await stage.until(lambda: follower.is_serving, "the follower is back")


async def stale_watermark(stage: Stage) -> None:
    """KAFKA-7128: a new leader knows less of what is committed than it has.

    A replica that lacks some of it has caught up with the watermark, and must not join.
    """
    heir = stage.controller
    first, late = stage.others(heir)
    await stage.create(first, heir, late)
    await stage.write(first, 3)
    await stage.sleep(0.2)
    stage.part(first, late)
    # The record gets through. That it is committed, once one has left the ISR, does not.
    stage.hold(FETCH, sender=first, receiver=heir, answer=True, passing=1)
    await stage.write(first, 1)
    await stage.until(lambda: stage.isr(first, heir), "one has left the ISR")
    first.kill()
    kept_back = stage.hold(FETCH, sender=heir, receiver=late, answer=True)
    await stage.until(lambda: stage.leads(heir), "the heir leads")
    await stage.caught(kept_back)
    latest = await stage.offset_of(heir, ListedOffset.LATEST)
    stage.must_not(0 <= latest < 4, "I7 latest offset", f"4 was told, and now {latest}")
    await stage.sleep(0.5)


async def proposal_of_a_deposed_leader(stage: Stage) -> None:
    """A leader proposes an ISR; when the proposal arrives, another one leads, and has committed."""
    heir = stage.controller
    first, third = stage.others(heir)
    await stage.create(first, heir, third)
    await stage.write(first, 3)
    proposal = stage.hold(SUBMIT_COMMAND, sender=first, receiver=heir)
    stage.part(first, third)
    stage.send(first, 1)
    await stage.caught(proposal)
    # From now on it hears nothing of the next leader's records.
    answers = stage.hold(FETCH, sender=heir, receiver=first, answer=True)
    stage.expire(first)
    await stage.until(lambda: stage.leads(heir), "the heir leads")
    await stage.until(lambda: stage.isr(heir, third), "the old leader is out of the ISR")
    await stage.write(heir, 2)
    await stage.until(
        lambda: first.broker_id in stage.observer.image.brokers, "the old leader is back"
    )
    stage.release(proposal)
    await stage.sleep(0.5)
    stage.release(answers)


async def fetch_of_the_life_before(stage: Stage) -> None:
    """KIP-903: a follower loses its power and its last records; then a fetch arrives that it sent
    before, and says that it has them."""
    controller = stage.controller
    first, lossy = stage.others(controller)
    await stage.create(first, controller, lossy)
    await stage.write(first, 3)
    fetch = stage.hold(FETCH, sender=lossy, receiver=first)
    await stage.send(first, 1, acks=1)
    await stage.until(lambda: stage.end(lossy) == 4, "the follower has the record")
    await stage.caught(fetch)
    lossy.cut_power(CrashMode.LOSE_ALL)
    await stage.gone(lossy)
    # In its new life it asks in vain: all that the leader hears is the old fetch.
    stage.world.network.cut(first.name, lossy.name)
    lossy.boot_up()
    await stage.until(lambda: lossy.is_serving, "the follower is back")
    await stage.until(lambda: stage.ghost.true_watermark == 4, "the record is committed")
    stage.release(fetch)
    await stage.sleep(0.5)


async def fetch_of_the_epoch_before(stage: Stage) -> None:
    """KIP-320: a fetch of an earlier epoch arrives at a leader of a later one. The follower has
    dropped since what it says to have."""
    heir = stage.controller
    first, follower = stage.others(heir)
    await stage.create(first, heir, follower)
    await stage.write(first, 3)
    stage.part(first, heir)
    await stage.write_to_one(first, follower, 4)
    fetch = stage.hold(FETCH, sender=follower, receiver=first)
    await stage.send(first, 1, acks=1)
    await stage.caught(fetch)
    stage.expire(first)
    await stage.until(lambda: stage.leads(heir), "the heir leads")
    await stage.until(lambda: stage.end(follower) == 3, "the follower has cut its log")
    stage.join(first, heir)
    await stage.until(lambda: stage.isr(*stage.machines), "all are in sync")
    silence = stage.hold(FETCH, sender=follower, receiver=first)
    heir.kill()
    await stage.until(lambda: stage.leads(first), "the first one leads again")
    await stage.send(first, 6, acks=1)
    stage.release(fetch)
    await stage.sleep(0.5)
    stage.release(silence)


async def late_divergence(stage: Stage) -> None:
    """KAFKA-18991: a leader says that a follower's log diverges from its own, and is replaced by
    one that has the same log. What it said arrives when those records are committed."""
    short = stage.controller
    first, heir = stage.others(short)
    await stage.create(first, short, heir)
    await stage.write(first, 3)
    stage.part(short, first, heir)
    await stage.write_to_one(first, heir, 4)
    # Nobody but itself has heard: it leads with the short log.
    stage.expire(first)
    await stage.until(lambda: stage.leads(short), "the short log leads")
    diverging = stage.hold(FETCH, sender=short, receiver=first, answer=True)
    stage.join(short, first)
    await stage.caught(diverging)
    short.cut_power(CrashMode.KEEP_ALL)
    stage.join(short, heir)
    await stage.until(lambda: stage.leads(heir), "the heir leads")
    await stage.until(lambda: stage.isr(first, heir), "both are in sync")
    await stage.write(heir, 2)
    stage.release(diverging)
    await stage.sleep(0.5)


async def answer_to_an_older_proposal(stage: Stage) -> None:
    """Two proposals, and the answer to the first one comes when the second is under way."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, follower, controller)
    await stage.write(leader, 3)
    # One leaves: the answer to that is held, the metadata tells the leader of it.
    answer = stage.hold(SUBMIT_COMMAND, sender=controller, receiver=leader, answer=True)
    stage.part(leader, follower)
    await stage.write(leader, 1)
    await stage.caught(answer)
    # It is back, caught up, and the leader asks for its admission; then it is silent.
    admission = stage.hold(SUBMIT_COMMAND, sender=leader, receiver=controller)
    stage.join(leader, follower)
    await stage.until(lambda: stage.end(follower) == 4, "the follower has caught up")
    await stage.sleep(0.5)
    stage.part(leader, follower)
    writing = stage.send(leader, 2)
    await stage.sleep(1.8)
    # By now the follower would not be proposed any more.
    stage.release(answer)
    await stage.sleep(0.3)
    stage.release(admission)
    await stage.until(writing.done, "the write has ended")


async def image_of_the_life_before(stage: Stage) -> None:
    """KIP-380: a leader is killed and comes back, and knows the metadata as it was before."""
    heir = stage.controller
    leader, third = stage.others(heir)
    await stage.create(leader, heir, third)
    await stage.write(leader, 3)
    stage.hold(FOLLOW_METADATA, sender=heir, receiver=leader, answer=True, passing=1)
    leader.kill()
    leader.boot_up()
    await stage.until(lambda: stage.leads(heir), "another one leads")
    await stage.write(heir, 1)
    for _ in range(10):
        await stage.send(leader, 1, acks=1)
        await stage.sleep(0.2)


async def shutdown_of_the_life_before(stage: Stage) -> None:
    """KIP-380: a broker says that it will stop, and loses its power; in its next life the word
    arrives."""
    controller = stage.controller
    first, stopping = stage.others(controller)
    await stage.create(first, controller, stopping)
    await stage.write(first, 3)
    word = stage.hold(SUBMIT_COMMAND, sender=stopping, receiver=controller)
    stopping.begin_stop()
    await stage.caught(word)
    stopping.cut_power(CrashMode.KEEP_ALL)
    await stage.gone(stopping)
    stopping.boot_up()
    await stage.until(lambda: stopping.is_serving, "the broker is back")
    stage.release(word)
    await stage.sleep(0.5)


async def deletion_and_failover(stage: Stage) -> None:
    """R22: records are deleted while the replicas that may lead next are away."""
    heir = stage.controller
    leader, away = stage.others(heir)
    await stage.create(leader, heir, away)
    await stage.write(leader, 3)
    away.kill()
    await stage.until(lambda: stage.isr(leader, heir), "one is away")
    heir.kill()
    await stage.until(lambda: stage.isr(leader), "the leader is alone")
    await stage.sleep(1.0)
    is_deleted = await stage.delete_before(leader, 2)
    leader.kill()
    heir.boot_up()
    await stage.until(lambda: stage.leads(heir), "one that was away leads")
    start = await stage.offset_of(heir, ListedOffset.EARLIEST)
    stage.must_not(is_deleted and 0 <= start < 2, "I8 log start", f"2 was told, and now {start}")


async def deletion_without_followers(stage: Stage) -> None:
    """I8: a leader whose followers hear nothing deletes records, and is asked where its log starts;
    then it dies."""
    heir = stage.controller
    leader, follower = stage.others(heir)
    await stage.create(leader, heir, follower)
    await stage.write(leader, 3)
    stage.part(leader, heir, follower)
    is_deleted = await stage.delete_before(leader, 2)
    stage.must_not(is_deleted, "I8 log start", "nobody else has heard of what was acknowledged")
    told = await stage.offset_of(leader, ListedOffset.EARLIEST)
    leader.kill()
    stage.join(leader, heir, follower)
    await stage.until(lambda: stage.leads(heir), "one that has all of it leads")
    start = await stage.offset_of(heir, ListedOffset.EARLIEST)
    stage.must_not(0 <= start < told, "I8 log start", f"{told} was told, and now {start}")


async def topic_made_again(stage: Stage) -> None:
    """R23: a topic is deleted and made again while a replica does not hear of it and restarts."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, controller, follower)
    await stage.write(leader, 3)
    stage.hold(FOLLOW_METADATA, sender=controller, receiver=follower, answer=True)
    await stage.delete()
    follower.kill()
    await stage.create(leader, controller, follower)
    await stage.write(leader, 1)
    follower.boot_up()
    await stage.until(lambda: follower.is_serving, "the follower is back")
    await stage.write(leader, 1)
    await stage.sleep(0.5)


async def commit_on_synced_disks(stage: Stage) -> None:
    """Rule 19: on a topic that syncs, records are written with slow disks."""
    first, *others = stage.machines
    await stage.create(first, *others, durability="fsync", flush_messages="1")
    await stage.write(first, 5)


async def zombie_leader(stage: Stage) -> None:
    """R17: a leader is cut off from the store and the others, not from its clients."""
    heir = stage.controller
    zombie, third = stage.others(heir)
    await stage.create(zombie, heir, third)
    await stage.write(zombie, 3)
    zombie.cut_store()
    stage.part(zombie, heir, third)
    await stage.until(lambda: stage.leads(heir), "another one leads")
    for _ in range(14):
        await stage.send(zombie, 1, acks=1)
        await stage.sleep(1.0)


async def too_few_replicas(stage: Stage) -> None:
    """I13: a leader alone refuses what all shall have, and does not have it itself."""
    second = stage.controller
    leader, first = stage.others(second)
    await stage.create(leader, first, second)
    await stage.write(leader, 3)
    first.kill()
    await stage.until(lambda: stage.isr(leader, second), "one is away")
    second.kill()
    await stage.until(lambda: stage.isr(leader), "the leader is alone")
    await stage.sleep(0.5)
    await stage.send(leader, 3)
    end, refused = stage.end(leader), stage.refused
    what = f"{refused} of 3 records were refused, the log went from 3 to {end}"
    stage.must_not(end > 6 - refused, "I13 definite errors", what)


async def last_replica_standing(stage: Stage) -> None:
    """R13, R21: the last in-sync replica loses all it had, and is back first. One that left when
    nothing could be committed any more has all of it."""
    heir = stage.controller
    last, away = stage.others(heir)
    await stage.create(last, heir, away)
    await stage.write(last, 3)
    away.kill()
    await stage.until(lambda: stage.isr(last, heir), "one is away")
    heir.kill()
    await stage.until(lambda: stage.isr(last), "the last one stands")
    await stage.sleep(3.0)
    # Nothing may be committed by it alone.
    await stage.send(last, 1, acks=1)
    await stage.sleep(0.1)
    last.wipe()
    last.boot_up()
    await stage.sleep(12.0)
    heir.boot_up()
    await stage.sleep(2.0)


async def admission_unheard(stage: Stage) -> None:
    """R7: a follower is admitted, its leader has not heard so, and it falls silent."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, controller, follower)
    await stage.write(leader, 3)
    stage.part(leader, follower)
    await stage.write(leader, 1)
    await stage.until(lambda: stage.isr(leader, controller), "the follower is out")
    await stage.sleep(0.5)
    for api in (SUBMIT_COMMAND, FOLLOW_METADATA):
        stage.hold(api, sender=controller, receiver=leader, answer=True)
    stage.join(leader, follower)
    await stage.until(lambda: stage.isr(*stage.machines), "the follower is in sync")
    stage.part(leader, follower)
    await stage.send(leader, 1)


async def read_by_an_old_id(stage: Stage) -> None:
    """R23: a reader goes on under the id of a topic that was deleted and made again."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, controller, follower)
    await stage.write(leader, 3)
    old_id = stage.ghost.key[0]
    await stage.fetch(leader, old_id)
    await stage.delete()
    await stage.create(leader, controller, follower)
    await stage.write(leader, 2)
    served = await stage.fetch(leader, old_id)
    stage.must_not(served > 0, "I9 topic ids", f"{served} bytes were served under another id")


async def feed_cut_short(stage: Stage) -> None:
    """L8: a broker loses its connection to the controller, and then the metadata change."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, controller, follower)
    await stage.write(leader, 3)
    stage.world.network.break_connections(follower.name, controller.name)
    await stage.sleep(1.0)
    await stage.set_config("retention.ms", "86400000")
    await stage.sleep(1.0)


async def command_beside_the_feed(stage: Stage) -> None:
    """A leader whose broker waits for news of the metadata has a follower leave the ISR."""
    controller = stage.controller
    leader, follower = stage.others(controller)
    await stage.create(leader, controller, follower)
    await stage.write(leader, 3)
    stage.part(leader, follower)
    writing = stage.send(leader, 1)
    await stage.until(writing.done, "the write has ended")
    stage.must_not(writing.result() != 1, "L3 calls end", "nobody took the ISR's change")


async def nothing_at_all(stage: Stage) -> None:
    """Records are written, and nothing goes wrong."""
    first, *others = stage.machines
    await stage.create(first, *others)
    await stage.send(first, 3)
    await stage.sleep(0.5)


async def wait_without_an_end(stage: Stage) -> None:
    """A write waits for followers that are silent; it is over before they are back."""
    controller = stage.controller
    leader, other = stage.others(controller)
    await stage.create(leader, other, controller)
    await stage.write(leader, 3)
    stage.part(leader, other, controller)
    await stage.send(leader, 1)
    stage.join(leader, other, controller)
    await stage.sleep(3.0)


SCENARIOS: Final[dict[str, Script]] = {
    "double failover": double_failover,
    "stale watermark": stale_watermark,
    "watermarks that lag": watermarks_that_lag,
    "power cut after a sync": power_cut_after_a_sync,
    "proposal of a deposed leader": proposal_of_a_deposed_leader,
    "fetch of the life before": fetch_of_the_life_before,
    "fetch of the epoch before": fetch_of_the_epoch_before,
    "late divergence": late_divergence,
    "answer to an older proposal": answer_to_an_older_proposal,
    "image of the life before": image_of_the_life_before,
    "shutdown of the life before": shutdown_of_the_life_before,
    "deletion and failover": deletion_and_failover,
    "deletion without followers": deletion_without_followers,
    "topic made again": topic_made_again,
    "commit on synced disks": commit_on_synced_disks,
    "last replica standing": last_replica_standing,
    "admission unheard": admission_unheard,
    "nothing at all": nothing_at_all,
    "read by an old id": read_by_an_old_id,
    "feed cut short": feed_cut_short,
    "command beside the feed": command_beside_the_feed,
    "zombie leader": zombie_leader,
    "too few replicas": too_few_replicas,
    "wait without an end": wait_without_an_end,
}
