"""A plain decoder transformer of a chain's sizes, layer by layer.

Letters of shapes: B samples, S positions (a shard of them between tensor-parallel regions), E channels,
H heads, D channels of a head, V words.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from planner.strategy import RecomputeMode
from planner.workload.block import Arrangement, BlockLayer
from planner.workload.embedding import EmbeddingLayer
from planner.workload.ends import HeadLayer, NormLayer
from planner.workload.experts import Experts
from planner.workload.layers import Layer
from planner.workload.mlp import Mlp as MlpSizes
from planner.workload.passes import Norm
from planner.workload.self_attention import SelfAttention
from planner.workload.transformer import DecoderLayer
from profiler.trial.errors import PlanCannotRun
from profiler.trial.experts import ExpertsMlp
from profiler.trial.order import PlacedLayer, TrialJob

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16}
SEED: Final = 1234
WEIGHT_DEVIATION: Final = 0.02
"""Of the normal distribution that weights are drawn from, as GPT-2 has it (Radford et al., 2019)."""
ROTARY_BASE: Final = 10000.0
"""Su et al., 2021; it changes values, never time or memory."""
EPSILON: Final = 1e-5


class Embedding(nn.Module):
    """Rows of a table, with those of the positions added where the model has any."""

    def __init__(self, layer: EmbeddingLayer) -> None:
        super().__init__()
        self.words = nn.Embedding(layer.vocabulary, layer.hidden)
        self.positions = nn.Embedding(layer.positions, layer.hidden) if layer.positions else None

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Return the vectors of some tokens, BSE."""
        vectors_BSE: Tensor = self.words(tokens_BS)
        if self.positions is None:
            return vectors_BSE
        places_S = torch.arange(tokens_BS.shape[-1], device=tokens_BS.device)
        position_vectors_SE: Tensor = self.positions(places_S)
        return vectors_BSE + position_vectors_SE


class Attention(nn.Module):
    """Causal self-attention with grouped keys and values, and rotated queries and keys where said."""

    def __init__(self, layer: SelfAttention, *, recomputes_core: bool, is_unfused: bool) -> None:
        super().__init__()
        width, narrow = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
        self.query = nn.Linear(layer.hidden, width, bias=layer.qkv_bias)
        self.key = nn.Linear(layer.hidden, narrow, bias=layer.qkv_bias)
        self.value = nn.Linear(layer.hidden, narrow, bias=layer.qkv_bias)
        self.output = nn.Linear(width, layer.hidden, bias=layer.output_bias)
        self.head_dim, self.is_rotary = layer.head_dim, layer.rotary
        self.is_grouped = layer.kv_heads != layer.heads
        self.recomputes_core, self.is_unfused = recomputes_core, is_unfused

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Return what each position takes from those before it, BSE."""
        query, key, value = (
            project(x_BSE).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # BHSD
            for project in (self.query, self.key, self.value)
        )
        if self.is_rotary:
            query, key = rotated(query), rotated(key)
        core = partial(_core, is_grouped=self.is_grouped, is_unfused=self.is_unfused)
        mixed_BHSD = (
            checkpoint(core, query, key, value, use_reentrant=False)
            if self.recomputes_core
            else core(query, key, value)
        )
        mixed_BSE: Tensor = self.output(mixed_BHSD.transpose(1, 2).flatten(-2))
        return mixed_BSE


class Mlp(nn.Module):
    """Two matrices around GELU, or three around a gate (SiLU)."""

    def __init__(self, layer: MlpSizes) -> None:
        super().__init__()
        self.up = nn.Linear(layer.hidden, layer.ffn, bias=layer.bias)
        self.gate = nn.Linear(layer.hidden, layer.ffn, bias=layer.bias) if layer.gated else None
        self.down = nn.Linear(layer.ffn, layer.hidden, bias=layer.bias)

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Return the output of the MLP, BSE."""
        if self.gate is None:
            inner = functional.gelu(self.up(x_BSE))
        else:
            inner = functional.silu(self.gate(x_BSE)) * self.up(x_BSE)
        output_BSE: Tensor = self.down(inner)
        return output_BSE


class Block(nn.Module):
    """Norm, attention, residual sum, norm, MLP or experts, residual sum."""

    def __init__(
        self, layer: DecoderLayer | BlockLayer, *, recomputes_core: bool = False, is_unfused: bool = False
    ) -> None:
        super().__init__()
        attention, mlp = (layer.block if isinstance(layer, DecoderLayer) else layer).branches
        assert isinstance(attention, SelfAttention)
        assert isinstance(mlp, MlpSizes | Experts)
        self.attention_norm = norm_module(layer.norm, layer.hidden)
        self.attention = Attention(attention, recomputes_core=recomputes_core, is_unfused=is_unfused)
        self.mlp_norm = norm_module(layer.norm, layer.hidden)
        self.mlp = ExpertsMlp(mlp) if isinstance(mlp, Experts) else Mlp(mlp)

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Return the output of the block, BSE."""
        x_BSE = x_BSE + self.attention(self.attention_norm(x_BSE))
        output_BSE: Tensor = x_BSE + self.mlp(self.mlp_norm(x_BSE))
        return output_BSE


class Chunk(nn.Module):
    """Layers in execution order: a whole model, or the part of it that one rank runs in one pass."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last layer."""
        for layer in self.layers:
            x = layer(x)
        return x


