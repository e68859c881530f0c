"""Kafka's error codes, and the exceptions that carry them through the layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code of the wire protocol."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """True where a client may send the same request again and succeed."""
        return self in _RETRIABLE

    @property
    def message(self) -> str:
        """One sentence without its full stop, for logs and for `error_message` fields."""
        return _MESSAGES[self]


_MESSAGES: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error",
    ErrorCode.NONE: "No error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside the log",
    ErrorCode.CORRUPT_MESSAGE: "The records are corrupt or fail their checksum",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This broker does not host this topic partition",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is invalid",
    ErrorCode.LEADER_NOT_AVAILABLE: "There is no leader for this partition at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker does not lead or follow the partition",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available for the partition",
    ErrorCode.MESSAGE_TOO_LARGE: "The batch is larger than the topic accepts",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The controller has moved to another broker",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata of the offset commit is too large",
    ErrorCode.NETWORK_EXCEPTION: "The server disconnected before a response was received",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available",
    ErrorCode.NOT_COORDINATOR: "This broker is not the coordinator",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic name is invalid",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record list is larger than the segment size",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer in-sync replicas than required",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Written to fewer in-sync replicas than required",
    ErrorCode.INVALID_REQUIRED_ACKS: "The value of acks is invalid",
    ErrorCode.ILLEGAL_GENERATION: "The generation id is not the current one",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member's protocols differ from the group's",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside the allowed range",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The committing offset data size is invalid",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized for this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized for this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized for cluster operations",
    ErrorCode.INVALID_TIMESTAMP: "The timestamp of the record is out of the acceptable range",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The SASL mechanism is not supported",
    ErrorCode.ILLEGAL_SASL_STATE: "The request is not valid in the current SASL state",
    ErrorCode.UNSUPPORTED_VERSION: "The version of the API is not supported",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name already exists",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is invalid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is invalid",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is invalid",
    ErrorCode.INVALID_CONFIG: "The configuration is invalid",
    ErrorCode.NOT_CONTROLLER: "This broker is not the controller",
    ErrorCode.INVALID_REQUEST: "The request is malformed or not consistent",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The message format does not support the request",
    ErrorCode.POLICY_VIOLATION: "The request violates a policy",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The sequence number is out of order",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The sequence number is a duplicate",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer epoch is older than the current one",
    ErrorCode.INVALID_TXN_STATE: "The transaction is in a state that does not allow the request",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id is not of this transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is larger than allowed",
    ErrorCode.CONCURRENT_TRANSACTIONS: "Another operation on the transaction is in progress",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "The transaction coordinator has been fenced",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorized for this transactional id",
    ErrorCode.SECURITY_DISABLED: "Security features are disabled",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "The operation was not attempted",
    ErrorCode.KAFKA_STORAGE_ERROR: "The log directory cannot be written or read at the moment",
    ErrorCode.LOG_DIR_NOT_FOUND: "The log directory was not found",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SASL authentication failed",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker has no state for this producer id",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "A partition reassignment is in progress",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are disabled",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The delegation token was not found",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal may not use the token",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens are refused here",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not authorized for delegation tokens",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The principal type is not supported",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The fetch session was not found",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session epoch is invalid",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener that matches the one of the request",
    ErrorCode.TOPIC_DELETION_DISABLED: "Deletion of topics is disabled",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The compression is not supported",
    ErrorCode.STALE_BROKER_EPOCH: "The broker epoch has changed",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The leader's watermark is not caught up yet",
    ErrorCode.MEMBER_ID_REQUIRED: "The member must join again with the given member id",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as it may have",
    ErrorCode.FENCED_INSTANCE_ID: "Another member with the same instance id has joined",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No eligible leader is available",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition does not need an election",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to the topic",
    ErrorCode.INVALID_RECORD: "A record failed the validation of the broker",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "There are unstable offsets that need to be cleared",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The throttling quota has been exceeded",
    ErrorCode.PRODUCER_FENCED: "A newer producer with the same transactional id exists",
    ErrorCode.RESOURCE_NOT_FOUND: "The resource was not found",
    ErrorCode.DUPLICATE_RESOURCE: "The resource appears more than once",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the criteria",
    ErrorCode.INCONSISTENT_VOTER_SET: "The voter sets are inconsistent",
    ErrorCode.INVALID_UPDATE_VERSION: "The update version is invalid",
    ErrorCode.FEATURE_UPDATE_FAILED: "The feature update failed",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The forwarded principal cannot be read",
    ErrorCode.SNAPSHOT_NOT_FOUND: "The snapshot was not found",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position is outside the snapshot",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker does not host the topic with this id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "The broker id is in use by another broker",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "The broker id is not registered",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic id does not match the one of the log",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The cluster id does not match",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The transactional id was not found",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session used topic ids inconsistently",
    ErrorCode.INELIGIBLE_REPLICA: "The new in-sync set contains an ineligible replica",
    ErrorCode.NEW_LEADER_ELECTED: "A new leader was elected",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset was moved to tiered storage",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member epoch was fenced by the coordinator",
    ErrorCode.UNRELEASED_INSTANCE_ID: "The instance id is in use by another member",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The assignor is not supported by the group",
    ErrorCode.STALE_MEMBER_EPOCH: "The member epoch is stale",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was sent to an endpoint of the wrong type",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "The endpoint type is not supported",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "The controller id is not known",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription id is not known",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry push is too large",
    ErrorCode.INVALID_REGISTRATION: "The broker registration is invalid",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction must be aborted",
    ErrorCode.INVALID_RECORD_STATE: "The state of the record does not allow the acknowledgement",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The share session was not found",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session epoch is invalid",
    ErrorCode.FENCED_STATE_EPOCH: "The share state epoch was fenced",
    ErrorCode.INVALID_VOTER_KEY: "The voter key does not match",
    ErrorCode.DUPLICATE_VOTER: "The voter is already in the set",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is invalid",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client must bootstrap again",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The streams topology is invalid",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The streams topology epoch is invalid",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The streams topology epoch is outdated",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The limit of share sessions has been reached",
}

_RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


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
