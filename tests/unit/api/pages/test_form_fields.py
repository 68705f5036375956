import pytest

from api.pages.form_fields import FIELDS, FIXED_FIELDS, Verb, field_at, path_of


@pytest.mark.parametrize(
    ("pointer", "name"),
    [
        ("/job/global_batch_size", "global_batch_size"),
        ("/cluster/num_devices", "num_devices"),
        ("/cluster", "cluster_preset"),
        ("/cluster/node_groups/0/levels/1/name", "group_network"),
        ("/cluster/node_groups/0/levels/1/devices", "node_groups"),
        ("/cluster/node_groups/1/device", "node_groups"),
        ("/cluster/between_groups/0", "cluster_preset"),
        ("/job/trainable/targets/0", "lora_targets"),
        ("/job/trainable/other", "trained"),
        ("/model", "model_preset"),
        ("/model/huggingface/hidden_size", "model_config"),
        ("/constraints/fixed/tensor_parallel", "tensor_parallel"),
        ("/constraints/fixed/schedule/name", "schedule"),
        ("/constraints/forbid/0", "forbid"),
        ("/solver/time_limit_seconds", "time_limit_seconds"),
        ("/profiles/0", None),
        ("", None),
    ],
)
def test_a_fault_falls_on_the_field_around_it(pointer: str, name: str | None) -> None:
    field = field_at(pointer, Verb.PLAN)
    assert (field.name if field else None) == name


def test_the_choices_of_an_evaluation_are_its_plan() -> None:
    field = field_at("/plan/tensor_parallel", Verb.EVALUATE)
    assert field is FIELDS["tensor_parallel"]
    assert path_of(FIELDS["tensor_parallel"], Verb.PLAN) == ("constraints", "fixed", "tensor_parallel")
    assert field_at("/plan/tensor_parallel", Verb.PLAN) is None


def test_every_field_but_one_has_a_place_of_its_own() -> None:
    places = [path_of(field, verb) for verb in Verb for field in FIXED_FIELDS]
    places += [field.path for field in FIELDS.values() if field not in FIXED_FIELDS]
    assert len(set(places)) == len(places)
    assert [field.name for field in FIELDS.values() if not field.path] == ["more"]
