import hashlib
import json

import pytest

from api.profile_chunks import LISTS, Upload, body_digest, joined, upload_digest
from tests.unit.api.machines import machine_profile


@pytest.mark.parametrize("chunk_bytes", [1, 300, 10**6])
def test_what_was_cut_is_joined_again(chunk_bytes: int) -> None:
    document = machine_profile(transfers=[{"operation": "h2d", "bytes_per_second": 1.5e9}])
    upload = Upload.of(document, chunk_bytes=chunk_bytes)
    head = json.loads(upload.head)

    assert head["num_chunks"] == len(upload.chunks)
    assert joined(head["profile"], [json.loads(chunk) for chunk in upload.chunks]) == document


def test_chunks_are_about_as_large_as_asked_for() -> None:
    upload = Upload.of(machine_profile(kernels=machine_profile()["kernels"] * 50), chunk_bytes=2000)

    assert len(upload.chunks) > 10
    assert max(map(len, upload.chunks)) < 2500


def test_same_profile_has_the_same_digest_and_another_has_another() -> None:
    profile = machine_profile()

    assert Upload.of(profile).digest == Upload.of(json.loads(json.dumps(profile))).digest
    assert Upload.of(profile).digest != Upload.of(machine_profile(name="other")).digest
    assert Upload.of(profile).digest != Upload.of(machine_profile(kernels=[])).digest


def test_digest_is_one_that_any_language_can_compute() -> None:
    bodies = [b"{}", b'{"a":1}']
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]

    assert (
        upload_digest(list(map(body_digest, bodies)))
        == hashlib.sha256("\n".join(digests).encode()).hexdigest()
    )


def test_profile_without_rows_has_a_head_alone() -> None:
    upload = Upload.of({key: value for key, value in machine_profile().items() if key not in LISTS})

    assert upload.chunks == ()
