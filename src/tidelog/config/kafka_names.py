"""Settings that Kafka knows and nothing here uses.

Those that Kafka takes while it runs are taken here too, so that its tools work, and are shown once
they are set. The names are facts, printed by the classes of Kafka 4.3.0 that document them
(`KafkaConfig`, `GroupConfig`) and, for those that were removed since, by Kafka 3.9.1. Tests compare
those of 4.3.0 with what its classes print and its broker takes.
"""

from __future__ import annotations

from typing import Final

from tidelog.config.setting import Kind, Setting, Update

# Settings of a broker in Kafka 4.3.0 that it reads at its start alone.
_CURRENT: Final = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds
broker.heartbeat.interval.ms broker.session.timeout.ms
client.quota.callback.class connection.failed.authentication.delay.ms
controlled.shutdown.enable controller.quorum.append.linger.ms controller.quorum.auto.join.enable
controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
controller.socket.timeout.ms
create.topic.policy.class.name delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests early.start.listeners
fetch.purgatory.purge.interval.requests group.consumer.max.assignment.interval.ms
group.consumer.min.assignment.interval.ms
group.coordinator.append.linger.ms group.coordinator.background.threads
group.coordinator.rebalance.protocols group.coordinator.threads group.share.assignors
group.share.delivery.count.limit group.share.heartbeat.interval.ms
group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
group.share.min.session.timeout.ms group.share.partition.max.record.locks
group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
group.streams.max.session.timeout.ms group.streams.max.size group.streams.max.standby.replicas
group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas
group.streams.session.timeout.ms initial.broker.registration.timeout.ms
kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.dir.failure.timeout.ms
max.request.partition.size.limit metadata.log.dir metadata.log.max.record.bytes.between.snapshots
metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metrics.num.samples metrics.recording.level metrics.sample.window.ms
num.replica.alter.log.dirs.threads offsets.load.buffer.size offsets.topic.compression.codec
producer.purgatory.purge.interval.requests queued.max.requests
remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.task.interval.ms
remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable replica.socket.receive.buffer.bytes
replication.quota.window.num replication.quota.window.size.seconds
request.timeout.ms sasl.client.callback.handler.class sasl.login.callback.handler.class
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
sasl.server.max.receive.size security.providers
share.coordinator.append.linger.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.allow.dn.changes
ssl.allow.san.changes telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size
transaction.state.log.min.isr
"""

# Settings that Kafka 4.3.0 takes while it runs, for one broker or for all.
_CLUSTER_WIDE: Final[dict[Kind, str]] = {
    Kind.BOOLEAN: """
follower.fetch.last.tiered.offset.enable transaction.partition.verification.enable
""",
    Kind.INT: """
background.threads group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
group.share.assignment.interval.ms group.streams.assignment.interval.ms log.cleaner.io.buffer.size
log.cleaner.threads max.connection.creation.rate num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers remote.fetch.max.wait.ms
remote.log.manager.copier.thread.pool.size remote.log.manager.expiration.thread.pool.size
remote.log.manager.follower.thread.pool.size remote.log.reader.threads
share.coordinator.cached.buffer.max.bytes
""",
    Kind.LONG: """
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
replica.alter.log.dirs.io.max.bytes.per.second
""",
    Kind.DOUBLE: "log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second",
    Kind.LIST: "config.providers metric.reporters",
}

# Settings that it takes for one broker alone.
_PER_BROKER: Final[dict[Kind, str]] = {
    Kind.STRING: """
sasl.kerberos.kinit.cmd sasl.kerberos.service.name sasl.mechanism.inter.broker.protocol
ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
""",
    Kind.SHORT: "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds",
    Kind.LONG: "sasl.kerberos.min.time.before.relogin",
    Kind.DOUBLE: """
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
""",
    Kind.LIST: "cordoned.log.dirs sasl.kerberos.principal.to.local.rules",
    Kind.CLASS: "principal.builder.class ssl.engine.factory.class",
}

# Settings that it takes for one listener of a broker alone, with the listener's name before them.
_PER_LISTENER: Final = """
ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type
"""

# Settings of a broker in Kafka 3.9, with ZooKeeper, that Kafka 4 removed.
_REMOVED: Final = """
auto.include.jmx.reporter broker.id.generation.enable control.plane.listener.name
controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms delegation.token.master.key
eligible.leader.replicas.enable group.share.max.groups inter.broker.protocol.version
leader.imbalance.per.broker.percentage log.message.downconversion.enable
log.message.format.version log.message.timestamp.difference.max.ms offsets.commit.required.acks
password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
reserved.broker.max.id zookeeper.clientCnxnSocket zookeeper.connect
zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable zookeeper.set.acl
zookeeper.ssl.cipher.suites zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
"""

# Settings of groups of kinds that are not offered here, and one that is of no use: a target is
# computed at once.
_GROUP: Final[dict[Kind, str]] = {
    Kind.INT: """
consumer.assignment.interval.ms share.assignment.interval.ms share.delivery.count.limit
share.heartbeat.interval.ms share.partition.max.record.locks share.record.lock.duration.ms
share.session.timeout.ms streams.assignment.interval.ms streams.heartbeat.interval.ms
streams.initial.rebalance.delay.ms streams.num.standby.replicas streams.session.timeout.ms
""",
    Kind.STRING: "share.auto.offset.reset share.isolation.level",
    Kind.BOOLEAN: "share.renew.acknowledge.enable",
}


def _settings(names: dict[Kind, str], update: Update) -> dict[str, Setting]:
    return {
        name: Setting(name, None, "Not used by this broker.", kind, update=update, unused=True)
        for kind, text in names.items()
        for name in text.split()
    }


UNUSED_DYNAMIC_SETTINGS: Final = {
    **_settings(_CLUSTER_WIDE, Update.CLUSTER_WIDE),
    **_settings(_PER_BROKER, Update.PER_BROKER),
}
FIXED_NAMES: Final = frozenset(_CURRENT.split())
PER_LISTENER_NAMES: Final = frozenset(_PER_LISTENER.split())
UNUSED_GROUP_SETTINGS: Final = _settings(_GROUP, Update.CLUSTER_WIDE)
BROKER_NAMES: Final = FIXED_NAMES.union(_REMOVED.split(), UNUSED_DYNAMIC_SETTINGS)
