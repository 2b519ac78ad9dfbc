"""Certificates of a federation: an authority, a server, an operator and one per agent.

    DIR/authority/   authority.crt, authority.key      stays with whoever admits agents, ideally offline
    DIR/server/      authority.crt, own.crt, own.key   to the server's machine
    DIR/operator/    likewise                          to whoever runs `afedpg status`
    DIR/agents/NAME/ likewise                          to that agent's machine
    DIR/allowed.txt  the allow-list: a name per line   to the server's machine

An agent's certificate is good for being a client only, so that no agent can pose as the server.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from afedpg.errors import ConfigError
from afedpg.printable import printable
from afedpg.record.disk import create_private
from afedpg.transport.grpc.roster import check_name, read_list
from afedpg.transport.grpc.tls import AUTHORITY, CERTIFICATE, KEY, OPERATOR

AUTHORITY_DAYS = 3650
MOST_AGENTS = 10_000  # at once
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_SKEW = datetime.timedelta(hours=1)  # clocks of agents may be behind


@dataclass(frozen=True)
class Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        plain = serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def make_certificates(folder: Path, hosts: Sequence[str], agents: Sequence[str], days: int) -> list[Path]:
    """Makes what is not there yet and returns the folders that are new; names join the allow-list."""
    if not 1 <= days <= AUTHORITY_DAYS:
        raise ConfigError(f"days: {days}; between 1 and {AUTHORITY_DAYS}, the life of the authority, are possible")
    for name in agents:
        if check_name(name) == OPERATOR:
            raise ConfigError(f"agents: '{OPERATOR}' is reserved for whoever runs `afedpg status`")
    if not hosts:
        raise ConfigError("host: name at least one, as agents will dial it: --host federation.example")
    names = [_host(host) for host in hosts]
    try:
        authority = _authority(folder / "authority")
        made = []
        if _write(folder / "server", authority, issue(authority, "server", days, names)):
            made.append(folder / "server")
        if _write(folder / OPERATOR, authority, issue(authority, OPERATOR, days)):
            made.append(folder / OPERATOR)
        homes = {name: folder / "agents" / name for name in agents}
        made += [home for name, home in homes.items() if _write(home, authority, issue(authority, name, days))]
        _allow(folder / "allowed.txt", agents)
    except OSError as error:
        raise ConfigError(f"folder: cannot write {error.filename}: {error.strerror}") from error
    return made


def agent_names(text: str) -> list[str]:
    """A number of agents, or names with commas between them."""
    if not text.isdecimal():
        return words(text)
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(MOST_AGENTS)) or int(digits) > MOST_AGENTS:
        raise ConfigError(f"agents: {text[:32]} certificates; at most {MOST_AGENTS} are made at once")
    return [f"agent-{number}" for number in range(int(digits))]


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def new_authority() -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("afedpg authority")
    builder = _builder(name, name, key, AUTHORITY_DAYS).add_extension(x509.BasicConstraints(True, 0), critical=True)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # certificates and their lists
    builder = builder.add_extension(usage, critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, name: str, days: float, hosts: Sequence[x509.GeneralName] = ()) -> Pair:
    """A certificate for a server with those hosts, or for a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.certificate.subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
    names = list(hosts) or [x509.DNSName(f"{name}.afedpg.invalid")]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=days)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(min(now, until) - _SKEW).not_valid_after(until)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        labels = host.removeprefix("*.").split(".")
        if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
            raise ConfigError(f"host: '{printable(host)[:64]}' is no host's name or address{_ascii(host)}") from None
        return x509.DNSName(host)


def _ascii(host: str) -> str:
    """Where letters are the trouble: how such a name is written in a certificate."""
    try:
        return "" if host.isascii() else f"; write it as {host.encode('idna').decode()}"
    except UnicodeError:
        return ""


def _authority(folder: Path) -> Pair:
    """The one that is there, or a new one."""
    certificate, key = folder / AUTHORITY, folder / "authority.key"
    if not certificate.exists():
        pair = new_authority()
        folder.mkdir(parents=True, exist_ok=True)
        _secret(key, pair.key_pem)
        certificate.write_bytes(pair.certificate_pem)
        return pair
    try:
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("not an elliptic curve key")
        return Pair(x509.load_pem_x509_certificate(certificate.read_bytes()), loaded)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"folder: the authority in {folder} cannot be read: {error}") from error


def _write(folder: Path, authority: Pair, pair: Pair) -> bool:
    if (folder / CERTIFICATE).exists():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    _secret(folder / KEY, pair.key_pem)
    (folder / AUTHORITY).write_bytes(authority.certificate_pem)
    (folder / CERTIFICATE).write_bytes(pair.certificate_pem)
    return True


def _secret(file: Path, data: bytes) -> None:
    with os.fdopen(create_private(file), "wb") as stream:
        stream.write(data)


def _allow(file: Path, names: Sequence[str]) -> None:
    known = read_list(file) if file.exists() else []
    fresh = [name for name in dict.fromkeys(names) if name not in known]
    if fresh or not file.exists():
        with file.open("a", encoding="utf-8") as stream:
            stream.writelines(f"{name}\n" for name in fresh)
