"""SCRAM (RFC 5802, 7677): both sides prove that they know a password, and neither sends it.

Sans I/O: messages in, messages out. The server keeps a `Credential`, from which the password cannot
be found; the client learns whether the server has one. Four messages:

    client first   n,,n=user,r=<client nonce>
    server first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client final   c=biws,r=<both nonces>,p=<proof>
    server final   v=<signature>

Promises: secrets are compared in constant time, and the nonces as a whole (CVE-2024-56128: Kafka
compared their ends); fewer than 4,096 iterations are refused, and so is a message above 4 KiB,
before it is looked at. Every fault is a `ScramError`, whose text is for the log, not for the peer.

Left out: channel binding, which needs TLS; SASLprep, which Kafka does not apply either: a name or
password is its UTF-8 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.security.sasl import SaslError

ITERATIONS_MIN: Final = 4096
# What a client computes for a server; 4,096 iterations take some three milliseconds.
ITERATIONS_MAX: Final = 16_384
MESSAGE_BYTES_MAX: Final = 4096
SALT_BYTES_MIN: Final = 8


class ScramError(SaslError):
    """The exchange has failed."""


class Mechanism(NamedTuple):
    """A SASL mechanism: SCRAM with one hash function."""

    name: str
    hash: str

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash, data).digest()

    def mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash)

    def salt_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.hash, password, salt, iterations)


SCRAM_SHA_256: Final = Mechanism("SCRAM-SHA-256", "sha256")
SCRAM_SHA_512: Final = Mechanism("SCRAM-SHA-512", "sha512")


class Credential(NamedTuple):
    """What a server keeps of a user's password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential(salt={self.salt!r}, iterations={self.iterations}, keys hidden)"


def credential_of(
    mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int
) -> Credential:
    """The credential of a password that was salted so; ValueError where it would be weak."""
    if iterations < ITERATIONS_MIN or len(salt) < SALT_BYTES_MIN:
        raise ValueError(f"{iterations} iterations with {len(salt)} bytes of salt are too few")
    client_key = mechanism.mac(salted_password, b"Client Key")
    server_key = mechanism.mac(salted_password, b"Server Key")
    return Credential(salt, iterations, mechanism.digest(client_key), server_key)


class ScramClient:
    """The side that has the password.

    `salted` gives the salted password for a salt and a number of iterations, computed or known.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        user: str,
        salted: Callable[[bytes, int], bytes],
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._salted = salted
        self._nonce = nonce.encode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}".encode()
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return b"n,," + self._first_bare

    def final(self, server_first: bytes) -> bytes:
        """The proof, for the server's challenge."""
        nonce, salt_text, iterations_text = _attributes(server_first, b"r", b"s", b"i")[:3]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not extend ours")
        salt = _from_base64(salt_text)
        if not iterations_text.isdigit() or len(iterations_text) > 9:
            raise ScramError("the server's iterations are not a number")
        iterations = int(iterations_text)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"the server asks for {iterations} iterations,"
                f" outside {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        if len(salt) < SALT_BYTES_MIN:
            raise ScramError(f"the server's salt has {len(salt)} bytes")
        mechanism, salted = self._mechanism, self._salted(salt, iterations)
        without_proof = b"c=biws,r=" + nonce
        exchange = b",".join((self._first_bare, server_first, without_proof))
        client_key = mechanism.mac(salted, b"Client Key")
        proof = _xor(client_key, mechanism.mac(mechanism.digest(client_key), exchange))
        self._signature = mechanism.mac(mechanism.mac(salted, b"Server Key"), exchange)
        return without_proof + b",p=" + base64.b64encode(proof)

    def finish(self, server_final: bytes) -> None:
        """Return if the server knows the credential, too."""
        (signature,) = _attributes(server_final, b"v")[:1]
        if self._signature is None or not hmac.compare_digest(
            _from_base64(signature), self._signature
        ):
            raise ScramError("the server does not know the password")


