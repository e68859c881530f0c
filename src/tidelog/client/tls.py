"""What a failed TLS handshake means, in plain words. Imports `ssl`."""

from __future__ import annotations

import ssl
from typing import Final

from tidelog.client.faults import HandshakeError, TlsError
from tidelog.errors import TidelogError

# OpenSSL's X509_V_ERR codes.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_WRONG_NAMES: Final = (62, 64)
_UNKNOWN_AUTHORITIES: Final = (2, 18, 19, 20, 21)

# A piece of OpenSSL's reason: the problem, and what to do.
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": (
        "the broker requires a certificate of the client",
        "set ssl.keystore.location to a PEM file with your key and certificate",
    ),
    "ALERT_UNKNOWN_CA": (
        "the broker does not know the authority of the client's certificate",
        "use a certificate of an authority that the broker trusts",
    ),
    "CERTIFICATE_EXPIRED": (
        "the broker says that the client's certificate has expired",
        "renew it, or check this machine's clock",
    ),
    "CERTIFICATE_REVOKED": ("the client's certificate is revoked", "renew it"),
    "BAD_CERTIFICATE": (
        "the broker refuses the client's certificate, or misses one",
        "set ssl.keystore.location to a PEM file with your key and certificate",
    ),
    "CERTIFICATE_UNKNOWN": (
        "the broker does not accept the client's certificate",
        "use a certificate of an authority that the broker trusts",
    ),
    "WRONG_VERSION_NUMBER": (
        "this listener does not speak TLS",
        "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use a TLS listener",
    ),
    "PROTOCOL_VERSION": (
        "the broker and the client share no version of TLS",
        "set ssl.enabled.protocols=TLSv1.2,TLSv1.3 on both sides",
    ),
    "UNSUPPORTED_PROTOCOL": (
        "the broker and the client share no version of TLS",
        "set ssl.enabled.protocols=TLSv1.2,TLSv1.3 on both sides",
    ),
    "HANDSHAKE_FAILURE": (
        "the broker and the client share no cipher suite, or a client certificate is missing",
        "compare ssl.enabled.protocols and ssl.cipher.suites, and set ssl.keystore.location",
    ),
}


def explain(error: Exception | None, address: str, host: str) -> TidelogError:
    """A failed handshake in plain words; one that may pass is a HandshakeError.

    With TLS 1.3 a broker refuses a client's certificate after the client's part of the handshake;
    what comes before the broker's first answer is explained so, too. Later errors of TLS are those
    of a lost connection, and the next handshake tells.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(address, *_certificate_problem(error, host))
    refused = _refusal(error, address)
    if refused is not None:
        return refused
    if isinstance(error, TimeoutError):
        return HandshakeError(address, "TLS: the handshake timed out")
    return HandshakeError(
        address,
        "TLS: the broker closed the connection in the handshake; the listener may be plaintext, or"
        " require a client certificate",
    )


def _refusal(error: Exception | None, address: str) -> TlsError | None:
    """What an error says of TLS; None where the connection was lost, which may pass."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return None
    reason = error.reason or str(error)
    for piece, (problem, hint) in _ALERTS.items():
        if piece in reason:
            return TlsError(address, problem, hint)
    text = reason.lower().replace("_", " ")
    return TlsError(address, text, "the broker's log may say more")


def _certificate_problem(error: ssl.SSLCertVerificationError, host: str) -> tuple[str, str]:
    code = error.verify_code
    if code == _EXPIRED:
        return (
            "the broker's certificate has expired",
            "renew the broker's certificate; if it is valid, check this machine's clock",
        )
    if code == _NOT_YET_VALID:
        return (
            "the broker's certificate is not valid yet",
            "check this machine's clock; if it is right, wait or renew the certificate",
        )
    if code in _WRONG_NAMES:
        return (
            f"the broker's certificate is not for the name {host}",
            "use a name that is in the certificate, or issue one with this name;"
            " ssl.endpoint.identification.algorithm= switches the check off",
        )
    if code in _UNKNOWN_AUTHORITIES:
        return (
            "the broker's certificate is from an unknown authority",
            "set ssl.truststore.location to the PEM file of the authority that signed it",
        )
    return f"the broker's certificate is refused: {error.verify_message}", "renew the certificate"
