"""A file on a drive, read and written past the cache: made within the space there is, taken away after."""

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from planner.units import Bytes
from profiler.operands import InvalidShape, Unsupported

BLOCK_BYTES = 4 * 2**20
"""What one request moves: a drive reaches its rate with a few of these on their way."""
REQUESTS = 4
"""Requests that are on their way at the same time."""
KEPT_FREE_FRACTION = 0.1
KEPT_FREE_BYTES: Bytes = 2**30
"""Of a file system, what must stay free: others write there too."""


class DriveRefused(ValueError):  # noqa: N818 - reads as what it is
    """A place where no file may be made: it is taken, no plain folder, or too full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectFile:
    """An open file of so many bytes whose reads and writes go to the drive itself."""

    descriptor: int
    num_bytes: int
    workers: ThreadPoolExecutor

    def read(self) -> None:
        """Read all of it once."""
        self._each_share(self._read_share)

    def write(self) -> None:
        """Write all of it once, until the drive has it."""
        self._each_share(self._write_share)
        os.fdatasync(self.descriptor)

    def _each_share(self, move: Callable[[int], None]) -> None:
        list(self.workers.map(move, range(REQUESTS)))

    def _read_share(self, share: int) -> None:
        with mmap.mmap(-1, BLOCK_BYTES) as block:
            for offset in self._offsets(share):
                os.preadv(self.descriptor, [block], offset)

    def _write_share(self, share: int) -> None:
        with mmap.mmap(-1, BLOCK_BYTES) as block:
            block.write(os.urandom(BLOCK_BYTES))
            for offset in self._offsets(share):
                os.pwritev(self.descriptor, [block], offset)

    def _offsets(self, share: int) -> range:
        """Return where the blocks of one of the requests begin: every fourth one is its own."""
        return range(share * BLOCK_BYTES, self.num_bytes, REQUESTS * BLOCK_BYTES)


@contextmanager
def direct_file(path: Path, *, num_bytes: int) -> Iterator[DirectFile]:
    """Give a new file of random bytes at ``path`` for direct input and output; it is deleted afterwards.

    Raises `DriveRefused` where something is there already (a device above all) or too little space
    would be left, `InvalidShape` where the size is no whole number of blocks, `Unsupported` where the
    file system has no direct input and output.
    """
    if num_bytes % BLOCK_BYTES:
        raise InvalidShape(f"payload_bytes ({num_bytes}) must be a multiple of {BLOCK_BYTES}")
    _require_space(path.parent, num_bytes)
    descriptor = _create(path)
    try:
        with ThreadPoolExecutor(REQUESTS) as workers:
            file = DirectFile(descriptor=descriptor, num_bytes=num_bytes, workers=workers)
            file.write()
            yield file
    finally:
        os.close(descriptor)
        path.unlink()


def _create(path: Path) -> int:
    try:
        # O_EXCL: never what is there already, be it a file of somebody's or a device.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
    except FileExistsError as error:
        raise DriveRefused(f"{path} is there already: name a new file") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            # The file system made the file and then would not open it so.
            path.unlink(missing_ok=True)
        raise Unsupported(f"no direct input and output in {path.parent}: {error.strerror}") from error


def _require_space(folder: Path, num_bytes: int) -> None:
    if not folder.is_dir():
        raise DriveRefused(f"no folder {folder}")
    usage = shutil.disk_usage(folder)
    kept = max(KEPT_FREE_BYTES, usage.total * KEPT_FREE_FRACTION)
    if usage.free - num_bytes < kept:
        raise DriveRefused(
            f"{folder} has {usage.free} B free: {num_bytes} B would leave less than {kept:.0f} B"
        )
