"""How a connection begins: versions, and an API key as the password of SASL PLAIN."""

from __future__ import annotations

from typing import Any, Final

from seb_appliance.errors import UnauthenticatedError
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.requests import Caller, Request, handles
from seb_appliance.protocols.kafka.wire.codec import APIS, Message

_MECHANISMS: Final = ["PLAIN"]
_PARTS: Final = 3  # of a token: authorization id, user name, password


@handles(18)
def api_versions(_: Any, request: Request) -> Message:
    """A version that is not known here is answered in version 0 (KIP-511)."""
    body = request.body
    if body.get("client_software_name"):
        given = f"{body['client_software_name']} {body['client_software_version']}"
        request.caller.software = given[:100]
    unknown = request.is_version_unknown
    return {
        "error_code": ErrorCode.UNSUPPORTED_VERSION if unknown else ErrorCode.NONE,
        "api_keys": [
            {
                "api_key": api.key,
                "min_version": api.versions.start,
                "max_version": api.versions.stop - 1,
            }
            for api in APIS.values()
        ],
    }


@handles(17)
def sasl_handshake(_: Any, request: Request) -> Message:
    known = request.body["mechanism"] in _MECHANISMS
    request.caller.wants_token = known and request.version == 0
    code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return {"error_code": code, "mechanisms": _MECHANISMS}


@handles(36)
def sasl_authenticate(_: Any, request: Request) -> Message:
    try:
        take_token(request.caller, request.body["auth_bytes"])
    except UnauthenticatedError as error:
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return {"error_code": code, "error_message": error.detail}
    return {}


def take_token(caller: Caller, token: bytes) -> None:
    """Of SASL PLAIN (RFC 4616): the password is an API key, any user name does. Raises
    UnauthenticatedError."""
    parts = token.split(b"\0")
    if len(parts) != _PARTS:
        raise UnauthenticatedError("The token is not of SASL PLAIN.")
    caller.authenticate(parts[2].decode("ascii", "replace"))
