"""Whatever commands came, reading the store again gives the image that the controller holds."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

from tests.unit.cluster.helpers import Running, join, running
from tests.unit.store.helpers import opened
from tidelog.cluster import layout
from tidelog.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterScramCredentials,
    Command,
    ConfigChange,
    CreateAcls,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    ProducerIdBlock,
    UnregisterBroker,
)
from tidelog.cluster.image import MetadataImage
from tidelog.errors import KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType
from tidelog.security.acl import AclBinding, AclFilter
from tidelog.security.credentials import ScramCredential

NAMES = ("a", "b", "a.b", "a_b", "c-d", "e", "f")


def random_command(source: random.Random, cluster: Running) -> Command:
    name = source.choice(NAMES)
    changes = [
        ConfigChange(
            "retention.ms", str(source.randrange(3)), ConfigOperation(source.randrange(2))
        ),
        ConfigChange(
            "cleanup.policy", source.choice(("compact", "delete")), ConfigOperation.APPEND
        ),
    ][: source.randrange(1, 3)]
    whole = source.random() < 0.3
    if whole:
        changes = [ConfigChange("segment.bytes", "2000000")][: source.randrange(2)]
    of_broker = [each._replace(name=f"log.{each.name}") for each in changes]
    of_group = ConfigChange(
        "consumer.session.timeout.ms", "50000", ConfigOperation(source.randrange(2))
    )
    acl = AclBinding(2, source.choice((3, 4)), name, "User:☃", "*", source.randrange(2, 5), 3)
    mechanism = source.choice(("SCRAM-SHA-256", "SCRAM-SHA-512"))
    credential = ScramCredential(b"salt", source.randbytes(32), b"key", 4096)
    entity = (("user", source.choice((None, name, "☃/"))),)
    rate = source.choice((None, float(source.randrange(1, 3))))
    alive = cluster.controller.image.brokers
    broker = source.choice(("", "0", "1"))
    return source.choice(
        (
            CreateTopic(name, source.randrange(1, 5), source.choice((-1, 1, 2))),
            CreateTopic(name, -1, -1, {0: [1, 0], 1: [0, 1]}, {"retention.ms": "9"}),
            DeleteTopic(name),
            AddPartitions(name, source.randrange(1, 8)),
            AlterConfigs(ConfigResourceType.TOPIC, name, changes, whole),
            AlterConfigs(ConfigResourceType.BROKER, broker, of_broker, whole),
            AlterConfigs(ConfigResourceType.GROUP, f"{name}/ ☃", [of_group]),
            AllocateProducerIds(0, cluster.registration.epoch),
            CreateAcls([acl, acl._replace(host="10.0.0.1")]),
            DeleteAcls([AclFilter(resource_name=name, operation=source.randrange(1, 5))]),
            AlterScramCredentials("al/ice ☃", {mechanism: source.choice((credential, None))}),
            AlterClientQuotas(entity, {"producer_byte_rate": rate}),
            UnregisterBroker(1, alive[1].epoch if 1 in alive else 0),
        )
    )


class Life:
    """What one run of the controller did, and the image that it left."""

    def __init__(self) -> None:
        self.done = 0
        self.refused = 0
        self.secured = 0
        self.blocks: list[int] = []
        self.image = MetadataImage()


async def one_life(source: random.Random, directory: Path) -> Life:
    life = Life()
    async with running(directory) as cluster:
        session = await cluster.store.new_session()
        for _ in range(6):
            if 1 not in cluster.controller.image.brokers:
                await join(session, cluster.controller, 1)
            commands = [random_command(source, cluster) for _ in range(source.randrange(1, 10))]
            for answer in await cluster.controller.submit_all(commands):
                if isinstance(answer, KafkaError):
                    life.refused += 1
                    continue
                life.done += 1
                if isinstance(answer, ProducerIdBlock):
                    life.blocks.append(answer.first)
            held = layout.load(await cluster.store.tree("/")).image
            assert held.same_content(cluster.controller.image)
            security = (held.acls, held.scram_credentials, held.client_quotas)
            life.secured += all(security)
        life.image = cluster.controller.image
        await session.close()
    async with opened(directory) as store:
        held = layout.load(await store.tree("/")).image
        assert held.same_content(life.image)
    return life


def test_the_store_read_again_equals_the_image_after_random_commands() -> None:
    done = refused = secured = 0
    for seed in range(12):
        source = random.Random(seed)
        blocks: list[int] = []
        with tempfile.TemporaryDirectory() as name:
            for _ in range(3):
                life = asyncio.run(one_life(source, Path(name)))
                done += life.done
                refused += life.refused
                secured += life.secured
                blocks += life.blocks
        assert blocks == [n * 1000 for n in range(len(blocks))]
    print(f"sequences=36 done={done} refused={refused}")
    assert done > 300
    assert refused > 100
    assert secured > 30
