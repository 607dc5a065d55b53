"""The object store on S3 and compatible servers.

boto3 runs in our own threads and never retries: a retry would turn the success of a lost first
attempt into a 412. It is imported with the first request, so that an appliance on a directory does
not pay for it. `s3_requests.py` makes the requests, `s3_puts.py` sends PUTs without a thread, and
`s3_answers.py` classifies errors.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from seb_appliance.clock import monotonic_s
from seb_appliance.errors import ConfigurationError, StoreUncertainError
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.storage.stores.object_store import Durability, ObjectInfo, ObjectRange, SignedPut
from seb_appliance.storage.stores.s3_options import SLOWEST_BYTES_PER_S, S3Options

if TYPE_CHECKING:
    from seb_appliance.storage.stores.s3_requests import S3Requests

T = TypeVar("T")

# Reads have their own threads: many slow reads must not delay an acknowledgement.
OTHER_THREADS: Final = 4


@dataclass(slots=True)
class _Call(Generic[T]):
    """A request, and the `thread` that makes it; 0 before and after."""

    request: Callable[[S3Requests], T]
    thread: int = 0
    began_s: float = 0.0
    body_bytes: int = 0

    def expect(self, body_bytes: int) -> None:
        self.body_bytes = body_bytes

    def is_late(self, waiting_s: float) -> bool:
        timeout_s = waiting_s + self.body_bytes / SLOWEST_BYTES_PER_S
        return self.thread != 0 and monotonic_s() - self.began_s > timeout_s


class S3Store:
    """An `ObjectStore` in the bucket, under the prefix. Raises ConfigurationError.

    `wall_s`: our clock, seconds since the epoch; requests are signed with it.
    """

    durability: Durability = "s3"

    def __init__(
        self,
        options: S3Options,
        failpoints: Failpoints = NO_FAILPOINTS,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{3,255}", options.bucket):
            raise ConfigurationError(f"{options.bucket!r} is not the name of an S3 bucket")
        if options.endpoint_url is not None:
            url = urlsplit(options.endpoint_url)
            if url.scheme not in {"http", "https"} or not url.hostname or url.path not in {"", "/"}:
                raise ConfigurationError(f"{options.endpoint_url!r} is not http(s)://host[:port]")
        if (options.access_key_id is None) != (options.secret_access_key is None):
            raise ConfigurationError("S3 credentials: give both the access key id and the secret")
        self._options = options
        self._failpoints = failpoints
        self._wall_s = wall_s
        self._base = f"{prefix}/" if (prefix := options.prefix.strip("/")) else ""
        self.description = f"s3://{options.bucket}/{self._base}".rstrip("/")
        self._waiting_s = options.connect_timeout_s + 2 * options.read_timeout_s
        self._requests: S3Requests | None = None
        self._connecting = threading.Lock()
        self._reads = ThreadPoolExecutor(options.threads, thread_name_prefix="s3-read")
        self._others = ThreadPoolExecutor(OTHER_THREADS, thread_name_prefix="s3")

    @property
    def date_ahead_s(self) -> float | None:
        return self._requests.date_ahead_s if self._requests else None

    def prepare(self, body: bytes) -> None:
        if self._requests is not None:
            self._requests.prepare(body)

    async def create(self, key: str, body: bytes) -> None:
        await self._put(key, body, create_only=True)

    async def put(self, key: str, body: bytes) -> None:
        await self._put(key, body, create_only=False)

    async def _put(self, key: str, body: bytes, *, create_only: bool) -> None:
        if (requests := self._requests) is None:
            requests = await self._run(self._others, key, lambda made: made)
        if not await requests.put_by_loop(key, body, create_only=create_only):
            await self._run(
                self._others,
                key,
                lambda s3: s3.put(key, body, create_only=create_only),
                len(body),
            )

    async def get(self, key: str) -> bytes:
        # Not bounded while it waits for a thread. How long the body may take, its size says.
        call = _Call(lambda s3: s3.get(key, call.expect))
        future = asyncio.get_running_loop().run_in_executor(self._reads, self._call, call)
        try:
            while not (await asyncio.wait({future}, timeout=self._waiting_s))[0]:
                if call.is_late(self._waiting_s):
                    raise self._cut_off(call, key)
            return await future
        finally:
            future.cancel()

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        return await self._run(
            self._reads, key, lambda s3: s3.get_range(key, start, length), length
        )

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return await self._run(self._others, prefix, lambda s3: s3.list_after(prefix, after, limit))

    async def head(self, key: str) -> ObjectInfo:
        return await self._run(self._others, key, lambda s3: s3.head(key))

    async def delete(self, key: str) -> None:
        await self._run(self._others, key, lambda s3: s3.delete(key))

    async def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str] | None:
        return await self._run(self._others, "", lambda s3: s3.signed_urls(keys, valid_s))

    async def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut | None:
        return await self._run(
            self._others, key, lambda s3: s3.signed_put(key, length, md5, valid_s)
        )

    async def check_configuration(self) -> list[str]:
        """As in the protocol; two requests."""
        versioning = await self._run(self._others, "", lambda s3: s3.versioning_warning())
        lifecycle = await self._run(self._others, "", lambda s3: s3.lifecycle_warning())
        return [warning for warning in (versioning, lifecycle) if warning]

    async def close(self) -> None:
        """Wait for the current requests, but not for answers that trickle, then end the threads."""
        ends = [
            asyncio.ensure_future(asyncio.to_thread(executor.shutdown, cancel_futures=True))
            for executor in (self._others, self._reads)
        ]
        while (await asyncio.wait(ends, timeout=self._options.read_timeout_s))[1]:
            if self._requests is not None:
                self._requests.cut()
        if self._requests is not None:
            await self._requests.close()

    async def _run(
        self,
        executor: ThreadPoolExecutor,
        key: str,
        request: Callable[[S3Requests], T],
        body_bytes: int = 0,
    ) -> T:
        """Make one request in a thread.

        The sockets' timeouts apply between two bytes; this one bounds the whole request, which is
        then cut off, for its thread to be free. (Not `wait_for`: in Python 3.11 it swallows a
        cancellation that coincides with the answer, and a stop would never end.)
        """
        timeout_s = self._waiting_s + body_bytes / SLOWEST_BYTES_PER_S
        call = _Call(request)
        future = asyncio.get_running_loop().run_in_executor(executor, self._call, call)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            raise self._cut_off(call, key) from error

    def _cut_off(self, call: _Call[T], key: str) -> StoreUncertainError:
        if call.thread and self._requests is not None:
            self._requests.cut(call.thread)
        return StoreUncertainError(
            f"{key}: {self.description} did not answer in time, or too slowly", key=key
        )

    def _call(self, call: _Call[T]) -> T:
        with self._connecting:
            if self._requests is None:
                from seb_appliance.storage.stores.s3_requests import S3Requests

                self._requests = S3Requests(
                    self._options,
                    base=self._base,
                    connections=self._options.threads + OTHER_THREADS,
                    failpoints=self._failpoints,
                    wall_s=self._wall_s,
                )
        call.thread, call.began_s = threading.get_ident(), monotonic_s()
        try:
            return call.request(self._requests)
        finally:
            call.thread = 0
