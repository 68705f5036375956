"""From the form to the finished plan, in a browser."""

import re
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page, expect

pytestmark = pytest.mark.browser

SOLVED_MILLISECONDS = 90_000
FINISHED = re.compile(r"Proven optimal|Feasible|Does not fit")


def _fill(page: Page, **fields: str) -> None:
    for name, text in fields.items():
        page.locator(f"#{name}").fill(text)


def _wait_for_plan(page: Page) -> None:
    expect(page.locator(".verdict")).to_contain_text(FINISHED, timeout=SOLVED_MILLISECONDS)


def _result(page: Page) -> dict[str, Any]:
    """Return the result of the plan that is shown, as a program gets it."""
    path = page.url.replace("/plans/", "/v1/plans/")
    document: dict[str, Any] = page.request.get(path).json()
    return document


def _number(page: Page, figure: str) -> float:
    text = page.locator(f'[data-figure="{figure}"] .number').inner_text()
    return float(text.replace(",", ""))


def _plan_small_model(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Model", exact=True).select_option("gpt-2-1.5b")
    page.get_by_label("System", exact=True).select_option("a100-sxm-80gb")
    _fill(page, num_devices="8", global_batch_size="512", sequence_length="1,024")
    page.get_by_role("button", name="Find the best plan").click()
    _wait_for_plan(page)


def test_a_filled_in_form_ends_in_a_plan_with_the_numbers_of_the_api(page: Page) -> None:
    _plan_small_model(page)
    result = _result(page)
    prediction = result["prediction"]
    assert result["request"]["job"]["sequence_length"] == 1024
    assert _number(page, "step_time") == pytest.approx(prediction["step_time_seconds"], rel=1e-3) or _number(
        page, "step_time"
    ) == pytest.approx(1000 * prediction["step_time_seconds"], rel=1e-3)
    assert _number(page, "throughput") == pytest.approx(prediction["tokens_per_second"], rel=1e-3)
    assert _number(page, "mfu") == pytest.approx(100 * prediction["mfu"], abs=0.06)
    peak = max(stage["peak_bytes"] for stage in prediction["memory"])
    assert _number(page, "memory") == pytest.approx(peak / 2**30, abs=0.06)
    for axis in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        shown = page.locator(f"#plan-{axis} .value").inner_text()
        assert int(shown) == result["plan"]["mesh"][axis]


def test_the_certificate_says_what_the_api_says(page: Page) -> None:
    _plan_small_model(page)
    meshes = _result(page)["certificate"]["meshes"]
    expect(page.locator("#certificate")).to_contain_text(f"{meshes['solved']:,} solved exactly")
    expect(page.locator("#verdict")).to_contain_text("Proven optimal")


def test_bad_input_is_said_beside_its_field_and_the_rest_stays(page: Page) -> None:
    page.goto("/")
    _fill(page, num_devices="63", global_batch_size="many", sequence_length="4096")
    page.get_by_role("button", name="Find the best plan").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("#global_batch_size-faults")).to_contain_text("“many” is not a number")
    expect(page.locator("#global_batch_size")).to_have_value("many")
    expect(page.locator("#sequence_length")).to_have_value("4096")
    expect(page.locator("#num_devices")).to_have_value("63")


def test_a_suggestion_is_one_click(page: Page) -> None:
    page.goto("/")
    _fill(page, num_devices="63")
    page.get_by_role("button", name="Find the best plan").click()
    page.locator("#num_devices-faults").get_by_role("button", name="64").click()
    expect(page.locator("#num_devices")).to_have_value("64")
    expect(page.locator("#num_devices")).to_be_focused()
    expect(page.locator("#num_devices-faults")).to_have_count(0)


def test_a_suggestion_is_one_click_without_scripts_too(plain_page: Page) -> None:
    plain_page.goto("/")
    _fill(plain_page, num_devices="63")
    plain_page.get_by_role("button", name="Find the best plan").click()
    plain_page.locator("#num_devices-faults").get_by_role("button", name="64").click()
    expect(plain_page.locator("#num_devices")).to_have_value("64")
    expect(plain_page.locator("#num_devices-faults")).to_have_count(0)


def test_the_whole_way_works_without_scripts(plain_page: Page) -> None:
    _plan_small_model(plain_page)
    expect(plain_page.locator("#timeline path").first).to_be_attached()
    expect(plain_page.locator("button.copy").first).to_be_hidden()


