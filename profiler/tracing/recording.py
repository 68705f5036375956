"""One run of a module without values: every operator that torch calls, forward and backward.

A dispatch mode sees the operators below autograd, with the shapes of what they read and write. The
number of its autograd node ties what an operator saves, and what runs in backward, to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.workload.traced import EMPTY, Volume
from profiler.tracing.errors import UntraceableModule
from profiler.tracing.storages import Storages, View, total

GATHERS: Final = frozenset({"embedding", "index", "index_select", "gather", "take", "_embedding_bag"})
"""Operators that read of their first tensor what they write, not all of it."""

READS_AGAIN: Final[Mapping[str, int]] = {
    "native_batch_norm": 1,
    "native_batch_norm_backward": 2,
    "convolution_backward": 1,
}
"""Tensors that an operator reads a second time, the first of its arguments.

A norm over the batch reads its input for the statistics, then to apply them, and both its input and the
gradient likewise in backward. The gradients of input and weights read that of the output one after the other.
"""

ALLOCATIONS: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operators that ask for memory and leave it as it is."""


@dataclass(kw_only=True, slots=True)
class Call:
    """One call of an operator in forward, and what autograd adds to it.

    ``repeat`` is how often it runs, each time after the one before. ``gradients`` are the operators of its
    backward; one that has any ``is_trained``. An ``is_free`` one only stands for how data are laid out by
    the operator before it.
    """

    operator: str
    arguments: tuple[Any, ...]
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    is_view: bool
    moved: Volume
    repeat: int = 1
    is_free: bool = False
    is_trained: bool = False
    saved: list[View] = field(default_factory=list)
    gradients: list["Gradient"] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """One operator that runs in backward, and what it reads and writes."""

    operator: str
    arguments: tuple[Any, ...]
    moved: Volume


@dataclass(kw_only=True, slots=True)
class Frame:
    """One call of a module: the calls of operators from ``start`` to ``end``, and the modules it calls."""

    module: torch.nn.Module
    start: int
    end: int = 0
    children: list["Frame"] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """A module's run: its operators in forward order, the modules around them, what came out."""

    module: torch.nn.Module
    storages: Storages
    calls: Sequence[Call]
    root: Frame
    outputs: tuple[View, ...]


def record(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    *,
    activation_dtype: torch.dtype,
    modes: Callable[["Recorder"], Sequence[Any]] = lambda _recorder: (),
) -> Recording:
    """Run a module on the meta device, forward and backward, and return what it did.

    ``modes`` are entered around forward. Raises UntraceableModule for a module that needs values, and
    for one that returns no tensor.
    """
    storages = Storages(activation_dtype=activation_dtype)
    for weight in (*module.parameters(), *module.buffers()):
        storages.view(weight, is_weight=True)
    recorder = Recorder(storages)
    with _frames(module, recorder) as roots, ExitStack() as around:
        around.enter_context(saved_tensors_hooks(recorder.note_saved, lambda kept: kept))
        around.enter_context(recorder)
        for mode in modes(recorder):
            around.enter_context(mode)
        outputs = _run(module, inputs)
    _run_backward(module, outputs, recorder)
    return Recording(
        module=module,
        storages=storages,
        calls=recorder.calls,
        root=roots[0],
        outputs=tuple(map(storages.view, outputs)),
    )


