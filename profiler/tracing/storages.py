"""Storages: the memory behind tensors, by numbers that are the same whatever the batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch

from planner.workload.traced import Volume


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """The memory of one tensor and of its views; ``is_weight`` where it holds parameters or buffers."""

    number: int
    elements: int
    element_bytes: int
    is_activation: bool
    is_weight: bool

    def volume(self, elements: int | None = None) -> Volume:
        """Return so many of its elements (all of them by default) as data of a micro-batch."""
        count = self.elements if elements is None else min(elements, self.elements)
        return Volume(elements=count) if self.is_activation else Volume(bytes=count * self.element_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A tensor as an operator meets it: a storage, and which part of that it reaches."""

    storage: Storage
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    """Where in the storage it begins, in elements: two parts of one storage are two views."""

    @property
    def elements(self) -> int:
        """Elements that it reaches; those of an expanded dimension are the same ones."""
        sizes = (size for size, stride in zip(self.shape, self.strides, strict=True) if stride or size == 0)
        return min(prod(sizes), self.storage.elements)

    @property
    def volume(self) -> Volume:
        """What reading or writing all of it moves."""
        return self.storage.volume(self.elements)


@dataclass(kw_only=True, slots=True)
class Storages:
    """The storages met so far. They are kept, as a new one could have the address of one that is gone."""

    activation_dtype: torch.dtype
    _known: dict[int, tuple[torch.UntypedStorage, Storage]] = field(default_factory=dict)

    def view(self, tensor: torch.Tensor, *, is_weight: bool = False) -> View:
        """Return a tensor as a view of its storage, which gets the next number when it is new."""
        return View(
            storage=self._storage(tensor, is_weight=is_weight),
            shape=tuple(tensor.shape),
            strides=tensor.stride(),
            offset=int(tensor.storage_offset()),
        )

    def _storage(self, tensor: torch.Tensor, *, is_weight: bool) -> Storage:
        address = _address(tensor)
        if address not in self._known:
            memory = tensor.untyped_storage()
            storage = Storage(
                number=len(self._known),
                elements=memory.nbytes() // tensor.element_size(),
                element_bytes=tensor.element_size(),
                is_activation=tensor.dtype == self.activation_dtype,
                is_weight=is_weight,
            )
            self._known[address] = (memory, storage)
        return self._known[address][1]


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - what torch itself compares storages by


def total(volumes: Sequence[Volume]) -> Volume:
    """Return volumes together."""
    return Volume(
        elements=sum(volume.elements for volume in volumes),
        bytes=sum(volume.bytes for volume in volumes),
        fixed_elements=sum(volume.fixed_elements for volume in volumes),
        fixed_bytes=sum(volume.fixed_bytes for volume in volumes),
    )
