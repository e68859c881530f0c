"""What the runner asks the brokers itself: whether the topics are there, and where they end."""

from __future__ import annotations

from tidelog.client.admin import list_topics
from tidelog.client.blocking import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.operation import topic_metadata
from tidelog.client.settings import ClientSettings
from tidelog.model import Isolation, TopicPartition
from tidelog.pipelines.declare.connector import connect_options, read_options, reads_topic
from tidelog.pipelines.declare.pipeline import Pipeline, Source
from tidelog.spark.option_values import Options
from tidelog.spark.source.read_option_table import READ_OPTIONS


def open_client(pipeline: Pipeline, *, timeout_ms: int = 10_000) -> Client:
    """A client of the runner itself; it tells at once where no broker is."""
    security = Options(connect_options(pipeline), READ_OPTIONS).security()
    settings = ClientSettings.impatient(f"tidelog-pipeline-{pipeline.name}", timeout_ms, security)
    return Client(pipeline.bootstrap_servers, settings)


def require_topics(pipeline: Pipeline) -> None:
    """Ask for the sources' topics, before Spark is started in vain.

    ConnectError where no broker is, UnknownTopicError where a topic is not.
    """
    with open_client(pipeline) as client:
        for source in pipeline.sources.values():
            client.run(topic_metadata(client.cluster, source.topics))
        client.run(list_topics(client.cluster))


def log_ends(client: Client, pipeline: Pipeline, source: Source) -> dict[TopicPartition, int]:
    """Where the logs of a source end now; UnknownTopicError where a topic is not there.

    With read_committed they end where the oldest open transaction begins: a batch that went further
    would wait for its end.
    """
    topics = list(source.topics)
    if source.pattern:
        known = client.run(list_topics(client.cluster))
        # As the data source does: what is internal to the broker is no data.
        names = [topic.name for topic in known if not topic.internal]
        topics = [name for name in names if reads_topic(source, name)]
    found = client.run(topic_metadata(client.cluster, topics)) if topics else {}
    partitions = [TopicPartition(name, number) for name, each in found.items()
                  for number in each.partitions]  # fmt: skip
    if not partitions:
        return {}
    wanted = dict.fromkeys(partitions, LATEST)
    ends = client.run(list_offsets(client.cluster, wanted, _isolation(pipeline, source)))
    return {partition: place.offset for partition, place in ends.items()}


def _isolation(pipeline: Pipeline, source: Source) -> Isolation:
    given = {name.lower(): value for name, value in read_options(pipeline, source).items()}
    committed = given.get("kafka.isolation.level", "").lower() == "read_committed"
    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
