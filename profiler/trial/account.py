"""What a step consists of, seen operator by operator: their time, what each axis sends, live bytes.

Both watch every operator on plain tensors that torch runs, below DTensor and autograd. A collective starts
when its ranks have met and is waited for at once, so that its time is that of the link: nothing hides it, and
it does not count what a rank waits for another.
"""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from planner.units import Bytes, Seconds

PRODUCTS: Final = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "linear", "linear_backward", "matmul", "grouped_mm"}
)
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

COLLECTIVE_SPACES: Final = frozenset({"c10d", "_c10d_functional"})
ENDS: Final = frozenset({"wait_tensor", "wrap_tensor_autograd"})
"""What ends a functional collective: here it is over by then."""
MESSAGES: Final = frozenset({"send", "recv", "recv_any_source"})

Operator = Callable[..., Any]


@dataclass(kw_only=True, slots=True)
class Tally:
    """Calls of one kind: how many, how long, how many bytes of tensors they were given."""

    calls: int = 0
    seconds: Seconds = 0.0
    payload_bytes: Bytes = 0.0

    def add(self, *, seconds: Seconds, payload_bytes: Bytes) -> None:
        """Count one call."""
        self.calls += 1
        self.seconds += seconds
        self.payload_bytes += payload_bytes


def family_of(name: str) -> str:
    """Return what kind of work an operator is: a matrix product, an attention core, a pass over memory."""
    if name in PRODUCTS:
        return "matrix_product"
    return "attention" if "attention" in name else "memory_pass"


@dataclass(kw_only=True, slots=True)
class StepAccount:
    """Operators by phase and name, collectives by axis and name."""

    operators: dict[tuple[str, str], Tally] = field(default_factory=dict)
    collectives: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def operator(self, phase: str, name: str) -> Tally:
        """Return the tally of an operator in a phase."""
        return self.operators.setdefault((phase, name), Tally())

    def collective(self, axis: str, name: str) -> Tally:
        """Return the tally of a collective over an axis."""
        return self.collectives.setdefault((axis, name), Tally())

    def to_document(self) -> dict[str, Any]:
        """Return both as rows, the longest first."""
        return {
            "operators": _rows(self.operators, ("phase", "operator"), family=True),
            "communication": _rows(self.collectives, ("axis", "operation"), family=False),
        }


