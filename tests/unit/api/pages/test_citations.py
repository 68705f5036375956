import pytest

from api.pages.citations import anchor_of, citation


@pytest.mark.parametrize(
    ("pointer", "anchor"),
    [
        ("/prediction/memory/2", "memory-2"),
        ("/prediction/memory/2/peak_bytes", "memory-2"),
        ("/prediction/memory", "memory"),
        ("/prediction/breakdown_seconds/bubble", "time-bubble"),
        ("/prediction/breakdown_seconds", "time"),
        ("/prediction/step_time_seconds", "headline"),
        ("/prediction/provenance/measured", "provenance"),
        ("/plan/stages/3", "stage-3"),
        ("/plan/mesh/tensor_parallel", "plan"),
        ("/certificate/lower_bound", "certificate"),
        ("/alternatives/0", "alternatives"),
        ("/sensitivity/0", "sensitivity"),
        ("/request/constraints/memory_fraction", "request"),
        ("/something/new", "plan"),
        ("", "plan"),
        ('/prediction/memory/"><script>', "memory"),
        ("/prediction/breakdown_seconds/<b>", "time"),
    ],
)
def test_a_field_has_a_place_on_the_page(pointer: str, anchor: str) -> None:
    assert anchor_of(pointer)[0] == anchor


def test_a_sentence_keeps_its_text_and_its_pointer() -> None:
    sentence = citation({"text": "Memory binds.", "pointer": "/prediction/memory/0"})
    assert (sentence.text, sentence.pointer, sentence.place) == (
        "Memory binds.",
        "/prediction/memory/0",
        "memory, row 0",
    )
