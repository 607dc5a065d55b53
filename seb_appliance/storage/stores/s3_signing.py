"""Signers of requests to an S3 store. Imports botocore: import this late."""

from __future__ import annotations

from typing import Final

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest

SIGNER: Final = "seb-s3v4"
URL_SIGNER: Final = "seb-s3v4-query"
SIGNING_TIME: Final = "seb-signing-time"


class _GivenTime:
    """Signs with the time that the request carries. botocore always signs with the machine's clock,
    and a store refuses a request that is signed 15 minutes off its own clock."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        request.context["timestamp"] = request.context[SIGNING_TIME]
        super()._modify_request_before_signing(request)  # type: ignore[misc]


class GivenTimeAuth(_GivenTime, S3SigV4Auth):
    pass


class _GivenTimeQueryAuth(_GivenTime, S3SigV4QueryAuth):
    pass


# botocore finds signers by name in this table.
AUTH_TYPE_MAPS[SIGNER] = GivenTimeAuth
AUTH_TYPE_MAPS[URL_SIGNER] = _GivenTimeQueryAuth