def _rows(tallies: Mapping[tuple[str, str], Tally], keys: tuple[str, str], *, family: bool) -> list[Any]:
    ranked = sorted(tallies.items(), key=lambda entry: -entry[1].seconds)
    return [
        {
            keys[0]: names[0],
            keys[1]: names[1],
            **({"family": family_of(names[1])} if family else {}),
            "calls": tally.calls,
            "seconds": tally.seconds,
            "bytes": tally.payload_bytes,
        }
        for names, tally in ranked
    ]


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Sees each operator on plain tensors; what DTensor makes of its own comes back as such."""

    def __torch_dispatch__(
        self,
        func: Operator,
        types: Any,  # noqa: ANN401 - as torch calls it
        args: Any = (),  # noqa: ANN401 - as torch calls it
        kwargs: Any = None,  # noqa: ANN401 - as torch calls it
    ) -> Any:  # noqa: ANN401 - as torch calls it
        """Let DTensor take its operators apart first."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        return self.watched(func, args, kwargs or {})

    def watched(self, func: Operator, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - any operator's
        """Run an operator and take note of it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis of the mesh, and the ranks that this one meets on it."""

    name: str
    group: distributed.ProcessGroup


class TimesOperators(_Watcher):  # type: ignore[no-untyped-call]  # as above
    """Times every operator and counts what collectives send; an axis is known by the ranks on it."""

    def __init__(
        self,
        axes: Mapping[frozenset[int], Axis],
        *,
        synchronize: Callable[[], None],
        now: Callable[[], Seconds],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.account = StepAccount()
        self.is_in_optimizer = False
        self._axes, self._synchronize, self._now = axes, synchronize, now

    def watched(self, func: Operator, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - any operator's
        """See `_Watcher.watched`."""
        space, _, name = str(getattr(func, "_schema", func)).split("(")[0].partition("::")
        name = name.partition(".")[0].strip("_")
        if space not in COLLECTIVE_SPACES:
            result, seconds = self._timed(func, args, kwargs)
            self.account.operator(self._phase(), name).add(seconds=seconds, payload_bytes=_bytes(args))
            return result
        if name in ENDS:
            return func(*args, **kwargs)
        axis = self._axis(args, kwargs)
        is_message = name in MESSAGES
        if axis is not None and not is_message:
            distributed.barrier(axis.group)
        # Nobody waits for a message: its other end may wait for this rank to go on.
        run = func if is_message else partial(_run_and_wait, func)
        result, seconds = self._timed(run, args, kwargs)
        tally = self.account.collective("all" if axis is None else axis.name, name)
        tally.add(seconds=seconds, payload_bytes=_bytes(args))
        return result

    def _timed(self, run: Operator, args: Any, kwargs: Any) -> tuple[Any, Seconds]:  # noqa: ANN401 - any operator's
        started = self._now()
        result = run(*args, **kwargs)
        self._synchronize()
        return result, self._now() - started

    def _phase(self) -> str:
        if self.is_in_optimizer:
            return OPTIMIZER
        is_forward = torch._C._current_graph_task_id() < 0  # noqa: SLF001 - no public name tells it
        return FORWARD if is_forward else BACKWARD

    def _axis(self, args: Any, kwargs: Any) -> Axis | None:  # noqa: ANN401 - any operator's
        groups = (_group(given) for given in tree_iter((args, kwargs)))
        group = next((group for group in groups if group is not None), None)
        return None if group is None else self._axes.get(ranks_of(group))


class LiveBytes(_Watcher):  # type: ignore[no-untyped-call]  # as above
    """The most bytes of storages alive after any operator, those given at the start among them."""

    def __init__(self, kept: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._note(kept)
        self.peak_bytes: Bytes = self.live_bytes()

    def watched(self, func: Operator, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - any operator's
        """See `_Watcher.watched`."""
        result = func(*args, **kwargs)
        self._note(result)
        # Storages are summed each time, as FSDP2 empties and fills them beside all operators.
        self.peak_bytes = max(self.peak_bytes, self.live_bytes())
        return result

    def _note(self, tensors: Any) -> None:  # noqa: ANN401 - any operator's result
        for tensor in tree_iter(tensors):
            if isinstance(tensor, Tensor) and not isinstance(tensor, DTensor):
                storage = tensor.untyped_storage()
                self._alive[storage._cdata] = weakref.ref(storage)  # noqa: SLF001 - its address

    def live_bytes(self) -> Bytes:
        """Return the bytes of the storages that are alive now."""
        gone = []
        total = 0
        for key, reference in self._alive.items():
            storage = reference()
            if storage is None:
                gone.append(key)
            else:
                total += storage.nbytes()
        for key in gone:
            del self._alive[key]
        return float(total)


def _run_and_wait(func: Operator, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operator's
    """Run a collective to its end: one that hands out its work, or a functional one."""
    result = func(*args, **kwargs)
    for given in tree_iter(result):
        if isinstance(given, Tensor):
            torch.ops._c10d_functional.wait_tensor(given)  # noqa: SLF001 - torch's own name of it
        elif isinstance(given, torch.ScriptObject) and (wait := getattr(given, "wait", None)):
            wait()
    return result


def _bytes(args: Any) -> Bytes:  # noqa: ANN401 - any operator's
    return float(sum(given.nbytes for given in tree_iter(args) if isinstance(given, Tensor)))


def ranks_of(group: distributed.ProcessGroup) -> frozenset[int]:
    """Return the ranks of a group, which tell it: torch may keep several groups of the same ranks."""
    return frozenset(distributed.get_process_group_ranks(group))


def _group(given: object) -> distributed.ProcessGroup | None:
    """Return the process group that an argument of an operator is or names; None for anything else."""
    try:
        if isinstance(given, str):
            resolve = torch._C._distributed_c10d._resolve_process_group  # noqa: SLF001 - no public name
            return resolve(given)  # type: ignore[arg-type]  # a string by another name
        if isinstance(given, torch.ScriptObject):
            return distributed.ProcessGroup.unbox(given)
    except (RuntimeError, TypeError, LookupError):
        return None
    return None
