"""The errors of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from seb_appliance import errors

SideEffects = Literal["none", "unknown"]
RETRY_AFTER_S_MAX: Final = 60.0


class ClientError(Exception):
    """Base of all errors of the client."""


class ConfigurationError(ClientError, errors.ConfigurationError):
    """A URL, an API key or an option is wrong."""


class ApplianceError(ClientError):
    """A request was refused, or got no usable answer.

    `code`: one of docs/ERRORS.md, or `unreachable` (no connection; nothing was sent), `no_answer`
    (the connection broke after all or part of the request was sent), `foreign_answer` (another
    server answered). `status` is 0 without an answer. `side_effects`: "none" guarantees that
    nothing happened; "unknown" means that the request may have been executed, or still may be.
    `problem`: all members of the answer.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int = 0,
        retryable: bool = False,
        side_effects: SideEffects = "none",
        retry_after_s: float = 0.0,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{detail.rstrip('.')} ({code}).")
        self.detail = detail
        self.code = code
        self.status = status
        self.retryable = retryable
        self.side_effects: SideEffects = side_effects
        self.retry_after_s = retry_after_s
        self.problem: Mapping[str, Any] = problem or {}

    @property
    def harmless(self) -> bool:
        """Nothing was executed, and the same request may succeed later."""
        return self.retryable and self.side_effects == "none"

    def in_doubt(self) -> ApplianceError:
        """The same error for a request of which an earlier attempt had no answer: it may have been
        executed."""
        return type(self)(
            self.detail,
            code=self.code,
            status=self.status,
            retryable=self.retryable,
            side_effects="unknown",
            retry_after_s=self.retry_after_s,
            problem=self.problem,
        )


class TopicReplacedError(ApplianceError):
    """The topic was deleted and created again while it was being read. The offsets of the new topic
    begin at 0."""


class ClosedError(ClientError):
    """The producer or consumer was closed."""


class LeaseLostError(ClientError):
    """The lease expired or another holder took it. Discard what is not committed."""


def unreachable(address: str, why: str) -> ApplianceError:
    return ApplianceError(
        f"Cannot reach an appliance at {address} ({why})", code="unreachable", retryable=True
    )


def no_answer(address: str, why: str) -> ApplianceError:
    return ApplianceError(
        f"{address} did not answer ({why})",
        code="no_answer",
        retryable=True,
        side_effects="unknown",
    )


def refusal(address: str, status: int, headers: Mapping[str, str], body: bytes) -> ApplianceError:
    """The error of an unsuccessful answer. `headers`: names in lower case."""
    retry_after_s = _seconds(headers.get("retry-after", ""))
    problem = _problem(body)
    if "seb-version" not in headers or problem is None:
        # A proxy's: whether the request went through it, it does not say.
        return ApplianceError(
            f"{address} answered {status}, but is not an appliance",
            code="foreign_answer",
            status=status,
            retryable=status == 429 or status >= 500,
            side_effects="unknown",
            retry_after_s=retry_after_s,
        )
    code = str(problem["code"])
    kind = TopicReplacedError if code == "topic_replaced" else ApplianceError
    return kind(
        str(problem.get("detail", "The request was refused")),
        code=code,
        status=status,
        retryable=problem.get("retryable") is True,
        side_effects="none" if problem.get("side_effects") == "none" else "unknown",
        retry_after_s=retry_after_s,
        problem=problem,
    )


def _problem(body: bytes) -> dict[str, Any] | None:
    try:
        problem = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return problem if isinstance(problem, dict) and "code" in problem else None


def _seconds(text: str) -> float:
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdecimal() and text.isascii() else 0.0
