"""A mixture of experts as a plain module: each token goes to those that its router scores highest.

Letters of shapes: B samples, S positions, T tokens of a rank, k experts of each, K copies that are sent, R
rows that arrive; E channels, F width of an expert, X experts, P ranks that experts are spread over.
"""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from planner.workload.experts import Experts


class ExpertsMlp(nn.Module):
    """A router and MLPs, all of them on this rank until they are spread over a group of ranks."""

    def __init__(self, layer: Experts) -> None:
        super().__init__()
        columns = 2 * layer.ffn if layer.gated else layer.ffn
        self.router = nn.Linear(layer.hidden, layer.experts, bias=layer.router_bias)
        self.up = nn.Parameter(torch.empty(layer.experts, layer.hidden, columns))
        self.down = nn.Parameter(torch.empty(layer.experts, layer.ffn, layer.hidden))
        self.top_k, self.is_gated = layer.top_k, layer.gated
        self.group: distributed.ProcessGroup | None = None

    def spread(self, group: distributed.ProcessGroup) -> None:
        """Keep this rank's share of the experts: the ranks of a group have as many each, in their order."""
        self.group = group
        rank = distributed.get_rank(group)
        for name in ("up", "down"):
            own = getattr(self, name).detach().chunk(group.size())[rank].clone()
            setattr(self, name, nn.Parameter(own))

    @property
    def own_parameters(self) -> tuple[nn.Parameter, ...]:
        """Those of the experts themselves, which other ranks of the group do not have."""
        return (self.up, self.down)

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Return, for each position, what its experts make of it, by their share of its scores."""
        x_TE = x_BSE.flatten(0, -2)
        scores_TX = self.router(x_TE).float().softmax(dim=-1)
        share_Tk, expert_Tk = scores_TX.topk(self.top_k, dim=-1)
        share_Tk = share_Tk / share_Tk.sum(dim=-1, keepdim=True)
        order_K = expert_Tk.flatten().argsort(stable=True)
        token_K = order_K // self.top_k
        copies_X = torch.bincount(expert_Tk.flatten(), minlength=scores_TX.shape[-1])
        made_KE = self._through_experts(x_TE[token_K], copies_X)
        weighed_KE = made_KE * share_Tk.flatten()[order_K].unsqueeze(-1).to(made_KE.dtype)
        return torch.zeros_like(x_TE).index_add(0, token_K, weighed_KE).view_as(x_BSE)

    def _through_experts(self, sent_KE: Tensor, copies_X: Tensor) -> Tensor:
        """Return what the experts make of copies that are sorted by expert, wherever those are."""
        if self.group is None:
            return self._made(sent_KE, copies_X.tolist())
        ranks = self.group.size()
        copies_PX = copies_X.view(ranks, -1)
        arriving_PX = torch.empty_like(copies_PX)
        distributed.all_to_all_single(arriving_PX, copies_PX.contiguous(), group=self.group)
        sent, received = copies_PX.sum(dim=1).tolist(), arriving_PX.sum(dim=1).tolist()
        arrived_RE = _exchanged(sent_KE, received, sent, self.group)
        # They come rank by rank, of each rank expert by expert.
        expert_R = torch.arange(arriving_PX.shape[1], device=sent_KE.device).repeat(ranks)
        expert_R = expert_R.repeat_interleave(arriving_PX.flatten())
        order_R = expert_R.argsort(stable=True)
        made_RE = self._made(arrived_RE[order_R], arriving_PX.sum(dim=0).tolist())
        back_R = torch.empty_like(order_R)
        back_R[order_R] = torch.arange(order_R.numel(), device=order_R.device)
        return _exchanged(made_RE[back_R], sent, received, self.group)

    def _made(self, rows_RE: Tensor, copies: list[int]) -> Tensor:
        """Return what this rank's experts make of rows that are sorted by expert, so many for each."""
        pieces = zip(torch.split(rows_RE, copies), self.up, self.down, strict=True)
        return torch.cat([self._activated(rows @ up_EF) @ down_FE for rows, up_EF, down_FE in pieces])

    def _activated(self, inner_RF: Tensor) -> Tensor:
        if not self.is_gated:
            return functional.gelu(inner_RF)
        gate, up = inner_RF.chunk(2, dim=-1)
        return functional.silu(gate) * up


class _Exchange(torch.autograd.Function):
    """Rows to and from the ranks of a group; their gradients go the other way."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        sent_KE: Tensor,
        received: list[int],
        sent: list[int],
        group: distributed.ProcessGroup,
    ) -> Tensor:
        ctx.sizes, ctx.group = (received, sent), group
        return _rows_exchanged(sent_KE, received, sent, group)

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - torch's own
        gradient_RE: Tensor,
    ) -> tuple[Tensor, None, None, None]:
        received, sent = ctx.sizes
        return _rows_exchanged(gradient_RE.contiguous(), sent, received, ctx.group), None, None, None


def _exchanged(
    sent_KE: Tensor, received: list[int], sent: list[int], group: distributed.ProcessGroup
) -> Tensor:
    """Return the rows that arrive, so many from each rank; so many are sent to each."""
    arrived: Tensor = _Exchange.apply(sent_KE, received, sent, group)  # type: ignore[no-untyped-call]  # torch's
    return arrived


def _rows_exchanged(
    rows: Tensor, received: list[int], sent: list[int], group: distributed.ProcessGroup
) -> Tensor:
    arrived = rows.new_empty(sum(received), rows.shape[1])
    distributed.all_to_all_single(arrived, rows, received, sent, group=group)
    return arrived
