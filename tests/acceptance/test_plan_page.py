"""The plan page as people have it before them: on paper, on a phone, in the dark, by keyboard."""

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

LOW_CONTRAST = """
() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const linear = (c) => c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, alpha = 1] = channels(getComputedStyle(at).backgroundColor);
      if (alpha > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(svg *):not(option)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".visually-hidden, .skip")) continue;
    const both = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    if (ratio < 4.5) found.push(`${element.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
}
"""
UNNAMED = """
() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.labels?.length || element.textContent.trim() || element.ariaLabel))
  .map((element) => element.outerHTML)
"""
REQUEST = {
    "model": {"preset": "llama-3-70b"},
    "cluster": {"preset": "h100-sxm", "num_devices": 64},
    "job": {"global_batch_size": 256, "sequence_length": 8192},
    "plan": {"tensor_parallel": 4, "pipeline_parallel": 4, "virtual_stages": 5, "recompute": "selective"},
}
PATHS = ("/", "/plans", "/models", "/clusters", "/devices", "/profiles", "/docs", "/nowhere")


@pytest.fixture
def plan_path(page: Page) -> str:
    """The path of a page with everything that an evaluation shows."""
    answer = page.request.post("/v1/evaluations", data=REQUEST)
    assert answer.ok
    return f"/plans/{answer.json()['id']}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(page: Page, plan_path: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for path in (plan_path, *PATHS):
        page.goto(path)
        assert page.evaluate(LOW_CONTRAST) == []


def test_everything_that_can_be_used_has_a_name(page: Page, plan_path: str) -> None:
    for path in (plan_path, *PATHS):
        page.goto(path)
        assert page.evaluate(UNNAMED) == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_page_scrolls_sideways(page: Page, plan_path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for path in (plan_path, *PATHS):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_timeline_zooms_and_tells_what_is_under_the_pointer(page: Page, plan_path: str) -> None:
    page.goto(plan_path)
    drawing = page.locator(".drawing")
    before = drawing.bounding_box()
    assert before is not None
    page.get_by_role("button", name="Zoom in").click()
    after = drawing.bounding_box()
    assert after is not None
    assert after["width"] == pytest.approx(2 * before["width"], rel=0.01)
    page.get_by_role("button", name="Zoom out").click()
    with page.expect_response("**/timeline"):
        drawing.hover(position={"x": 40, "y": 6})
    drawing.hover(position={"x": 60, "y": 6})
    expect(page.locator(".tip")).to_contain_text("stage 0 · forward · micro-batch")


def test_the_trace_can_be_taken_away(page: Page, plan_path: str) -> None:
    page.goto(plan_path)
    link = page.get_by_role("link", name="Trace for Perfetto")
    trace = page.request.get(str(link.get_attribute("href"))).json()
    stages = {event["tid"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert stages == {0, 1, 2, 3}


def test_a_command_is_copied_with_one_click(browser: Browser, address: str, plan_path: str) -> None:
    context = browser.new_context(base_url=address, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(plan_path)
    page.locator("button.copy").first.click()
    expect(page.locator("button.copy").first).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("meshplan evaluate --model llama-3-70b")
    context.close()


def test_paper_shows_the_plan_and_no_buttons(page: Page, plan_path: str) -> None:
    page.goto(plan_path)
    page.emulate_media(media="print")
    expect(page.locator("#headline")).to_be_visible()
    expect(page.locator(".top nav")).to_be_hidden()
    expect(page.locator("button.copy").first).to_be_hidden()


def test_the_keyboard_reaches_the_content_first(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()


def test_memory_lines_stand_where_the_numbers_say(page: Page, plan_path: str) -> None:
    page.goto(plan_path)
    row = page.locator("#memory-0")
    capacity = row.locator("line.capacity").bounding_box()
    parts = [box for box in (part.bounding_box() for part in row.locator("rect").all()) if box]
    assert capacity is not None
    start = min(box["x"] for box in parts)
    peak = max(box["x"] + box["width"] for box in parts) - start
    share = float(row.locator(".share").inner_text().removesuffix("%")) / 100
    assert peak / (capacity["x"] + capacity["width"] / 2 - start) == pytest.approx(share, abs=0.015)
