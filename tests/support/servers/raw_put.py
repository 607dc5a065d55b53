"""A signed PUT with any headers, right or wrong, which no S3 client would send."""

from __future__ import annotations

import hashlib
import http.client

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.servers.s3_server import S3Server


class _Signed(S3SigV4Auth):
    def __init__(self, server: S3Server, sha256: str) -> None:
        credentials = Credentials(server.access_key_id, server.secret_access_key)
        super().__init__(credentials, "s3", "us-east-1")
        self._sha256 = sha256

    def payload(self, request: AWSRequest) -> str:
        return self._sha256


def raw_put(
    server: S3Server, path: str, body: bytes, headers: dict[str, str], signed: bytes | None = None
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer. `path`: /bucket/key. `signed`: the bytes whose SHA-256 is
    signed, if not those that are sent."""
    sha256 = hashlib.sha256(body if signed is None else signed).hexdigest()
    request = AWSRequest(
        "PUT",
        f"http://127.0.0.1:{server.port}{path}",
        headers={**headers, "Content-Length": str(len(body))},
        data=body,
    )
    _Signed(server, sha256).add_auth(request)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("PUT", path, body, dict(request.headers.items()))
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}
    finally:
        connection.close()
