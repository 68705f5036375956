import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from planner.profile import Profile, builtin_profile_names
from planner.profile_columns import tables_from_columns
from planner.profiles.build import main, packed_profile, profile_document

KERNELS = [
    {
        "device": "A100-SXM4-80GB",
        "op": "gemm",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"m":4096,"n":4096,"k":4096,"layout":"TN"}',
        "latency_us": "550.5",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": "gemm#sglang",
    },
    {
        "device": "A100-SXM4-80GB",
        "op": "gemm",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"m":128,"n":4096,"k":4096}',
        "latency_us": "25.0",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": "gemm#sglang",
    },
    {
        "device": "A100-SXM4-80GB",
        "op": "attention",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"b":1,"s":1024,"h":12,"kvh":1,"d":128,"causal":1}',
        "latency_us": "53.1",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": "attention",
    },
    {
        "device": "A100-SXM4-80GB",
        "op": "mamba2",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"tokens":1}',
        "latency_us": "9.9",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": "mamba2",
    },
    {
        "device": "A100-SXM4-40GB",
        "op": "bmm",
        "dtype": "fp16",
        "phase": "bwd",
        "shape": '{"b":16,"m":2048,"n":64,"k":2048}',
        "latency_us": "373.0",
        "source": "sailor @cf2c8e3",
        "source_ref": "ops.csv",
    },
    {
        "device": "A100-SXM4-40GB",
        "op": "gelu",
        "dtype": "fp16",
        "phase": "fwd",
        "shape": '{"elems":8388608}',
        "latency_us": "64.9",
        "source": "sailor @cf2c8e3",
        "source_ref": "ops.csv",
    },
]
COLLECTIVES = [
    {
        "device": "A100-SXM4-80GB",
        "intra_link": "nvlink3",
        "inter_link": inter_link,
        "op": operation,
        "world": "8",
        "ranks_per_node": ranks,
        "bytes": "1048576.0",
        "latency_us": "38.9",
        "algo": "NCCL",
        "dtype": "",
        "source": "vidur @7d47513",
        "source_ref": "all_reduce.csv",
    }
    for operation, ranks, inter_link in (("all_reduce", "8", ""), ("send_recv", "1", "ib"))
]
LINKS = [
    {
        "device_or_host": "A100-SXM4-40GB",
        "op": "h2d",
        "bytes": size,
        "bandwidth_gbps": "25.13",
        "source": "github.com/NVIDIA/nvbandwidth issue 42",
        "source_ref": "issue",
    }
    for size in ("536870912", "")
]


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "kernels.csv.gz", KERNELS)
    write(tmp_path / "collectives.csv.gz", COLLECTIVES)
    write(tmp_path / "memory_links.csv", LINKS)
    return tmp_path


def test_rows_take_the_names_and_units_of_a_profile(folder: Path) -> None:
    document = profile_document(folder, name="a100-sxm-80gb/published", device="A100-SXM4-80GB")
    large, small, core = document["kernels"]
    assert large["shape"] == {"m": 4096, "n": 4096, "k": 4096}
    assert large["seconds"] == pytest.approx(550.5e-6)
    assert (large["operator"], large["phase"]) == ("matrix_product", "forward")
    assert small["shape"]["m"] == 128
    assert core["shape"]["value_dim"] == core["shape"]["head_dim"] == 128
    reduce, message = document["collectives"]
    assert (reduce["operation"], reduce["payload_bytes"], reduce["inter_link"]) == ("all_reduce", 2**20, None)
    assert (message["operation"], message["dtype"], message["inter_link"]) == ("send_receive", None, "ib")
    assert document["facts"]["burst_sources"] == ["aiconfigurator-core==0.12.0", "vidur @7d47513"]
    assert document["facts"]["licences"]["vidur @7d47513"] == "MIT"
    assert Profile.from_document(document).num_rows == 5


def test_a_relative_lends_what_its_memory_does_not_decide(folder: Path) -> None:
    document = profile_document(folder, name="a100-sxm-40gb/published", device="A100-SXM4-40GB")
    lent = [row for row in document["kernels"] if row["source"] in document["facts"]["relative_sources"]]
    assert [row["operator"] for row in lent] == ["matrix_product", "attention"]
    assert lent[0]["shape"]["m"] == 4096
    assert [row["operation"] for row in document["collectives"]] == ["all_reduce"]
    assert all(row["source"].endswith("on A100-SXM4-80GB") for row in (*lent, *document["collectives"]))


def test_rows_that_time_the_host_are_left_out(folder: Path) -> None:
    document = profile_document(folder, name="a100-sxm-40gb/published", device="A100-SXM4-40GB")
    own = [row for row in document["kernels"] if row["source"].startswith("sailor")]
    assert [row["operator"] for row in own if row["source"] == "sailor @cf2c8e3"] == [
        "batched_matrix_product"
    ]
    assert [row["payload_bytes"] for row in document["transfers"]] == [2**29, None]


def test_a_packed_profile_is_the_profile(folder: Path) -> None:
    document = profile_document(folder, name="a100-sxm-80gb/published", device="A100-SXM4-80GB")
    columns = json.loads(gzip.decompress(packed_profile(document)))
    head = {key: columns[key] for key in ("name", "device", "software", "facts")}
    packed = Profile(**head, **tables_from_columns(columns))
    assert packed.digest == Profile.from_document(document).digest


def test_equal_figures_give_equal_bytes(folder: Path) -> None:
    document = profile_document(folder, name="a100-sxm-80gb/published", device="A100-SXM4-80GB")
    assert packed_profile(document) == packed_profile(document)


def test_every_system_gets_a_file(folder: Path) -> None:
    target = folder / "packed"
    target.mkdir()
    main(folder, target)
    assert {f"{path.name.removesuffix('.json.gz')}/published" for path in target.iterdir()} == set(
        builtin_profile_names()
    )
