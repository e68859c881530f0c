"""How credentials, rules and quotas lie in the store. Since version 3 of its values.

    /security/credentials/<digest>     {"v":3,"user":"alice","mechanism":"SCRAM-SHA-256",
                                       "salt":"base64","stored_key":"base64","server_key":"base64",
                                       "iterations":16384}                   secret
    /security/acls/<digest>            {"v":3,"acl":[2,3,"orders","User:alice","*",3,3]}
                                       type, pattern, name, principal, host, operation, permission
    /quotas/<digest>                   {"v":3,"entity":[["user","alice"]],
                                       "quotas":{"producer_byte_rate":1048576.0}}

A node is named by a digest: a user, a resource or a client id may be no name of a node. Where that
is not the digest of what the node says, the controller does not start. Each rule has a node of its
own, so removing one leaves all the others as they are (CVE-2024-27309).

`layout` encodes the fields; this says which node has which.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from tidelog.cluster.changes import AclsChanged, ClientQuotasChanged, ScramCredentialChanged
from tidelog.cluster.image import Draft, ImageView
from tidelog.security.acl import AclBinding
from tidelog.security.credentials import ScramCredential

CREDENTIALS: Final = "/security/credentials"
ACLS: Final = "/security/acls"
QUOTAS: Final = "/quotas"
FOLDERS: Final = ("/security", CREDENTIALS, ACLS, QUOTAS)

SecurityChange = ScramCredentialChanged | AclsChanged | ClientQuotasChanged
# A node's path, its fields (None where it goes) and whether it is there before.
Written = tuple[str, Mapping[str, object] | None, bool]


def written(change: SecurityChange, before: ImageView) -> Iterator[Written]:
    """The nodes that a change makes, replaces or takes away."""
    match change:
        case ScramCredentialChanged(user, mechanism, credential):
            exists = (user, mechanism) in before.scram_credentials
            if credential is not None:
                fields = _credential_fields(user, mechanism, credential)
                yield _path(CREDENTIALS, user, mechanism), fields, exists
            elif exists:
                yield _path(CREDENTIALS, user, mechanism), None, True
        case AclsChanged(added, removed):
            yield from ((_path(ACLS, *each), None, True) for each in removed)
            yield from ((_path(ACLS, *each), {"acl": each}, False) for each in added)
        case ClientQuotasChanged(entity, quotas):
            exists = entity in before.client_quotas
            path = _path(QUOTAS, *entity)
            if quotas:
                yield path, {"entity": entity, "quotas": dict(quotas)}, exists
            elif exists:
                yield path, None, True


def load(path: str, fields: Mapping[str, Any], draft: Draft) -> None:
    """Add what a node in one of the folders says to the draft; ValueError where it is damaged."""
    folder = path.rpartition("/")[0]
    if folder == CREDENTIALS:
        _check_name(path, fields["user"], fields["mechanism"])
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "stored_key", "server_key")
        )
        credential = ScramCredential(salt, stored_key, server_key, fields["iterations"])
        draft.put_scram_credential(fields["user"], fields["mechanism"], credential)
    elif folder == ACLS:
        _check_name(path, *fields["acl"])
        draft.change_acls((AclBinding(*fields["acl"]),), ())
    elif folder == QUOTAS:
        entity = tuple((kind, name) for kind, name in fields["entity"])
        _check_name(path, *entity)
        draft.put_client_quotas(entity, fields["quotas"])


def _check_name(path: str, *key: object) -> None:
    """A rule that denies must not get lost because one letter of it has changed."""
    if path != _path(path.rpartition("/")[0], *key):
        raise ValueError("the node's name is not the digest of what it says")


def _credential_fields(
    user: str, mechanism: str, credential: ScramCredential
) -> Mapping[str, object]:
    salt, stored_key, server_key = (
        base64.b64encode(each).decode()
        for each in (credential.salt, credential.stored_key, credential.server_key)
    )
    return {
        "user": user,
        "mechanism": mechanism,
        "salt": salt,
        "stored_key": stored_key,
        "server_key": server_key,
        "iterations": credential.iterations,
    }


def _path(folder: str, *key: object) -> str:
    return f"{folder}/{sha256(json.dumps(key).encode()).hexdigest()}"