class ScramServer:
    """The side that has credentials; one for each exchange.

    `find` gives the credential of a name; of an unknown one it must give one that looks the same
    and that no password fits, so that nobody can find out which names there are.
    """

    def __init__(self, mechanism: Mechanism, find: Callable[[str], Credential], nonce: str) -> None:
        self.mechanism = mechanism
        # Who authenticates; proven only once `is_complete`.
        self.user = ""
        self.is_complete = False
        self._find = find
        self._own_nonce = nonce.encode()
        self._gs2_header = self._first_bare = self._server_first = self._nonce = b""
        # What the client must prove to know, once it has said its name.
        self.credential: Credential | None = None

    def answer(self, message: bytes) -> bytes:
        """The next message for the client; complete when this has returned for the second time."""
        if len(message) > MESSAGE_BYTES_MAX:
            raise ScramError(f"a message of {len(message)} bytes")
        if self.is_complete:
            raise ScramError("a message after the last one")
        if self.credential is None:
            return self._challenge(message)
        return self._verify(message, self.credential)

    def _challenge(self, client_first: bytes) -> bytes:
        binding, authorization_id, bare = _split(client_first)
        if binding not in (b"n", b"y"):
            raise ScramError("channel binding is not supported")
        name, client_nonce = _attributes(bare, b"n", b"r")[:2]
        if not client_nonce or not all(0x21 <= byte <= 0x7E for byte in client_nonce):
            raise ScramError("the client's nonce is not printable")
        self.user = _user_name(name)
        if authorization_id and _user_name(authorization_id.removeprefix(b"a=")) != self.user:
            raise ScramError("a user may only act as itself")
        self._gs2_header = client_first[: len(client_first) - len(bare)]
        self._first_bare = bare
        self._nonce = client_nonce + self._own_nonce
        found = self.credential = self._find(self.user)
        self._server_first = b"r=%b,s=%b,i=%d" % (
            self._nonce,
            base64.b64encode(found.salt),
            found.iterations,
        )
        return self._server_first

    def _verify(self, client_final: bytes, known: Credential) -> bytes:
        without_proof, separator, proof_text = client_final.rpartition(b",p=")
        if not separator:
            raise ScramError("the proof is missing")
        binding, nonce = _attributes(without_proof, b"c", b"r")[:2]
        if _from_base64(binding) != self._gs2_header:
            raise ScramError("the channel binding changed")
        if not hmac.compare_digest(nonce, self._nonce):
            raise ScramError("the nonce is not the one of this exchange")
        mechanism = self.mechanism
        exchange = b",".join((self._first_bare, self._server_first, without_proof))
        signature = mechanism.mac(known.stored_key, exchange)
        proof = _from_base64(proof_text)
        if len(proof) != len(signature):
            raise ScramError("the proof has the wrong length")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(mechanism.digest(client_key), known.stored_key):
            raise ScramError("the password is wrong")
        self.is_complete = True
        return b"v=" + base64.b64encode(mechanism.mac(known.server_key, exchange))


def _split(client_first: bytes) -> tuple[bytes, bytes, bytes]:
    """Channel binding, authorization id, and the rest, which is signed."""
    parts = client_first.split(b",", 2)
    if len(parts) != 3 or (parts[1] and not parts[1].startswith(b"a=")):
        raise ScramError("the client's first message is malformed")
    return parts[0], parts[1], parts[2]


def _attributes(message: bytes, *names: bytes) -> list[bytes]:
    """The values of the attributes that a message begins with; extensions follow and are ignored.

    A mandatory extension would stand first, where it is refused as the wrong attribute.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(f"a message of {len(message)} bytes")
    parts = message.split(b",")
    if len(parts) < len(names):
        raise ScramError("an attribute is missing")
    values = []
    for part, name in zip(parts, names, strict=False):
        found, separator, value = part.partition(b"=")
        if found != name or not separator:
            raise ScramError(f"the attribute {name.decode()} is missing")
        values.append(value)
    return values


def _user_name(escaped: bytes) -> str:
    try:
        text = escaped.decode()
    except UnicodeDecodeError as error:
        raise ScramError("the user name is not UTF-8") from error
    plain = text.replace("=2C", ",").replace("=3D", "\0")
    if not text or "\0" in text or "=" in plain:
        raise ScramError("the user name is malformed")
    return plain.replace("\0", "=")


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ScramError("a value is not base64") from error


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
