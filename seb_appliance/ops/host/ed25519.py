"""Ed25519 key pairs, for signatures that anybody can verify with a public key."""

from __future__ import annotations


class Ed25519:
    """`public`: the public key, 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        """`seed`: 32 secret random bytes, of which the pair is made."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(data)
