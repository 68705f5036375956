import pytest
import torch
from torch import nn

from tests.unit.profiler.tracing.real_runs import CUT, planned, really_counted, roles, traced


class Block(nn.Module):
    """A map with an activation behind it, as a part of its own."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.map(x))


class Towers(nn.Module):
    """Two rows of blocks side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(Block(), Block())
        self.right = nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.left(x) + self.right(x)
        return y


class Residual(nn.Module):
    """Blocks beside shortcuts that are summed outside of them, a mean, a map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        y: torch.Tensor = self.head(x.mean(dim=1))
        return y


class Masked(nn.Module):
    """Blocks inside of a part, all of which read one mask."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x) * mask
            return x

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.encoder, self.head = nn.Linear(8, 8), self.Encoder(), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.encoder(self.stem(x), x > 0))
        return y


class Scaled(Block):
    """A map between two calls that belong to no module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.map(x.square()).exp()
        return y


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        pytest.param(
            Residual(),
            [("Linear", 1), ("Block", 3), ("Linear", 1)],
            id="sums go with the blocks before them",
        ),
        pytest.param(
            nn.Sequential(nn.Linear(8, 8), Towers(), Towers(), nn.Linear(8, 2)),
            [("Linear", 1), ("Towers", 2), ("Linear", 1)],
            id="branches stay in one layer",
        ),
        pytest.param(
            nn.Sequential(Block(), nn.Dropout(), Block(), nn.Dropout()),
            [("Block", 1), ("Block", 1)],
            id="what has no weights goes with the next block, at the end with the last",
        ),
        pytest.param(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Flatten()),
            [("Linear", 1), ("Linear", 1)],
            id="a norm goes with the map behind it, a view with what is before it",
        ),
        pytest.param(
            nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Sequential(Block(), Block())),
            [("Linear", 1), ("Block", 2)],
            id="sequences of sequences are taken apart",
        ),
        pytest.param(nn.Sequential(nn.ReLU(), nn.Tanh()), [("ReLU", 1)], id="nothing has weights"),
        pytest.param(Scaled(), [("Linear", 1)], id="calls around a module go with it"),
        pytest.param(Block().map, [("Linear", 1)], id="a module without parts"),
    ],
)
def test_a_module_becomes_the_chain_of_its_blocks(module: nn.Module, expected: list[tuple[str, int]]) -> None:
    assert roles(traced(lambda: module, "4x8")) == expected


def test_a_mask_that_all_blocks_read_does_not_bind_them_together() -> None:
    names = [role for role, count in roles(traced(Masked, "4x8")) for _ in range(count)]
    assert names == ["Linear", "Block", "Block", "Block", "Linear"]


def test_every_layer_of_residual_sums_hands_on_one_activation() -> None:
    stem, block, head = (run.layer for run in traced(Residual, "4x8").runs)
    assert stem.output_bytes(CUT) == block.output_bytes(CUT) == 4 * CUT.micro_batch_size * 4 * 8
    assert head.output_bytes(CUT) == 4 * CUT.micro_batch_size * 2


@pytest.mark.parametrize("module", [Residual(), Masked(), Towers(), Scaled()])
def test_splitting_leaves_what_is_counted_as_it_is(module: nn.Module) -> None:
    counted = really_counted(module, [torch.zeros(CUT.micro_batch_size, 4, 8)])
    assert planned(traced(lambda: module, "4x8")) == counted
