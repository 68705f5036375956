"""Published runs made up for tests: a row of every column, and files of such rows."""

import csv
from pathlib import Path

from planner.validation.rows import Row

COLUMNS = (
    "source", "source_ref", "model", "params_b", "layers", "hidden", "ffn_hidden", "heads", "kv_heads",
    "vocab", "seq_len", "experts", "top_k", "device", "device_mem_gib", "gpus", "gpus_per_node", "intra_link",
    "inter_link", "framework", "precision", "gbs", "mbs", "tp", "pp", "vpp", "cp", "ep", "dp", "zero_stage",
    "seq_parallel", "recompute", "offload", "flash_attn", "optimizer", "dist_opt", "step_time_s",
    "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_mem_gib", "oom", "notes",
)  # fmt: skip

SMALL_RUN = {
    "source": "made-up",
    "source_ref": "nowhere",
    "model": "Llama-1.1B",
    "layers": "22",
    "hidden": "2048",
    "ffn_hidden": "5632",
    "heads": "32",
    "kv_heads": "4",
    "vocab": "32000",
    "seq_len": "2048",
    "device": "H100",
    "device_mem_gib": "80",
    "gpus": "8",
    "gpus_per_node": "8",
    "intra_link": "NVLink4",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "gbs": "64",
    "mbs": "2",
    "tp": "2",
    "pp": "1",
    "vpp": "1",
    "cp": "1",
    "ep": "1",
    "dp": "4",
    "zero_stage": "1",
    "seq_parallel": "True",
    "recompute": "none",
    "flash_attn": "True",
    "optimizer": "adamw",
    "dist_opt": "True",
    "step_time_s": "0.5",
    "oom": "no",
}


def run(**cells: str) -> dict[str, str]:
    """Return the cells of a small run, some of them changed; an empty text takes a fact away."""
    assert set(cells) <= set(COLUMNS)
    return {**dict.fromkeys(COLUMNS, ""), **SMALL_RUN, **cells}


def row(**cells: str) -> Row:
    """Return a small run as a row of a file."""
    return Row(file="made_up.csv", line=2, cells=run(**cells))


def write_runs(path: Path, *runs: dict[str, str]) -> None:
    """Write runs as a file with the header of all columns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(runs)
