"""By which schemes a framework splits attention over context parallel, and beside what."""

import pytest

from planner.job import AttentionKind
from planner.rules.context import RULES
from planner.strategy import ContextParallelScheme, Mesh
from tests.unit.planner.rules.cases import Case, check

RING, ALL_TO_ALL, ALL_GATHER, MIXED = ContextParallelScheme
CASES = (
    Case(
        rule="even-sequence",
        framework="torchtitan",
        broken={"mesh": Mesh(tensor_parallel=4, context_parallel=2, sequence_parallel=True)},
        pointer="/plan/tensor_parallel",
        nearest=2,
        kept={"mesh": Mesh(tensor_parallel=4, sequence_parallel=True)},
        given={"sequence_length": 2056},
    ),
    Case(
        rule="context-parallel-scheme",
        framework="pytorch",
        broken={"mesh": Mesh(context_parallel=2, context_parallel_scheme=ALL_TO_ALL)},
        pointer="/plan/context_parallel_scheme",
        nearest=RING,
        kept={"mesh": Mesh(context_parallel=2, context_parallel_scheme=ALL_GATHER)},
    ),
    Case(
        rule="context-parallel-scheme",
        framework="torchtitan",
        version="0.3",
        broken={"mesh": Mesh(context_parallel=2)},
        pointer="/plan/context_parallel_scheme",
        nearest=ALL_GATHER,
        kept={"mesh": Mesh(context_parallel=2, context_parallel_scheme=ALL_GATHER)},
    ),
    Case(
        rule="windows-in-context-parallel",
        framework="megatron-core",
        model="gemma-2-9b",
        broken={"mesh": Mesh(context_parallel=2)},
        pointer="/plan/context_parallel_scheme",
        nearest=ALL_GATHER,
        kept={"mesh": Mesh(context_parallel=2, context_parallel_scheme=ALL_TO_ALL)},
    ),
    Case(
        rule="whole-exchanged-heads",
        framework="megatron-core",
        broken={
            "mesh": Mesh(tensor_parallel=2, context_parallel=8, context_parallel_scheme=ALL_TO_ALL),
        },
        pointer="/plan/context_parallel",
        nearest=4,
        kept={
            "mesh": Mesh(
                tensor_parallel=2,
                context_parallel=8,
                context_parallel_scheme=MIXED,
                all_to_all_degree=4,
            )
        },
    ),
    Case(
        rule="fused-context-parallel",
        framework="megatron-core",
        broken={"mesh": Mesh(context_parallel=2, context_parallel_scheme=ALL_TO_ALL)},
        pointer="/plan/context_parallel",
        nearest=1,
        kept={"mesh": Mesh(tensor_parallel=2)},
        given={"attention": AttentionKind.UNFUSED},
    ),
    Case(
        rule="context-parallel-halves",
        framework="megatron-core",
        broken={"mesh": Mesh(context_parallel=4, context_parallel_scheme=ALL_TO_ALL)},
        pointer="/plan/context_parallel",
        nearest=2,
        kept={"mesh": Mesh(context_parallel=2, context_parallel_scheme=ALL_TO_ALL)},
        given={"sequence_length": 2052},
    ),
    Case(
        rule="context-parallel-alone",
        framework="deepspeed",
        broken={
            "mesh": Mesh(tensor_parallel=2, context_parallel=2, context_parallel_scheme=ALL_TO_ALL),
        },
        pointer="/plan/context_parallel",
        nearest=1,
        kept={"mesh": Mesh(context_parallel=8, context_parallel_scheme=ALL_TO_ALL)},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_layout_that_breaks_a_rule_is_told_the_nearest_that_keeps_it(case: Case) -> None:
    check(case)


def test_every_rule_has_a_case() -> None:
    assert {rule.name for rule in RULES} == {case.rule for case in CASES}
