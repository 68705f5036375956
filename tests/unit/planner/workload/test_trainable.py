"""Which layers of a chain are trained, frozen, adapted, or run beside a reference."""

from dataclasses import replace

import pytest

from planner.errors import InvalidRequest, UnknownName
from planner.job import BaseFormat, Job, Loss, Trainable, TrainableKind
from planner.workload.adapters import AdaptedLayer
from planner.workload.frozen import FrozenLayer
from planner.workload.layers import Cut, Workload
from planner.workload.operators import CollectivePass
from planner.workload.preference import PreferenceLayer
from planner.workload.presets import preset_workload
from planner.workload.recomputation import WHOLE_LAYER, saved_bytes
from planner.workload.trainable import trained_workload
from planner.workload.weights import holdings, step_flops_per_sample

LLAMA = preset_workload("llama-2-7b")
LLAVA = preset_workload("llava-1.5-7b")
CUT = Cut(micro_batch_size=1, sequence_length=512)
LORA = TrainableKind.LORA


def trained(
    workload: Workload,
    trainable: Trainable,
    *,
    loss: Loss = Loss.CAUSAL_LM,
    reference: Workload | None = None,
) -> Workload:
    job = Job(global_batch_size=8, sequence_length=512, trainable=trainable, loss=loss)
    return trained_workload(workload, job, reference=reference)


def parameters(workload: Workload) -> tuple[int, int]:
    """Return trained and all parameters."""
    held = [(holdings(run.layer, CUT), run.count) for run in workload.runs]
    own = sum(count * (part.dense.trained + part.experts.trained).parameters for part, count in held)
    return own, sum(count * part.parameters for part, count in held)


def test_full_training_leaves_the_chain_as_it_is() -> None:
    assert trained(LLAMA, Trainable()) == LLAMA


def test_a_frozen_tower_before_all_else_runs_forward_alone() -> None:
    """The first stage of LLaVA's recipe: projector and language model train, the tower does not."""
    chain = trained(LLAVA, Trainable(frozen=("vision",)))
    kinds = [run.layer.kind for run in chain.runs]
    tower = [run.layer for run in chain.runs[: kinds.index("projector")]]
    assert [layer.kind for layer in tower] == ["vision", "norm", "vision", "norm"]
    assert all(isinstance(layer, FrozenLayer) and not layer.has_backward for layer in tower)
    assert not any(isinstance(run.layer, FrozenLayer) for run in chain.runs[len(tower) :])


def test_what_is_frozen_behind_something_trained_passes_gradients_on() -> None:
    """LLaVA's pre-training: the projector trains alone; images reach it through the language model."""
    chain = trained(LLAVA, Trainable(frozen=("vision", "embedding", "decoder", "norm", "head")))
    backward = {
        run.layer.kind: run.layer.has_backward for run in chain.runs if isinstance(run.layer, FrozenLayer)
    }
    assert backward == {"vision": False, "embedding": False, "decoder": True, "norm": True, "head": True}
    own, everything = parameters(chain)
    assert own == LLAVA.layer("projector").parameters
    assert everything == LLAVA.parameters


def test_adapters_stand_beside_decoders_alone() -> None:
    chain = trained(LLAMA, Trainable(kind=LORA, rank=8, targets=("q_proj", "v_proj")))
    kinds = {run.layer.kind: type(run.layer) for run in chain.runs}
    assert kinds == {
        "embedding": FrozenLayer,
        "decoder": AdaptedLayer,
        "norm": FrozenLayer,
        "head": FrozenLayer,
    }
    assert parameters(chain) == (4_194_304, LLAMA.parameters + 4_194_304)


def test_frozen_kinds_get_no_adapters() -> None:
    chain = trained(LLAVA, Trainable(kind=LORA, frozen=("vision",)))
    assert not any(isinstance(run.layer, AdaptedLayer) for run in chain.runs if run.layer.kind == "vision")
    assert any(isinstance(run.layer, AdaptedLayer) for run in chain.runs if run.layer.kind == "decoder")


