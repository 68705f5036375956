import pytest

from api.pages.examples import EXAMPLES
from api.pages.form_fields import Verb
from api.pages.form_page import FormPage, form_page
from api.pages.form_request import Faults, FieldFault
from api.pages.form_values import FormValues

FAULT = (FieldFault(detail="is odd", suggestions=("64",)),)


def _page(values: FormValues, faults: Faults | None = None) -> FormPage:
    return form_page(values, verb=Verb.PLAN, faults=faults or {}, machines=())


def test_what_was_typed_stays_as_it_was_and_has_its_faults_beside_it() -> None:
    page = _page(FormValues(texts={"num_devices": " 63 "}), {"num_devices": FAULT})
    field = page.fields["num_devices"]
    assert (field.value, field.faults) == (" 63 ", FAULT)
    assert field.described_by == "num_devices-faults"
    assert page.faulty == (field,)


def test_a_field_says_its_hint_to_those_who_hear_it() -> None:
    assert _page(FormValues()).fields["sequence_length"].described_by == "sequence_length-hint"


def test_what_must_be_chosen_begins_with_the_default() -> None:
    fields = _page(FormValues()).fields
    assert [fields[name].value for name in ("precision", "optimizer", "framework")] == [
        "bf16",
        "adamw",
        "megatron-core",
    ]


@pytest.mark.parametrize(
    ("values", "faults"),
    [
        (FormValues(texts={"tensor_parallel": "8"}), {}),
        (FormValues(forbid=("offload",)), {}),
        (FormValues(), {"more": FAULT}),
        (FormValues(), {"forbid": FAULT}),
    ],
)
def test_what_is_folded_away_is_open_once_something_stands_in_it(values: FormValues, faults: Faults) -> None:
    assert not _page(FormValues()).has_constraints
    assert _page(values, faults).has_constraints


@pytest.mark.parametrize("name", ["images_per_sample", "lora_rank", "frozen"])
def test_images_and_adapters_are_open_once_something_stands_there(name: str) -> None:
    assert not _page(FormValues()).is_special
    assert not _page(FormValues(texts={"trained": "full"})).is_special
    assert _page(FormValues(texts={"trained": "lora"})).is_special
    assert _page(FormValues(texts={name: "8"})).is_special


def test_faults_of_no_field_stand_above_the_form() -> None:
    assert _page(FormValues(), {"": FAULT}).whole_form == FAULT


def test_examples_have_names_that_a_link_can_hold() -> None:
    assert list(EXAMPLES) == [
        "llama-3-8b-8-h100",
        "llama-3-70b-64-h100",
        "gpt-3-175b-1024-a100",
        "megatron-1t-3072-a100",
        "llama-3-70b-8-a100-of-40-gb",
    ]
    assert EXAMPLES["gpt-3-175b-1024-a100"].note == "batch 1,536, sequence 2,048"
