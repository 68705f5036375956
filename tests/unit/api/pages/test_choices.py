from api.pages.choices import cluster_options, model_groups, system_options, word_options
from api.pages.form_fields import FIELDS
from planner.cluster_presets import cluster_preset_names
from planner.frameworks import FRAMEWORKS
from planner.workload.presets import preset_names


def test_every_model_stands_in_its_family_the_smallest_first() -> None:
    groups = {group.name: [option.text for option in group.options] for group in model_groups()}
    assert groups["llama-3"] == [
        "llama-3-8b (8.03 billion)",
        "llama-3-70b (70.6 billion)",
        "llama-3-405b (406 billion)",
    ]
    assert {option.value for group in model_groups() for option in group.options} == set(preset_names())


def test_every_system_says_its_devices() -> None:
    assert {option.value for option in system_options()} == set(cluster_preset_names())
    assert "h100-sxm (H100-SXM5-80GB, 8 per node)" in {option.text for option in system_options()}


def test_measured_machines_stand_after_the_systems() -> None:
    assert cluster_options(["local"])[-1].text == "local (measured here)"


def test_words_are_chosen_in_fields_of_the_form() -> None:
    options = word_options()
    assert set(options) <= set(FIELDS)
    assert {option.value for option in options["framework"]} == set(FRAMEWORKS)