def test_an_example_is_one_click(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Llama-3-8B on 8 H100").click()
    _wait_for_plan(page)
    expect(page.locator("h1")).to_contain_text("llama-3-8b on 8 × h100-sxm")


def test_what_does_not_fit_is_said_exactly(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Llama-3-70B on 8 A100 of 40 GB").click()
    _wait_for_plan(page)
    (shortage, *_) = _result(page)["shortage"]
    expect(page.locator("#shortage")).to_contain_text(f"{shortage['needed_bytes'] / 2**30:,.1f}")


def test_a_plan_can_be_changed_and_asked_again(page: Page) -> None:
    _plan_small_model(page)
    page.get_by_role("link", name="Change it and plan again").click()
    expect(page.locator("#model_preset")).to_have_value("gpt-2-1.5b")
    expect(page.locator("#num_devices")).to_have_value("8")


def test_exactly_the_fixed_plan_is_predicted(page: Page) -> None:
    page.goto("/?example=llama-3-8b-8-h100&tensor_parallel=8&micro_batch_size=1")
    page.get_by_role("button", name="Predict exactly").click()
    expect(page.locator(".verdict")).to_contain_text(re.compile(r"Fits|Does not fit"))
    assert page.locator("#plan-tensor_parallel .value").inner_text() == "8"


def test_an_uploaded_file_can_be_read_before_it_is_sent(page: Page) -> None:
    page.goto("/")
    page.get_by_label("a config.json").check()
    config: FilePayload = {
        "name": "config.json",
        "mimeType": "application/json",
        "buffer": b'{"model_type": "llama"}',
    }
    page.locator("#model_file").set_input_files(config)
    expect(page.locator("#model_config")).to_have_value('{"model_type": "llama"}')


def test_machines_of_ones_own_are_planned_for_by_their_figures(page: Page) -> None:
    page.goto("/")
    page.get_by_label("a node group of my own").check()
    page.get_by_label("Model", exact=True).select_option("gpt-2-124m")
    _fill(page, global_batch_size="64", sequence_length="1024", group_num_nodes="2")
    page.get_by_role("button", name="Find the best plan").click()
    expect(page.locator("#group_devices_per_node-faults")).to_contain_text("missing")
    expect(page.locator("#group_network-faults")).to_contain_text("missing")
    _fill(page, group_devices_per_node="4", group_network_bandwidth="1.5")
    page.get_by_label("Device", exact=True).select_option("A100-SXM4-80GB")
    page.get_by_label("Link in a node").select_option("nvlink3")
    page.get_by_label("Network", exact=True).select_option("ethernet-100g")
    page.get_by_role("button", name="Find the best plan").click()
    _wait_for_plan(page)
    (group,) = _result(page)["request"]["cluster"]["node_groups"]
    assert [level["bandwidth_bytes_per_second"] for level in group["levels"]] == [300e9, 1.5e9]
    expect(page.locator("h1")).to_contain_text("8 × A100-SXM4-80GB")


def test_adapters_and_images_of_a_model_that_sees_are_fields(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Model", exact=True).select_option("llava-1.5-7b")
    _fill(page, num_devices="8", global_batch_size="32", sequence_length="2048")
    page.get_by_text("Images, adapters, frozen layers").click()
    _fill(page, images_per_sample="2", lora_rank="8", lora_targets="q_proj, v_proj", frozen="vision")
    page.get_by_label("Trained").select_option("lora")
    page.get_by_label("Weights under adapters").select_option("nf4")
    page.get_by_role("button", name="Find the best plan").click()
    _wait_for_plan(page)
    job = _result(page)["request"]["job"]
    assert (job["images_per_sample"], job["trainable"]["kind"]) == (2, "lora")
    assert (job["trainable"]["rank"], job["trainable"]["base_dtype"]) == (8, "nf4")
    assert (job["trainable"]["targets"], job["trainable"]["frozen"]) == (["q_proj", "v_proj"], ["vision"])
    page.get_by_role("link", name="Change it and plan again").click()
    expect(page.locator("#lora_targets")).to_have_value("q_proj, v_proj")
    expect(page.locator("#lora_rank")).to_be_visible()
