"""A profile document cut into chunks for sending, and named by what they say.

The digest of an upload is the SHA-256 of the SHA-256 digests of all bodies in order, those of the chunks
and that of the head, each in hexadecimal on a line. It depends on bytes alone, so that any language can
compute it, and the same profile cut alike has the same one: sending it again repeats nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

CHUNK_BYTES: Final = 512 * 1024
"""What a chunk has at about the most: a lost connection costs no more than that."""
LISTS: Final = ("kernels", "collectives", "transfers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """The bodies of one upload: rows in chunks, then the head, which says all but the rows."""

    chunks: tuple[bytes, ...]
    head: bytes

    @classmethod
    def of(cls, document: Mapping[str, Any], *, chunk_bytes: int = CHUNK_BYTES) -> "Upload":
        """Return a profile document cut into chunks of about so many bytes."""
        chunks = tuple(_encoded(rows) for rows in _chunks(document, chunk_bytes=chunk_bytes))
        head = {key: value for key, value in document.items() if key not in LISTS}
        return cls(chunks=chunks, head=_encoded({"profile": head, "num_chunks": len(chunks)}))

    @property
    def digest(self) -> str:
        """The name of the upload."""
        return upload_digest([*map(body_digest, self.chunks), body_digest(self.head)])


def body_digest(body: bytes) -> str:
    """Return the digest of one body."""
    return hashlib.sha256(body).hexdigest()


def upload_digest(digests: Sequence[str]) -> str:
    """Return the name of an upload from the digests of its chunks in order, and that of its head."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def joined(head: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the profile document that was cut: the rows of all chunks in order."""
    return {**head, **{name: [row for chunk in chunks for row in chunk.get(name, ())] for name in LISTS}}


def _chunks(document: Mapping[str, Any], *, chunk_bytes: int) -> Iterator[dict[str, list[Any]]]:
    chunk: dict[str, list[Any]] = {}
    size = 0
    for name in LISTS:
        for row in document.get(name, ()):
            length = len(json.dumps(row))
            if chunk and size + length > chunk_bytes:
                yield chunk
                chunk, size = {}, 0
            chunk.setdefault(name, []).append(row)
            size += length
    if chunk:
        yield chunk


def _encoded(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
