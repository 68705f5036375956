"""The picture of the plan page for the README: ``python -m tests.acceptance.picture``."""

import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect

from tests.acceptance.running import running_browser, running_service

PICTURE: Final = Path(__file__).parents[2] / "docs" / "plan-page.png"
FORM: Final = "/?example=llama-3-70b-64-h100&time_limit_seconds=150"
WIDTH: Final = 1280
SHARPNESS: Final = 2
MARGIN: Final = 16
SOLVED_MILLISECONDS: Final = 180_000


def take_picture(page: Page, target: Path) -> None:
    """Plan an example and save the page down to its timeline."""
    page.goto(FORM)
    page.get_by_role("button", name="Find the best plan").click()
    page.locator("#verdict").wait_for(timeout=SOLVED_MILLISECONDS)
    expect(page.locator("#verdict")).to_contain_text("Proven optimal")
    timeline = page.locator("#timeline").bounding_box()
    assert timeline is not None
    height = timeline["y"] + timeline["height"] + MARGIN
    target.parent.mkdir(exist_ok=True)
    page.screenshot(path=target, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def main() -> None:
    """Start the service and a browser, and take the picture."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(Path(folder)) as address,
        running_browser() as browser,
    ):
        page = browser.new_page(
            base_url=address,
            viewport={"width": WIDTH, "height": 900},
            device_scale_factor=SHARPNESS,
            color_scheme="light",
        )
        take_picture(page, PICTURE)


if __name__ == "__main__":
    main()
