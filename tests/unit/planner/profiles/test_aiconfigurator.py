import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from planner.errors import InvalidRequest
from planner.profile import Profile
from planner.profiles.aiconfigurator import installed_folder, profile_documents, read_table

H100 = {"framework": "VLLM", "version": "0.24.0", "device": "NVIDIA H100 80GB HBM3", "kernel_source": "torch"}


def gemm(m: int, n: int, k: int, latency: float, *, dtype: str = "bfloat16") -> dict[str, object]:
    return {**H100, "op_name": "gemm", "gemm_dtype": dtype, "m": m, "n": n, "k": k, "latency": latency}


def core(sequence: int, *, window: int = 0, cache: str = "bfloat16") -> dict[str, object]:
    return {
        **H100,
        "op_name": "context_attention",
        "batch_size": 2,
        "isl": sequence,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": cache,
        "step": 0,
        "window_size": window,
        "latency": 1.5,
    }


def experts(tokens: int, *, tensor_parallel: int = 1) -> dict[str, object]:
    return {
        **H100,
        "op_name": "moe",
        "moe_dtype": "fp8_block",
        "num_tokens": tokens,
        "hidden_size": 4096,
        "inter_size": 2048,
        "topk": 6,
        "num_experts": 256,
        "moe_tp_size": tensor_parallel,
        "moe_ep_size": 8,
        "distribution": "power_law_1.2",
        "latency": 0.5,
    }


def collective(operation: str, elements: int) -> dict[str, object]:
    return {
        **H100,
        "op_name": operation,
        "kernel_source": "NCCL",
        "nccl_dtype": "half",
        "num_gpus": 8,
        "message_size": elements,
        "latency": 0.25,
    }


TABLES: Mapping[str, Sequence[Mapping[str, object]]] = {
    "gemm/vllm/0.24.0/gemm_perf.txt": [
        gemm(4096, 4096, 4096, 0.2),
        gemm(4096, 4096, 4096, 0.4),
        gemm(4096, 4096, 4096, 0.3),
        gemm(64, 4096, 4096, 0.01),
        gemm(4353, 4096, 4096, 0.3),
        gemm(4096, 4096, 4096, 0.1, dtype="int8_wo"),
    ],
    "attention/vllm/0.24.0/context_attention_perf.txt": [
        core(4096),
        core(4096, window=1024),
        core(4096, cache="fp8"),
        core(64),
    ],
    "attention/vllm/0.24.0/generation_attention_perf.txt": [core(4096)],
    "moe/vllm/0.24.0/moe_perf.txt": [experts(8192), experts(16), experts(8192, tensor_parallel=2)],
    "comm/nccl/2.27.3/nccl_perf.txt": [collective("all_gather", 2**20), collective("alltoall", 2**10)],
}


def write(folder: Path, system: str, tables: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
    for name, rows in tables.items():
        path = folder / system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "h100_sxm", TABLES)
    unknown = [gemm(4096, 4096, 4096, 0.2) | {"device": "NVIDIA Something"}]
    write(tmp_path, "something", {"gemm/vllm/0.24.0/gemm_perf.txt": unknown})
    return tmp_path


def test_tables_become_a_profile_of_the_device_that_their_rows_name(folder: Path) -> None:
    (document,) = profile_documents(folder)
    profile = Profile.from_document(document)
    assert (profile.name, profile.device) == ("h100-sxm/aiconfigurator", "H100-SXM5-80GB")
    assert profile.facts["burst_sources"] == list(profile.facts["licences"])
    assert profile.facts["link_bandwidth_bytes_per_second"] == 450e9
    assert profile.num_rows == 5


def test_repeated_measurements_count_by_their_median_in_seconds(folder: Path) -> None:
    (document,) = profile_documents(folder)
    (product,) = [row for row in document["kernels"] if row["operator"] == "matrix_product"]
    assert product["shape"] == {"m": 4096, "n": 4096, "k": 4096}
    assert product["seconds"] == pytest.approx(0.3e-3)
    assert product["source_ref"] == "h100_sxm/gemm/vllm/0.24.0/gemm_perf.txt#torch"


def test_what_only_inference_meets_is_left_out(folder: Path) -> None:
    (document,) = profile_documents(folder)
    cores = [row["shape"] for row in document["kernels"] if row["operator"] == "attention"]
    assert cores == [
        {
            "batch": 2,
            "sequence": 4096,
            "heads": 32,
            "kv_heads": 8,
            "head_dim": 128,
            "value_dim": 128,
            "causal": 1,
        }
    ]
    (mlp,) = [row["shape"] for row in document["kernels"] if row["operator"] == "moe_ffn"]
    assert (mlp["tokens"], mlp["tp"], mlp["load_exponent_tenths"]) == (8192, 1, 12)


def test_messages_are_counted_in_bytes(folder: Path) -> None:
    (document,) = profile_documents(folder)
    assert [(row["operation"], row["payload_bytes"]) for row in document["collectives"]] == [
        ("all_gather", 2**21),
        ("all_to_all", 2**11),
    ]


def test_only_wanted_devices_are_read(folder: Path) -> None:
    assert list(profile_documents(folder, devices=["A100-SXM4-80GB"])) == []
    assert len(list(profile_documents(folder, devices=["H100-SXM5-80GB"]))) == 1


def test_tables_of_any_format_are_read_by_what_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "h100_sxm" / "gemm" / "vllm" / "0.24.0" / "gemm_perf.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")

    def read(table: Path) -> Iterable[Mapping[str, object]]:
        return [gemm(4096, 4096, 4096, 0.2)] if table == path else []

    (document,) = profile_documents(tmp_path, read=read)
    assert len(document["kernels"]) == 1


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InvalidRequest, match="no tables"):
            list(profile_documents(folder))


def test_a_package_that_is_not_installed_has_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("planner.profiles.aiconfigurator.PACKAGES", ("no_such_package",))
    assert installed_folder() is None
    package = tmp_path / "some_package"
    (package / "systems" / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("planner.profiles.aiconfigurator.PACKAGES", ("some_package",))
    assert installed_folder() == package / "systems" / "data"


def test_parquet_needs_what_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("planner.profiles.aiconfigurator.find_spec", lambda _: None)
    with pytest.raises(InvalidRequest, match="pyarrow"):
        read_table(tmp_path / "gemm_perf.parquet")
