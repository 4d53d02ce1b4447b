"""A certificate authority and a server's certificate, made for one test run.

Without it TLS would be tried without verification, which is the one way that says nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import LOOPBACK
from tests.support.services import service_missing


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority's certificate, the server's, and the server's key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and a certificate for loopback, signed by it; without openssl the test skips, and fails in CI."""
    if shutil.which("openssl") is None:
        service_missing("openssl is not on the PATH; it makes the certificates of the TLS tests")
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    names = folder / "names"
    names.write_text(f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca_key, request = folder / "ca.key", folder / "server.csr"
    _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", made.authority, "-days", "2", "-subj", "/CN=tests")
    _openssl("req", *new_key, "-keyout", made.key, "-out", request, "-subj", "/CN=localhost")
    signer = ["-CA", made.authority, "-CAkey", ca_key, "-CAcreateserial", "-extfile", names]
    _openssl("x509", "-req", "-in", request, *signer, "-out", made.certificate, "-days", "2")
    return made


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
