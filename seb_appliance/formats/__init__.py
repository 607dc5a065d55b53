"""Every byte in the bucket: record batches, journal entries. Bytes in, columns out; no I/O.

The server, the client and Spark executors share this package; it needs msgspec, a zstd binding and
a CRC-32C binding, no more. The layouts are described for readers in other languages in
docs/FORMAT.md.
"""

import sys

if sys.byteorder != "little":  # pragma: no cover - columns are wrapped, not swapped
    raise ImportError("Seb's formats are little-endian and are read in place: this machine is not")