def build_chunk(placed: Sequence[PlacedLayer], *, device: torch.device, job: TrialJob) -> Chunk:
    """Return some layers of a chain; a layer has the same weights wherever it is built.

    Raises PlanCannotRun for layers that are no plain decoder's.
    """
    modules = []
    for entry in placed:
        torch.manual_seed(SEED + entry.number)
        with device:
            module = layer_module(entry, is_unfused=job.unfused_attention)
            _draw_weights(module)
        modules.append(module.to(DTYPES[job.parameter_dtype]))
    _tie(placed, modules)
    return Chunk(modules)


def layer_module(placed: PlacedLayer, *, is_unfused: bool) -> nn.Module:
    """Return the module of one layer; PlanCannotRun for one that a plain decoder does not have."""
    layer = placed.layer
    _refuse(layer)
    if isinstance(layer, EmbeddingLayer):
        return Embedding(layer)
    if isinstance(layer, DecoderLayer | BlockLayer):
        is_selective = placed.recompute.mode is RecomputeMode.SELECTIVE
        return Block(layer, recomputes_core=is_selective, is_unfused=is_unfused)
    if isinstance(layer, NormLayer):
        return norm_module(layer.norm, layer.hidden)
    assert isinstance(layer, HeadLayer)
    return nn.Linear(layer.hidden, layer.vocabulary, bias=layer.bias)


def norm_module(norm: Norm, hidden: int) -> nn.Module:
    """Return a norm over so many channels; PlanCannotRun for a kind that torch has no module of."""
    match norm:
        case Norm.RMS:
            return nn.RMSNorm(hidden, eps=EPSILON)
        case Norm.LAYER:
            return nn.LayerNorm(hidden, eps=EPSILON)
        case _:
            raise PlanCannotRun(f"a trial has no {norm.value} norm")


def rotated(x_BHSD: Tensor) -> Tensor:
    """Return vectors turned by their position, halves of a head's channels as pairs (Su et al., 2021)."""
    half = x_BHSD.shape[-1] // 2
    place = partial(torch.arange, device=x_BHSD.device, dtype=torch.float32)
    angles_SD = torch.outer(place(x_BHSD.shape[-2]), ROTARY_BASE ** (-place(half) / half))
    cosine, sine = angles_SD.cos().to(x_BHSD.dtype), angles_SD.sin().to(x_BHSD.dtype)
    first, second = x_BHSD[..., :half], x_BHSD[..., half : 2 * half]
    turned = (first * cosine - second * sine, second * cosine + first * sine, x_BHSD[..., 2 * half :])
    return torch.cat(turned, dim=-1)


def _core(query: Tensor, key: Tensor, value: Tensor, *, is_grouped: bool, is_unfused: bool) -> Tensor:
    """Return the attention of BHSD queries, keys and values; unfused by products around a softmax."""
    if not is_unfused:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=is_grouped
        )
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    scores_BHST = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    hidden_ST = torch.ones(scores_BHST.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
    shares_BHST: Tensor = scores_BHST.masked_fill(hidden_ST, float("-inf")).softmax(dim=-1)
    return shares_BHST @ value


def _draw_weights(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=WEIGHT_DEVIATION)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def _tie(placed: Sequence[PlacedLayer], modules: Sequence[nn.Module]) -> None:
    for entry, module in zip(placed, modules, strict=True):
        if isinstance(entry.layer, HeadLayer) and entry.layer.tied:
            table = next((other for other in modules if isinstance(other, Embedding)), None)
            if table is None:
                raise PlanCannotRun("a trial has no head that is tied to an embedding on another stage")
            assert isinstance(module, nn.Linear)
            module.weight = table.words.weight


def _refuse(layer: Layer) -> None:
    """Refuse what a plain decoder does not have, by name."""
    extras: dict[str, object]
    match layer:
        case EmbeddingLayer():
            extras = {
                "token types": layer.types,
                "embedding norm": layer.norm,
                "narrow embedding": layer.width,
                "shared embedding": layer.shared,
                "dropout": layer.dropout,
            }
        case DecoderLayer():
            extras = {
                "dropout": layer.attention_dropout or layer.hidden_dropout,
                f"{layer.arrangement.value} arrangement of norms": layer.arrangement is not Arrangement.PRE,
                "norm of queries and keys": layer.query_key_norm,
                "window": layer.window,
            }
        case BlockLayer():
            extras = _extras_of_block(layer)
        case NormLayer() | HeadLayer():
            extras = {}
        case _:
            raise PlanCannotRun(f"a trial has no {layer.kind} layers like {type(layer).__name__}")
    for name, given in extras.items():
        if given:
            raise PlanCannotRun(f"a trial has no {name}: {layer.kind} layers have")


def _extras_of_block(layer: BlockLayer) -> dict[str, object]:
    """Return what a block has beside attention to the tokens before and an MLP or experts."""
    match layer.branches:
        case (SelfAttention() as attention, (MlpSizes() | Experts()) as mlp):
            pass
        case branches:
            labels = ", ".join(branch.label for branch in branches)
            raise PlanCannotRun(f"a trial has no {layer.kind} layers of {labels}")
    extras: dict[str, object] = {
        "dropout": layer.dropout or attention.dropout,
        f"{layer.arrangement.value} arrangement of norms": layer.arrangement is not Arrangement.PRE,
        "norm of queries and keys": attention.query_key_norm,
        "window": attention.window or attention.chunk,
        "attention to later tokens": not attention.causal,
        "gated attention": attention.gated,
        "sinks": attention.sinks,
        "relative places": attention.relative_buckets,
    }
    if isinstance(mlp, MlpSizes):
        return extras
    return extras | {
        "shared experts": mlp.shared_ffn,
        "narrow experts": mlp.latent,
        "biases of experts": mlp.bias,
        "correction of loads": mlp.correction_bias,
    }
