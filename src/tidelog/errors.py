"""Kafka's error codes, and the exceptions that carry them through the layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

RETRIABLE: Final = True


class ErrorCode(IntEnum):
    """An error code of the wire protocol."""

    # One sentence without its full stop, for logs and for `error_message` fields.
    message: str
    # Whether a client may send the same request again and succeed.
    retriable: bool

    def __new__(cls, code: int, message: str = "", retriable: bool = False) -> Self:
        made = int.__new__(cls, code)
        made._value_ = code
        made.message = message
        made.retriable = retriable
        return made

    UNKNOWN_SERVER_ERROR = -1, "The server experienced an unexpected error"
    NONE = 0, "No error"
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside the log"
    CORRUPT_MESSAGE = 2, "The records are corrupt or fail their checksum", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker does not host this topic partition", RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "There is no leader for this partition at the moment", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead or follow the partition", RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request timed out", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available for the partition", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "The batch is larger than the topic accepts"
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the offset commit is too large"
    NETWORK_EXCEPTION = 13, "The server disconnected before a response was received", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is loading", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available", RETRIABLE
    NOT_COORDINATOR = 16, "This broker is not the coordinator", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is invalid"
    RECORD_LIST_TOO_LARGE = 18, "The record list is larger than the segment size"
    NOT_ENOUGH_REPLICAS = 19, "Fewer in-sync replicas than required", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "Written to fewer in-sync replicas than required",
        RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "The value of acks is invalid"
    ILLEGAL_GENERATION = 22, "The generation id is not the current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocols differ from the group's"
    INVALID_GROUP_ID = 24, "The group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "The coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the allowed range"
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = 28, "The committing offset data size is invalid"
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for this topic"
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for cluster operations"
    INVALID_TIMESTAMP = 32, "The timestamp of the record is out of the acceptable range"
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not supported"
    ILLEGAL_SASL_STATE = 34, "The request is not valid in the current SASL state"
    UNSUPPORTED_VERSION = 35, "The version of the API is not supported"
    TOPIC_ALREADY_EXISTS = 36, "A topic with this name already exists"
    INVALID_PARTITIONS = 37, "The number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is invalid"
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is invalid"
    INVALID_CONFIG = 40, "The configuration is invalid"
    NOT_CONTROLLER = 41, "This broker is not the controller", RETRIABLE
    INVALID_REQUEST = 42, "The request is malformed or not consistent"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format does not support the request"
    POLICY_VIOLATION = 44, "The request violates a policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The sequence number is out of order"
    DUPLICATE_SEQUENCE_NUMBER = 46, "The sequence number is a duplicate"
    INVALID_PRODUCER_EPOCH = 47, "The producer epoch is older than the current one"
    INVALID_TXN_STATE = 48, "The transaction is in a state that does not allow the request"
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id is not of this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is larger than allowed"
    CONCURRENT_TRANSACTIONS = 51, "Another operation on the transaction is in progress", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "The transaction coordinator has been fenced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for this transactional id"
    SECURITY_DISABLED = 54, "Security features are disabled"
    OPERATION_NOT_ATTEMPTED = 55, "The operation was not attempted"
    KAFKA_STORAGE_ERROR = 56, "The log directory cannot be written or read at the moment", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The log directory was not found"
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "The broker has no state for this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "A partition reassignment is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token was not found"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal may not use the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens are refused here"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for delegation tokens"
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported"
    NON_EMPTY_GROUP = 68, "The group is not empty"
    GROUP_ID_NOT_FOUND = 69, "The group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session was not found", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session epoch is invalid", RETRIABLE
    LISTENER_NOT_FOUND = (
        72,
        "The leader has no listener that matches the one of the request",
        RETRIABLE,
    )
    TOPIC_DELETION_DISABLED = 73, "Deletion of topics is disabled"
    FENCED_LEADER_EPOCH = (
        74,
        "The leader epoch of the request is older than the broker's",
        RETRIABLE,
    )
    UNKNOWN_LEADER_EPOCH = (
        75,
        "The leader epoch of the request is newer than the broker's",
        RETRIABLE,
    )
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression is not supported"
    STALE_BROKER_EPOCH = 77, "The broker epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, "The leader's watermark is not caught up yet", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "The member must join again with the given member id"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader was not available", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may have"
    FENCED_INSTANCE_ID = 82, "Another member with the same instance id has joined"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No eligible leader is available", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The partition does not need an election", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No partition reassignment is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic"
    INVALID_RECORD = 87, "A record failed the validation of the broker"
    UNSTABLE_OFFSET_COMMIT = 88, "There are unstable offsets that need to be cleared", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The throttling quota has been exceeded", RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id exists"
    RESOURCE_NOT_FOUND = 91, "The resource was not found"
    DUPLICATE_RESOURCE = 92, "The resource appears more than once"
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the criteria"
    INCONSISTENT_VOTER_SET = 94, "The voter sets are inconsistent"
    INVALID_UPDATE_VERSION = 95, "The update version is invalid"
    FEATURE_UPDATE_FAILED = 96, "The feature update failed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, "The snapshot was not found"
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "This broker does not host the topic with this id", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is in use by another broker"
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, "The topic id does not match the one of the log", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id does not match"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id was not found"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session used topic ids inconsistently", RETRIABLE
    INELIGIBLE_REPLICA = 107, "The new in-sync set contains an ineligible replica"
    NEW_LEADER_ELECTED = 108, "A new leader was elected"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset was moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, "The member epoch was fenced by the coordinator"
    UNRELEASED_INSTANCE_ID = 111, "The instance id is in use by another member"
    UNSUPPORTED_ASSIGNOR = 112, "The assignor is not supported by the group"
    STALE_MEMBER_EPOCH = 113, "The member epoch is stale"
    MISMATCHED_ENDPOINT_TYPE = 114, "The request was sent to an endpoint of the wrong type"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The endpoint type is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "The controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription id is not known"
    TELEMETRY_TOO_LARGE = 118, "The telemetry push is too large"
    INVALID_REGISTRATION = 119, "The broker registration is invalid"
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted"
    INVALID_RECORD_STATE = 121, "The state of the record does not allow the acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, "The share session was not found", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session epoch is invalid", RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share state epoch was fenced"
    INVALID_VOTER_KEY = 125, "The voter key does not match"
    DUPLICATE_VOTER = 126, "The voter is already in the set"
    VOTER_NOT_FOUND = 127, "The voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, "The client must bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, "The streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The streams topology epoch is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, "The streams topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, "The limit of share sessions has been reached", RETRIABLE


class TidelogError(Exception):
    """The base of every fault that Tidelog raises on purpose."""


# A message quotes what a client sent. Older versions of an answer take 32,767 bytes, and a
# character has at most four.
_MESSAGE_CHARACTERS_MAX = 8_000


class KafkaError(TidelogError):
    """An expected fault with a wire code, caught once per partition or per request."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__((message or code.message)[:_MESSAGE_CHARACTERS_MAX])
        self.code = code

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.code.name}: {self.args[0]}"

    def again(self) -> KafkaError:
        """An equal error, for what is refused over and over for one reason.

        An error that is raised again keeps the frames of every time, and so what they hold.
        """
        return KafkaError(self.code, self.message)


class PartitionBrokenError(Exception):
    """An assertion has failed inside a partition: it is offline, and the traceback is logged.

    No fault that Tidelog raises on purpose, so nobody answers it: the connection is closed.
    """


@dataclass(slots=True)
class RecordError:
    """Which record of a produced batch is bad, and why (KIP-467)."""

    batch_index: int
    message: str


class InvalidRecordsError(KafkaError):
    """A produced batch was refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[RecordError] = ()) -> None:
        super().__init__(code, message)
        self.records = tuple(records)


class ProtocolError(TidelogError):
    """Bytes from outside that are not a valid message; closes their connection, nothing else."""


class ConfigError(TidelogError):
    """A setting that cannot be used; the message names it and the remedy."""


class StorageError(TidelogError):
    """Data on disk that cannot be used as it is; the message names the file."""
