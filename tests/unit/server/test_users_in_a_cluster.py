"""Users of a cluster: what one broker is told holds on all of them."""

from __future__ import annotations

import asyncio

from tests.unit.server.clusters import parts, simulate, submit, until
from tidelog.client.faults import raise_for
from tidelog.cluster.commands import AlterScramCredentials
from tidelog.cluster.image import Endpoint
from tidelog.cluster.peer import PeerConnection, PeerOptions, Send
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.security.credentials import credential_of_password
from tidelog.security.scram import SCRAM_SHA_256, ScramClient
from tidelog.testing.simulation.machines import BROKER_PORT, PORT, Machine, World

BROKERS = 3


def add_machine(world: World, broker_id: int) -> Machine:
    """A machine whose clients authenticate."""
    name = f"b{broker_id}"
    return world.machine(
        broker_id,
        {
            "listeners": f"SASL_PLAINTEXT://{name}:{PORT},BROKER://{name}:{BROKER_PORT}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,BROKER:PLAINTEXT",
        },
    )


def connection_of(world: World, machine: Machine, password: str) -> PeerConnection:
    """A connection of alice's."""

    async def authenticate(send: Send) -> None:
        client = ScramClient(
            SCRAM_SHA_256,
            "alice",
            lambda salt, count: SCRAM_SHA_256.salt_password(password.encode(), salt, count),
            "nonce",
        )
        raise_for((await send("SaslHandshake", SaslHandshakeRequest("SCRAM-SHA-256"))).error_code)
        token = client.first()
        for step in (client.final, client.finish):
            answer = await send("SaslAuthenticate", SaslAuthenticateRequest(token))
            raise_for(answer.error_code)
            token = step(answer.auth_bytes) or b""

    endpoint = Endpoint("SASL_PLAINTEXT", machine.name, PORT)
    return PeerConnection(world.network, endpoint, PeerOptions(authenticate=authenticate))


def password(word: str | None) -> AlterScramCredentials:
    made = None
    if word is not None:
        made = credential_of_password(SCRAM_SHA_256, word, b"salt of 16 bytes", 4096)
    return AlterScramCredentials("alice", {SCRAM_SHA_256.name: made})


def sessions(machine: Machine) -> int:
    """How many connections of alice's a broker has."""
    connections = parts(machine).listeners[0].connections
    return sum(each.principal.name == "User:alice" for each in connections)


def test_x15_a_changed_password_ends_connections_on_every_broker() -> None:
    async def main(world: World) -> None:
        machines = [add_machine(world, broker_id) for broker_id in range(BROKERS)]
        await asyncio.gather(*(machine.start() for machine in machines))
        await submit(machines[0], password("first"))
        await until(lambda: all(parts(each).metadata.image.scram_credentials for each in machines))
        peers = [connection_of(world, each, "first") for each in machines]
        for peer in peers:
            await peer.connect(10)
        assert [sessions(each) for each in machines] == [1] * BROKERS
        loop = asyncio.get_running_loop()
        for word, opens in (("second", "second"), (None, None)):
            began = loop.time()
            await submit(machines[1], password(word))
            await until(lambda: not any(map(sessions, machines)), 5)
            assert loop.time() - began < 5
            if opens is not None:
                # Nobody is let in by the old password, so all of them know the new one.
                peers += [connection_of(world, each, opens) for each in machines]
                for peer in peers[-BROKERS:]:
                    await peer.connect(10)
        for peer in peers:
            peer.close()

    simulate(main)


def test_x15_a_broker_that_was_stopped_ends_connections_once_it_goes_on() -> None:
    async def main(world: World) -> None:
        machines = [add_machine(world, broker_id) for broker_id in range(BROKERS)]
        await asyncio.gather(*(machine.start() for machine in machines))
        (controller,) = (each for each in machines if parts(each).membership.controller is not None)
        away = next(each for each in machines if each is not controller)
        await submit(controller, password("first"))
        await until(lambda: len(parts(away).metadata.image.scram_credentials) == 1)
        peer = connection_of(world, away, "first")
        await peer.connect(10)
        away.pause()
        await submit(controller, password(None))
        await asyncio.sleep(2)
        assert sessions(away) == 1, "it cannot know"
        away.resume()
        await until(lambda: sessions(away) == 0, 5)
        peer.close()

    simulate(main)
