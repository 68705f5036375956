import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from planner.profile import Profile, builtin_profile, builtin_profile_names
from planner.profile_columns import tables_from_columns
from planner.profiles.build import Rows, main, packed_profile, profile_document, tables_of
from planner.profiles.systems import HOSTS, SYSTEMS
from planner.relatives import published

REF = "systems/data/a100_sxm/gemm/sglang/0.5.10/gemm_perf.parquet#sglang"
KERNELS = [
    {
        "device": "A100-SXM4-80GB",
        "op": "gemm",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"m":4096,"n":4096,"k":4096,"layout":"TN"}',
        "latency_us": "550.5",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": REF,
    },
    {
        "device": "A100-SXM4-80GB",
        "op": "gemm",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"m":128,"n":4096,"k":4096}',
        "latency_us": "25.0",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": REF,
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
        "op": "moe_ffn",
        "dtype": "bf16",
        "phase": "fwd",
        "shape": '{"tokens":1024,"experts":128,"ep":1,"dist":"power_law_1.2"}',
        "latency_us": "9.9",
        "source": "aiconfigurator-core==0.12.0",
        "source_ref": "moe",
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
KERNELS.append(KERNELS[-1] | {"device": "MI250-128GB", "source": "NeuSight @6945927"})
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
        "algo": "NCCL 2.27.3",
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
LINKS.append(LINKS[0] | {"device_or_host": "host:4x NVMe", "op": "nvme_read"})


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


@pytest.fixture
def tables(folder: Path) -> Mapping[str, Rows]:
    return tables_of(folder)


def test_rows_take_the_names_and_units_of_a_profile(tables: Mapping[str, Rows]) -> None:
    document = profile_document(tables, "a100-sxm-80gb")
    large, small, core, experts = document["kernels"]
    assert large["shape"] == {"m": 4096, "n": 4096, "k": 4096}
    assert large["seconds"] == pytest.approx(550.5e-6)
    assert (large["operator"], large["phase"]) == ("matrix_product", "forward")
    assert small["shape"]["m"] == 128
    assert core["shape"]["value_dim"] == core["shape"]["head_dim"] == 128
    assert (experts["operator"], experts["shape"]["load_exponent_tenths"]) == ("moe_ffn", 12)
    reduce, message = document["collectives"]
    assert (reduce["operation"], reduce["payload_bytes"], reduce["inter_link"]) == ("all_reduce", 2**20, None)
    assert (message["operation"], message["dtype"], message["inter_link"]) == ("send_receive", None, "ib")
    assert Profile.from_document(document).num_rows == 6


def test_marks_that_are_no_sizes_go_with_the_source(tables: Mapping[str, Rows]) -> None:
    document = profile_document(tables, "a100-sxm-80gb")
    assert document["kernels"][0]["source_ref"] == f"{REF} layout=TN"
    assert document["kernels"][1]["source_ref"] == REF


def test_facts_say_how_each_source_measured(tables: Mapping[str, Rows]) -> None:
    facts = profile_document(tables, "a100-sxm-80gb")["facts"]
    assert facts["burst_sources"] == ["aiconfigurator-core==0.12.0", "vidur @7d47513"]
    assert facts["licences"]["vidur @7d47513"] == "MIT"
    own = profile_document(tables, "a100-sxm-40gb")["facts"]
    assert own["eager_sources"] == own["copying_sources"] == ["sailor @cf2c8e3"]
    assert own["host_bound_seconds"] == {"sailor @cf2c8e3": 200e-6}
    assert own["link_bandwidth_bytes_per_second"] == 300e9


def test_the_software_of_a_profile_is_what_its_sources_name(tables: Mapping[str, Rows]) -> None:
    assert profile_document(tables, "a100-sxm-80gb")["software"] == {"nccl": ["2.27.3"], "sglang": ["0.5.10"]}


def test_rows_that_time_the_host_are_kept(tables: Mapping[str, Rows]) -> None:
    document = profile_document(tables, "a100-sxm-40gb")
    assert [row["operator"] for row in document["kernels"]] == ["batched_matrix_product", "gelu"]
    assert [row["payload_bytes"] for row in document["transfers"]] == [2**29, None]


def test_rows_of_one_die_are_a_profile_of_the_die(tables: Mapping[str, Rows]) -> None:
    document = profile_document(tables, "mi250")
    assert document["device"] == "MI250-GCD-64GB"
    assert len(document["kernels"]) == 1


def test_hosts_and_drives_have_a_profile_of_their_own(tables: Mapping[str, Rows]) -> None:
    (transfer,) = profile_document(tables, HOSTS)["transfers"]
    assert transfer["operation"] == "nvme_read"
    assert "host:4x NVMe" in transfer["source_ref"]


def test_a_packed_profile_is_the_profile(tables: Mapping[str, Rows]) -> None:
    document = profile_document(tables, "a100-sxm-80gb")
    columns = json.loads(gzip.decompress(packed_profile(document)))
    head = {key: columns[key] for key in ("name", "device", "software", "facts")}
    packed = Profile(**head, **tables_from_columns(columns))
    assert packed.digest == Profile.from_document(document).digest


def test_equal_figures_give_equal_bytes(tables: Mapping[str, Rows]) -> None:
    document = profile_document(tables, "a100-sxm-80gb")
    assert packed_profile(document) == packed_profile(document)


def test_every_system_gets_a_file_and_a_place_in_the_index(folder: Path) -> None:
    target = folder / "packed"
    target.mkdir()
    main(folder, target)
    systems = {path.name.removesuffix(".json.gz") for path in target.glob("*.gz")}
    assert {f"{system}/published" for system in systems} == set(builtin_profile_names())
    index = json.loads((target / "index.json").read_text())
    assert index.keys() == systems
    assert index["a100-sxm-80gb"] == {
        "device": "A100-SXM4-80GB",
        "rows": {
            "all_reduce": 1,
            "attention bf16": 1,
            "matrix_product bf16": 2,
            "send_receive": 1,
        },
    }


@pytest.mark.parametrize("system", [*SYSTEMS, HOSTS])
def test_what_is_shipped_agrees_with_its_index(system: str) -> None:
    profile = builtin_profile(f"{system}/published")
    entry = next(entry for entry in published() if entry.name == profile.name)
    assert entry.device == profile.device
    for kind, number in entry.rows.items():
        operator, _, dtype = kind.partition(" ")
        tables = [table for table in profile.tables(operator) if table.dtype == dtype]
        rows = [row for row in profile.collectives if row.operation == kind]
        assert sum(len(table) for table in tables if table.phase == "forward") + len(rows) == number


def test_everything_published_is_shipped_in_little_space() -> None:
    files = list((Path(__file__).parents[4] / "planner" / "profiles").glob("*.json.gz"))
    assert sum(file.stat().st_size for file in files) < 2 * 2**20
    assert sum(sum(map(len, builtin_profile(name).kernels)) for name in builtin_profile_names()) == 176_106
    assert sum(len(builtin_profile(name).collectives) for name in builtin_profile_names()) == 7_484
    assert sum(len(builtin_profile(name).transfers) for name in builtin_profile_names()) == 61


@pytest.mark.parametrize("name", builtin_profile_names())
def test_every_row_names_a_source_whose_licence_is_kept(name: str) -> None:
    profile = builtin_profile(name)
    sources = {source.source for source in profile.sources}
    sources |= {row.source.source for row in profile.collectives}
    sources |= {row.source.source for row in profile.transfers}
    assert sources
    assert sources <= profile.facts["licences"].keys()
