"""Small models, none of them a transformer: ``meshplan trace profiler.examples.models:mixer``.

Letters of shapes: B batch, C channels, H height, W width, T time steps, E embedding.
"""

import torch
from torch import nn
from torch.nn.functional import max_pool2d


def residual_network() -> nn.Module:
    """Return a convolutional network with residual blocks, for images of 3 x 64 x 64."""
    return ResidualNetwork(channels=(32, 64, 128), blocks=3, classes=10)


def tagger() -> nn.Module:
    """Return a network that tags the tokens of a text in both directions, for 48 token numbers."""
    return Tagger(vocabulary=1000, embedding=64, hidden=96, layers=2, tags=17)


def segmenter() -> nn.Module:
    """Return a U-Net, which labels every pixel of an image, for images of 3 x 64 x 64."""
    return Segmenter(channels=(16, 32, 64), classes=5)


def mixer() -> nn.Module:
    """Return an MLP-Mixer, for images of 3 x 64 x 64."""
    return Mixer(patch=8, tokens=64, channels=96, blocks=6, classes=10)


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut (He et al., 2016)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        is_same = before == after and stride == 1
        self.shortcut = nn.Identity() if is_same else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the sum of both branches, activated."""
        sum_BCHW: torch.Tensor = self.activation(self.body(x_BCHW) + self.shortcut(x_BCHW))
        return sum_BCHW


class ResidualNetwork(nn.Module):
    """A stem, stages of residual blocks, each of half the resolution, and a classifier."""

    def __init__(self, *, channels: tuple[int, ...], blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels[0]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        before, stages = channels[0], []
        for after in channels:
            first = ResidualBlock(before, after, 1 if after == before else 2)
            stages.append(nn.Sequential(first, *(ResidualBlock(after, after, 1) for _ in range(blocks - 1))))
            before = after
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(before, classes)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        x_BCHW = self.stem(x_BCHW)
        for stage in self.stages:
            x_BCHW = stage(x_BCHW)
        scores: torch.Tensor = self.head(x_BCHW.mean(dim=(2, 3)))
        return scores


class Tagger(nn.Module):
    """An embedding, a bidirectional LSTM, and scores of the tags of each token."""

    def __init__(self, *, vocabulary: int, embedding: int, hidden: int, layers: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.LSTM(embedding, hidden, layers, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """Return the scores of the tags."""
        states_BTE, _ = self.encoder(self.embedding(tokens_BT))
        scores: torch.Tensor = self.head(self.dropout(states_BTE))
        return scores


class TwoConvolutions(nn.Module):
    """Two convolutions with a norm and an activation behind each."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.GELU(),
            nn.Conv2d(after, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.GELU(),
        )

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return an image of as many places."""
        y_BCHW: torch.Tensor = self.layers(x_BCHW)
        return y_BCHW


class Segmenter(nn.Module):
    """A U-Net (Ronneberger et al., 2015): down, and up again beside what was seen on the way down."""

    def __init__(self, *, channels: tuple[int, ...], classes: int) -> None:
        super().__init__()
        pairs = list(zip((3, *channels[:-1]), channels, strict=True))
        self.down = nn.ModuleList(TwoConvolutions(before, after) for before, after in pairs)
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(after, before, 2, stride=2) for before, after in reversed(pairs[1:])
        )
        self.up = nn.ModuleList(TwoConvolutions(2 * before, before) for before, _ in reversed(pairs[1:]))
        self.head = nn.Conv2d(channels[0], classes, 1)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes of every pixel."""
        seen = []
        for place, block in enumerate(self.down):
            x_BCHW = block(max_pool2d(x_BCHW, 2) if place else x_BCHW)
            seen.append(x_BCHW)
        for widen, block, beside_BCHW in zip(self.widen, self.up, reversed(seen[:-1]), strict=True):
            x_BCHW = block(torch.cat([widen(x_BCHW), beside_BCHW], dim=1))
        scores: torch.Tensor = self.head(x_BCHW)
        return scores


class MixerBlock(nn.Module):
    """An MLP over the tokens and one over the channels, each beside a shortcut."""

    def __init__(self, tokens: int, channels: int) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.token_mlp = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.channel_mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        """Return tokens that know of one another."""
        x_BTC = x_BTC + self.token_mlp(self.token_norm(x_BTC).transpose(1, 2)).transpose(1, 2)
        mixed_BTC: torch.Tensor = x_BTC + self.channel_mlp(self.channel_norm(x_BTC))
        return mixed_BTC


class Mixer(nn.Module):
    """Patches, blocks, and a classifier (Tolstikhin et al., 2021)."""

    def __init__(self, *, patch: int, tokens: int, channels: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, channels, patch, stride=patch)
        self.blocks = nn.ModuleList(MixerBlock(tokens, channels) for _ in range(blocks))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes."""
        x_BTC = self.patches(x_BCHW).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x_BTC = block(x_BTC)
        scores: torch.Tensor = self.head(self.norm(x_BTC).mean(dim=1))
        return scores
