"""A self-signed certificate for 127.0.0.1, made at test time with nothing but integers.

Source: RFC 5280 (certificates), RFC 8017 (RSA, PKCS #1 v1.5). Good for one test, and for nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import random
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

__all__ = ["tls_pair"]

_RSA = (1, 2, 840, 113549, 1, 1, 1)
_SHA256_RSA = (1, 2, 840, 113549, 1, 1, 11)
_SHA256 = (2, 16, 840, 1, 101, 3, 4, 2, 1)
_COMMON_NAME = (2, 5, 4, 3)
_ALTERNATIVE_NAME = (2, 5, 29, 17)
_BASIC_CONSTRAINTS = (2, 5, 29, 19)


def tls_pair(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server on 127.0.0.1 and that of a client which trusts it alone."""
    certificate, key = _make(random.Random(7))  # noqa: S311 - guards nothing, and is the same at every run
    (folder / "tls.pem").write_text(_pem("RSA PRIVATE KEY", key) + _pem("CERTIFICATE", certificate))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.pem")
    client = ssl.create_default_context(cadata=_pem("CERTIFICATE", certificate))
    # Strict checks want extensions that this certificate has no use for.
    client.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return server, client


def _make(rng: random.Random) -> tuple[bytes, bytes]:
    e = 65537
    p, q = _prime(rng), _prime(rng)
    n, d = p * q, pow(e, -1, (p - 1) * (q - 1))
    algorithm = _sequence(_oid(_SHA256_RSA), b"\x05\x00")
    name = _sequence(_tlv(0x31, _sequence(_oid(_COMMON_NAME), _tlv(0x0C, b"roundhouse test"))))
    now = datetime.now(UTC)
    validity = _sequence(_time(now - timedelta(days=1)), _time(now + timedelta(days=1)))
    public = _sequence(_integer(n), _integer(e))
    key_info = _sequence(_sequence(_oid(_RSA), b"\x05\x00"), _tlv(0x03, b"\x00" + public))
    address = _sequence(_tlv(0x87, bytes([127, 0, 0, 1])))
    authority = _sequence(_tlv(0x01, b"\xff"))
    extensions = _sequence(
        _sequence(_oid(_ALTERNATIVE_NAME), _tlv(0x04, address)),
        _sequence(_oid(_BASIC_CONSTRAINTS), _tlv(0x01, b"\xff"), _tlv(0x04, authority)),
    )
    body = _sequence(
        *(_tlv(0xA0, _integer(2)), _integer(1), algorithm, name, validity, name, key_info),
        _tlv(0xA3, extensions),
    )
    digest = _sequence(_sequence(_oid(_SHA256), b"\x05\x00"), _tlv(0x04, hashlib.sha256(body).digest()))
    size = (n.bit_length() + 7) // 8
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    signature = pow(int.from_bytes(padded), d, n).to_bytes(size)
    key = (0, n, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    certificate = _sequence(body, algorithm, _tlv(0x03, b"\x00" + signature))
    return certificate, _sequence(*(_integer(number) for number in key))


def _prime(rng: random.Random) -> int:
    while True:
        number = rng.getrandbits(1024) | (3 << 1022) | 1
        is_odd_one = all(number % small for small in (3, 5, 7, 11, 13)) and (number - 1) % 65537 != 0
        if is_odd_one and all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7)):
            return number


def _tlv(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 128:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + body


def _sequence(*parts: bytes) -> bytes:
    return _tlv(0x30, b"".join(parts))


def _integer(number: int) -> bytes:
    return _tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1))


def _oid(arcs: tuple[int, ...]) -> bytes:
    body = bytes([arcs[0] * 40 + arcs[1]])
    for arc in arcs[2:]:
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.insert(0, (arc & 0x7F) | 0x80)
        body += bytes(groups)
    return _tlv(0x06, body)


def _time(when: datetime) -> bytes:
    return _tlv(0x17, when.strftime("%y%m%d%H%M%SZ").encode())


def _pem(kind: str, data: bytes) -> str:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"