def _run(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    try:
        result = module(*inputs)
    except Exception as error:
        shapes = ", ".join("x".join(map(str, tensor.shape)) for tensor in inputs)
        needs_values = isinstance(error, NotImplementedError) or "meta tensor" in str(error)
        why = "asks for values of tensors, which tracing has none of" if needs_values else "cannot be run"
        message = f"the module {why}, on inputs of {shapes}: {type(error).__name__}: {error}"
        raise UntraceableModule(message) from error
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if not outputs:
        raise UntraceableModule(f"the module returned no tensor, but a {type(result).__name__}")
    return outputs


def _run_backward(module: torch.nn.Module, outputs: Sequence[torch.Tensor], recorder: "Recorder") -> None:
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    ends = [output for output in outputs if output.requires_grad]
    if not weights or not ends:
        return
    gradients = [torch.empty_like(end) for end in ends]
    try:
        with recorder.in_backward(), recorder:
            torch.autograd.grad(ends, weights, gradients, allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        raise UntraceableModule(f"the module's backward cannot be run: {error}") from error


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Writes down every operator that torch calls."""

    def __init__(self, storages: Storages) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.calls: list[Call] = []
        self._storages = storages
        self._next_node = _nodes_made()
        self._call_of_node: dict[int, Call] = {}
        self._saved: list[tuple[int, View]] = []
        self._repeat, self._is_free, self._is_backward = 1, False, False
        self._last: Call | None = None

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run an operator, and write down what it read and wrote."""
        read = _tensors((args, kwargs))
        result = func(*args, **(kwargs or {}))
        reads = tuple(map(self._storages.view, read))
        writes = tuple(map(self._storages.view, _tensors(result)))
        name, is_view = str(func.overloadpacket.__name__), _is_view(func, reads, writes)
        moved = EMPTY if is_view or self._is_free else _moved(name, reads, writes)
        arguments = tuple(map(self._described, _in_order(func, args, kwargs or {})))
        if self._is_backward:
            _refuse_recomputation()
            self._note_gradient(Gradient(operator=name, arguments=arguments, moved=moved))
        else:
            call = Call(
                operator=name,
                arguments=arguments,
                reads=reads,
                writes=writes,
                is_view=is_view,
                moved=moved,
                repeat=self._repeat,
                is_free=self._is_free,
            )
            self.calls.append(call)
            self._give_nodes(call)
        return result

    def note_saved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Write down a tensor that autograd saves for the node that it made last."""
        self._saved.append((_nodes_made() - 1, self._storages.view(tensor)))
        return tensor

    @contextmanager
    def repeating(self, times: int) -> Iterator[None]:
        """Count what runs inside so many times, each after the one before."""
        self._repeat = times
        yield
        self._repeat = 1

    @contextmanager
    def free(self) -> Iterator[None]:
        """Count nothing that is moved inside: what ran before wrote it where it belongs."""
        self._is_free = True
        yield
        self._is_free = False

    @contextmanager
    def in_backward(self) -> Iterator[None]:
        """Take what runs inside as gradients of what ran before."""
        self._is_backward = True
        for node, view in self._saved:
            if node in self._call_of_node:
                self._call_of_node[node].saved.append(view)
        yield
        self._is_backward = False

    def _give_nodes(self, call: Call) -> None:
        """Give a call the autograd nodes made since the one before: none where nothing is trained."""
        made = _nodes_made()
        for node in range(self._next_node, made):
            self._call_of_node[node] = call
            call.is_trained = True
        self._next_node = made

    def _note_gradient(self, gradient: Gradient) -> None:
        """Tie an operator of backward to its call; what sums gradients belongs to the node run before."""
        node = torch._C._current_autograd_node()  # noqa: SLF001 - nothing public says so
        if node is not None:
            self._last = self._call_of_node.get(node._sequence_nr(), self._last)  # noqa: SLF001
        if self._last is not None and not self._last.is_free:
            self._last.gradients.append(gradient)

    def _described(self, argument: object) -> object:
        """Return an argument with views in the place of tensors."""
        if isinstance(argument, torch.Tensor):
            return self._storages.view(argument)
        if isinstance(argument, list | tuple):
            return tuple(map(self._described, argument))
        return argument


@contextmanager
def _frames(module: torch.nn.Module, recorder: Recorder) -> Iterator[list[Frame]]:
    """Write down which modules are called, and between which operators; the module itself comes first."""
    roots: list[Frame] = []
    open_frames: list[Frame] = []

    def enter(called: torch.nn.Module, _inputs: object) -> None:
        frame = Frame(module=called, start=len(recorder.calls))
        (open_frames[-1].children if open_frames else roots).append(frame)
        open_frames.append(frame)

    def leave(_called: torch.nn.Module, _inputs: object, _output: object) -> None:
        open_frames.pop().end = len(recorder.calls)

    with ExitStack() as hooks:
        for part in module.modules():
            hooks.callback(part.register_forward_pre_hook(enter).remove)
            hooks.callback(part.register_forward_hook(leave).remove)
        yield roots


def _refuse_recomputation() -> None:
    """Refuse a module that runs forward again in backward, where autograd does not record otherwise."""
    if torch.is_grad_enabled():
        raise UntraceableModule(
            "the module recomputes activations itself: trace it without activation checkpointing; "
            "the planner decides what is computed again"
        )


def _tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _nodes_made() -> int:
    """Return the number that the next autograd node of this thread will have."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001 - nothing public says so


def _in_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:  # noqa: ANN401 - torch's
    """Return arguments in the order of the operator's schema, defaults for those that are left out."""
    rest = func._schema.arguments[len(args) :]  # noqa: SLF001 - nothing public says so
    return (*args, *(kwargs.get(argument.name, argument.default_value) for argument in rest))


def _is_view(func: Any, reads: Sequence[View], writes: Sequence[View]) -> bool:  # noqa: ANN401 - torch's
    """Tell whether an operator moves nothing: all that it returns is memory that it was given, as it was."""
    changes = any(
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in func._schema.arguments  # noqa: SLF001 - nothing public says so
    )
    given = {view.storage.number for view in reads}
    return not changes and bool(writes) and all(view.storage.number in given for view in writes)


def _moved(operator: str, reads: Sequence[View], writes: Sequence[View]) -> Volume:
    """Return what an operator reads and writes; memory that is asked for and left as it is moves nothing."""
    if operator in ALLOCATIONS:
        return EMPTY
    read = [view.volume for view in reads]
    written = [view.volume for view in writes]
    if operator in GATHERS:
        read = [total(written), *read[1:]]
    again = read[: READS_AGAIN.get(operator, 0)]
    return total(read + again + written)
