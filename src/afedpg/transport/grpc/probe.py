"""Why a server cannot be reached: gRPC says "Socket closed" whether it is down or a certificate does not fit.

The handshake is made once more, by Python's own TLS, which says what is wrong. Only what trying again cannot mend is
told: a server that is not there, hangs up before its handshake or is slow is no finding.
"""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
import time
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from afedpg.printable import of_peer
from afedpg.transport.grpc.tls import AUTHORITY, CERTIFICATE, KEY, split_address

SECONDS = 5.0  # for each step
ATTEMPTS, BETWEEN_SECONDS = 2, 1.0  # a server that is just being stopped hangs up, too, but not twice
_log = logging.getLogger("afedpg")


def misfit(address: str, folder: Path) -> str:
    """What is wrong with the server's certificate or with the one in `folder`; empty where nothing is known to be."""
    host, port = split_address(address, "connect")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(folder / AUTHORITY)
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    except (OSError, ValueError) as error:  # ssl.SSLError is one
        return f"the certificate in {folder} cannot be used: {_reason(error)}"
    context.set_alpn_protocols(["h2"])
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(BETWEEN_SECONDS)
        wrong = _handshake(context, host, port, folder)
        if wrong is not None:
            return wrong
    fault = _fault(folder)
    if not fault:  # a line that breaks again and again looks the same
        _log.warning("%s hangs up on the certificate in %s; does it know its authority?", address, folder)
        return ""
    return f"the server does not accept the certificate in {folder}: {fault}"


def _handshake(context: ssl.SSLContext, host: str, port: int, folder: Path) -> str | None:
    """What is wrong, or empty; None where the server showed a good certificate, saw ours, and hung up."""
    shaken = False
    try:
        with (
            socket.create_connection((host, port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            shaken = True
            return "" if secure.recv(1) else None  # in TLS 1.3 a server judges our certificate after our handshake
    except ssl.SSLCertVerificationError as error:
        what = of_peer(error.verify_message.rstrip("."))
        if "mismatch" in what:
            return f"the server's certificate does not name {host}; make one with `afedpg certs DIR --host {host}`"
        return f"the server's certificate is not good: {what}; its authority must be that of {folder / AUTHORITY}"
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        return None if shaken else ""
    except ssl.SSLError as error:
        reason = _reason(error)
        if "alert" in reason:
            return f"the server does not accept the certificate in {folder}: {reason}"
        return f"whoever answers there does not speak TLS: {reason}"
    except (OSError, UnicodeError):  # no such host, nobody there, too slow
        return ""


def _fault(folder: Path) -> str:
    """What can be seen from here to be wrong with our own certificate."""
    try:
        own = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        if own.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
            return f"it expired on {own.not_valid_after_utc:%Y-%m-%d}"
        purposes = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in purposes:
            return "it is not for an agent"
        own.verify_directly_issued_by(x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes()))
    except InvalidSignature:
        return f"it is not signed by the authority in {folder / AUTHORITY}"
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return ""
    return ""


def _reason(error: Exception) -> str:
    """OpenSSL's reason in words: TLSV1_ALERT_UNKNOWN_CA -> alert unknown ca."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    words = of_peer(str(reason)).lower().replace("_", " ")
    return words[words.index("alert") :] if "alert" in words else words