def test_training_adapters_takes_about_two_thirds_of_the_work() -> None:
    def work(workload: Workload) -> float:
        return sum(run.count * step_flops_per_sample(run.layer, 512) for run in workload.runs)

    share = work(trained(LLAMA, Trainable(kind=LORA, rank=8))) / work(LLAMA)
    assert share == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize(
    ("trainable", "pointer", "nearest"),
    [
        (Trainable(frozen=("decodr",)), "/job/trainable/frozen/0", "decoder"),
        (Trainable(kind=LORA, targets=("q_prj",)), "/job/trainable/targets/0", "q_proj"),
    ],
)
def test_an_unknown_name_is_told_its_nearest(trainable: Trainable, pointer: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as caught:
        trained(LLAMA, trainable)
    assert (caught.value.pointer, caught.value.nearest_legal[0]) == (pointer, nearest)


@pytest.mark.parametrize(
    ("trainable", "pointer"),
    [
        (Trainable(frozen=("embedding", "decoder", "norm", "head")), "/job/trainable/frozen"),
        (Trainable(kind=LORA, targets=("x_proj",)), "/job/trainable/targets"),
    ],
)
def test_something_has_to_be_left_to_train(trainable: Trainable, pointer: str) -> None:
    with pytest.raises(InvalidRequest, match=r"left to train|adapters") as caught:
        trained(LLAMA, trainable)
    assert caught.value.pointer == pointer


def test_a_reference_is_a_second_frozen_model() -> None:
    own, everything = parameters(trained(LLAMA, Trainable(), loss=Loss.DPO))
    assert (own, everything) == (LLAMA.parameters, 2 * LLAMA.parameters)


def test_with_adapters_off_the_base_is_its_own_reference() -> None:
    lora = Trainable(kind=LORA, rank=8, targets=("q_proj", "v_proj"), base_format=BaseFormat.NF4)
    assert parameters(trained(LLAMA, lora, loss=Loss.DPO)) == parameters(trained(LLAMA, lora))


def test_another_reference_has_weights_of_its_own() -> None:
    lora = Trainable(kind=LORA, rank=8, targets=("q_proj", "v_proj"))
    chain = trained(LLAMA, lora, loss=Loss.DPO, reference=preset_workload("llama-1-7b"))
    assert parameters(chain)[1] == 2 * LLAMA.parameters + 4_194_304


def test_a_reference_of_another_depth_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        trained(LLAMA, Trainable(), loss=Loss.DPO, reference=preset_workload("llama-2-13b"))
    assert caught.value.pointer == "/job/reference_model"


def test_runs_of_equal_layers_stay_together_beside_a_reference() -> None:
    chain = trained(LLAMA, Trainable(), loss=Loss.DPO)
    assert [run.count for run in chain.runs] == [run.count for run in LLAMA.runs]
    assert all(isinstance(run.layer, PreferenceLayer) for run in chain.runs)


FAMILIES = (
    "gpt-2-124m",
    "gpt-j-6b",
    "mixtral-8x7b",
    "deepseek-v3",
    "jamba-v0.1",
    "t5-small",
    "qwen2.5-vl-7b",
)


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("loss", [Loss.CAUSAL_LM, Loss.DPO])
@pytest.mark.parametrize("base_format", [None, BaseFormat.NF4])
def test_layers_of_every_family_keep_to_laws(model: str, loss: Loss, base_format: BaseFormat | None) -> None:
    """They hold what they say, and save no more than trained ones but for what adapters make."""
    workload = preset_workload(model)
    chain = trained(workload, Trainable(kind=LORA, base_format=base_format), loss=loss)
    samples = 2 if loss is Loss.DPO else 1
    for tensor_parallel in (1, 2):
        cut = replace(CUT, tensor_parallel=tensor_parallel, sequence_parallel=tensor_parallel > 1)
        for run, plain in zip(chain.runs, workload.runs, strict=True):
            held, operators = holdings(run.layer, cut), run.layer.operators(cut)
            assert held.parameters == run.layer.local_parameters(cut)
            assert held.experts.parameters == run.layer.local_expert_parameters(cut)
            made = sum(
                tensor.size_bytes
                for op in operators
                if not isinstance(op, CollectivePass)
                for tensor in op.saved
                if "low_rank" in tensor.name
            )
            whole = plain.layer.operators(replace(cut, micro_batch_size=samples))
            assert saved_bytes(operators) - made <= saved_bytes(whole)
            assert saved_bytes(operators, recompute=WHOLE_LAYER) <= saved_bytes(operators)
