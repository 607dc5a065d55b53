"""Reasons not to start (or go on), with the exit code of `seb serve`."""

from __future__ import annotations

from typing import ClassVar

from seb_appliance.errors import SebError


class StartError(SebError):
    """The appliance cannot start (or go on). `detail` is the sentence for the terminal."""

    exit_code: ClassVar[int] = 1


class BucketInUseError(StartError):
    """The bucket belongs to another appliance; `--take-over` would fence it."""

    exit_code = 73


class StoreUnusableError(StartError):
    """The store fails its test, or the journal is damaged."""

    exit_code = 74


class StoreAwayError(StoreUnusableError):
    """The store gave no answer that says yes or no, for as long as a start waits for one. Nobody
    needs to act: a start that comes later may find it back."""

    exit_code = 69


class FencedStartError(StartError):
    """Another appliance took over while this one started."""

    exit_code = 75


class ConfigurationError(StartError):
    """A setting, a file or an argument is wrong."""

    exit_code = 78


class NewerReleaseError(ConfigurationError):
    """A state file, or a snapshot of one, that a newer release than this one wrote."""
