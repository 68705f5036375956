"""A transformer as PyTorch's own modules make it, operation by operation, cut by FSDP2 and tensor parallel.

B samples, S positions, H heads, D channels of a head, E channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of a transformer with RMS norms, rotary embedding, grouped key heads and gated MLPs."""

    vocabulary: int = 32_000
    hidden: int = 1024
    ffn: int = 2816
    heads: int = 16
    kv_heads: int = 8
    layers: int = 2
    sequence_length: int = 1024

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


class PlainLlama(nn.Module):
    """Embedding, blocks, norm and head."""

    def __init__(self, sizes: Sizes, *, rotary_dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        angles = torch.zeros(sizes.sequence_length, 1, sizes.head_dim // 2, dtype=rotary_dtype)
        self.register_buffer("cosine", angles)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        x_BSE = self.embedding(tokens_BS)
        for block in self.blocks:
            x_BSE = block(x_BSE, self.cosine)
        return self.head(self.norm(x_BSE))  # type: ignore[no-any-return]  # nn.Module is called as Any


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(sizes.hidden)
        self.attention = Attention(sizes)
        self.mlp_norm = nn.RMSNorm(sizes.hidden)
        self.mlp = Mlp(sizes)

    def forward(self, x_BSE: Tensor, cosine: Tensor) -> Tensor:
        x_BSE = x_BSE + self.attention(self.attention_norm(x_BSE), cosine)
        return x_BSE + self.mlp(self.mlp_norm(x_BSE))  # type: ignore[no-any-return]  # as above


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.query = nn.Linear(sizes.hidden, width, bias=False)
        self.key = nn.Linear(sizes.hidden, kv_width, bias=False)
        self.value = nn.Linear(sizes.hidden, kv_width, bias=False)
        self.output = nn.Linear(width, sizes.hidden, bias=False)

    def forward(self, x_BSE: Tensor, cosine: Tensor) -> Tensor:
        heads = (*x_BSE.shape[:2], -1, self.head_dim)
        query_BSHD = rotated(self.query(x_BSE).view(heads), cosine)
        key_BSHD = rotated(self.key(x_BSE).view(heads), cosine)
        value_BSHD = self.value(x_BSE).view(heads)
        out_BHSD = functional.scaled_dot_product_attention(
            query_BSHD.transpose(1, 2),
            key_BSHD.transpose(1, 2),
            value_BSHD.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        out_BSE = out_BHSD.transpose(1, 2).reshape(*x_BSE.shape[:2], -1)
        return self.output(out_BSE)  # type: ignore[no-any-return]  # as above


class Mlp(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.up = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.down = nn.Linear(sizes.ffn, sizes.hidden, bias=False)

    def forward(self, x_BSE: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x_BSE)) * self.up(x_BSE))  # type: ignore[no-any-return]


def rotated(x_BSHD: Tensor, cosine: Tensor) -> Tensor:
    """Return heads turned by angles; the sine is taken to be the cosine, which costs as much."""
    left, right = x_BSHD.chunk(2, -1)
    return torch.cat((left * cosine - right * cosine, right * cosine + left * cosine), -1)


def split_over_tensor_ranks(model: PlainLlama, mesh: DeviceMesh, *, sequence_parallel: bool) -> None:
    """Cut every product, and with ``sequence_parallel`` the sequence between them, as torchtitan does."""
    whole = Replicate()
    between = Shard(1) if sequence_parallel else whole
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=whole, output_layouts=between),
            "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
            **({"norm": SequenceParallel()} if sequence_parallel else {}),
        },
    )
    for block in model.blocks:
        parallelize_module(block, mesh, _products(between) | (_gathers() if sequence_parallel else {}))


def _products(between: Placement) -> dict[str, ParallelStyle]:
    return {
        **{f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")},
        "attention.output": RowwiseParallel(output_layouts=between),
        **{f"mlp.{name}": ColwiseParallel() for name in ("gate", "up")},
        "mlp.down": RowwiseParallel(output_layouts=between),
    }


def _gathers() -> dict[str, ParallelStyle]:
    """Return the norms over shards of the sequence, and what gathers them once for all products."""
    rows, whole = Shard(1), Replicate()
    return {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(rows, None), desired_input_layouts=(whole, None)),
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(whole,)),
    }


def shard_over_replicas(model: PlainLlama, mesh: DeviceMesh) -> None:
    """Shard every block, and what is left, with gathers in BF16 and reductions in FP32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
