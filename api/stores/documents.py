"""What the stores take and give back: documents as JSON has them, and their digests."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document in hexadecimal, whatever the order of its keys.

    Raises ValueError for a number that JSON does not have (NaN or an infinity).
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
