"""Encrypts secrets that must be readable again, such as those that check a webhook's signature.

What is stored in the journal is encrypted with a key that is not in the bucket. The key file holds
Fernet keys, one per line: the first one encrypts, all of them decrypt, so a key is rotated by a new
first line. Whoever loses the file enters the secrets again.
"""

from __future__ import annotations

import contextlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from seb_appliance.errors import ConfigurationError, NotReadyError
from seb_appliance.storage.private_files import sync_folder, write_whole

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class FernetBox:
    """The file is created, readable by its owner only, when the first secret is sealed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seal(self, secret: str) -> str:
        """Raises ConfigurationError if the key file cannot be read or made."""
        return self._cipher.encrypt(secret.encode()).decode()

    def open(self, sealed: str) -> str:
        """Raises NotReadyError if none of the keys is the right one."""
        from cryptography.fernet import InvalidToken

        if self._path.exists():
            with contextlib.suppress(InvalidToken):
                return self._cipher.decrypt(sealed).decode()
        raise NotReadyError(
            f"A stored secret cannot be decrypted with {self._path}. Restore that file, or set the "
            "secret again."
        )

    @cached_property
    def _cipher(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet

        try:
            if not self._path.exists():
                self._make(Fernet.generate_key() + b"\n")
            keys = self._path.read_text().split()
            return MultiFernet([Fernet(key) for key in keys])
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{self._path} holds no usable keys: {error}") from error

    def _make(self, content: bytes) -> None:
        """The file, whole and durable, or none: secrets that are stored may need it. Raises
        OSError."""
        new = self._path.with_name(f"{self._path.name}.new")
        new.unlink(missing_ok=True)
        made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_whole(made, content)
            os.fsync(made)
        finally:
            os.close(made)
        new.rename(self._path)
        sync_folder(self._path.parent)
