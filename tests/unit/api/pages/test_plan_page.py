import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from api.pages.plan_page import PlanPage, plan_page
from api.pages.rendering import page_response
from planner.plan import TimelineEvent
from tests.unit.api.pages.documents import evaluated, illegal, infeasible, plan, planned, solved_again
from tests.unit.api.pages.timelines import timeline

HOSTILE = "<script>alert(1)</script>\"'&"
VOID = {"meta", "link", "input", "br"}
PAGES = {
    "plan": (planned(), False, timeline(virtual_stages=5, num_micro_batches=256)),
    "solved-again": (solved_again(), False, ()),
    "evaluation": (evaluated(), True, timeline()),
    "illegal": (illegal(), True, ()),
    "infeasible": (infeasible(), False, ()),
}


class Elements(HTMLParser):
    """The elements of a page; every start tag must find its end tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fragments: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.attributes |= set(named)
        if named.get("id"):
            self.ids.append(str(named["id"]))
        if str(named.get("href", "")).startswith("#"):
            self.fragments.append(str(named["href"])[1:])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _page(document: dict[str, Any], *, is_evaluation: bool, events: tuple[TimelineEvent, ...]) -> PlanPage:
    return plan_page(document, is_evaluation=is_evaluation, timeline=events, base_url="http://host/")


def _html(document: dict[str, Any], *, is_evaluation: bool, events: tuple[TimelineEvent, ...]) -> str:
    page = _page(document, is_evaluation=is_evaluation, events=events)
    return bytes(page_response("plan.html", here="/plans", page=page, shown_stages=16).body).decode()


@pytest.mark.parametrize(("document", "is_evaluation", "events"), PAGES.values(), ids=list(PAGES))
def test_a_page_is_well_formed_and_every_link_into_it_arrives(
    document: dict[str, Any],
    is_evaluation: bool,  # noqa: FBT001
    events: tuple[TimelineEvent, ...],
) -> None:
    elements = Elements(_html(document, is_evaluation=is_evaluation, events=events))
    assert len(set(elements.ids)) == len(elements.ids)
    assert set(elements.fragments) <= set(elements.ids)


@pytest.mark.parametrize(("document", "is_evaluation", "events"), PAGES.values(), ids=list(PAGES))
def test_a_page_needs_no_inline_style_or_script(
    document: dict[str, Any],
    is_evaluation: bool,  # noqa: FBT001
    events: tuple[TimelineEvent, ...],
) -> None:
    html = _html(document, is_evaluation=is_evaluation, events=events)
    attributes = Elements(html).attributes
    assert "style" not in attributes
    assert not [name for name in attributes if name.startswith("on")]
    assert re.findall(r"<script[^>]*>[^<]", html) == []


def test_the_page_of_a_large_plan_stays_below_a_megabyte() -> None:
    events = timeline(num_stages=64, num_micro_batches=512)
    assert len(_html(planned(), is_evaluation=False, events=events)) < 1_000_000


def test_names_are_escaped_wherever_they_stand() -> None:
    document = planned()
    document["request"] |= {
        "model": {"huggingface": {"_name_or_path": HOSTILE}},
        "cluster": {
            "node_groups": [
                {
                    "name": HOSTILE,
                    "num_nodes": 8,
                    "devices_per_node": 8,
                    "device": HOSTILE,
                    "levels": [
                        {
                            "name": HOSTILE,
                            "devices": 64,
                            "bandwidth_bytes_per_second": 1e9,
                            "latency_seconds": 0,
                        }
                    ],
                }
            ]
        },
    }
    document["plan"]["stages"][0]["placement"][0]["node_group"] = HOSTILE
    document["prediction"]["memory"][0]["node_group"] = HOSTILE
    document["prediction"]["breakdown_seconds"][HOSTILE] = 1.0
    document["profiles"][0]["name"] = HOSTILE
    document["explanation"].append({"text": HOSTILE, "pointer": HOSTILE})
    document["alternatives"][0]["why"] = HOSTILE
    document["warnings"].append(HOSTILE)
    html = _html(document, is_evaluation=False, events=timeline())
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;") >= 8


def test_an_illegal_plan_shows_rules_and_no_numbers() -> None:
    page = _page(illegal(), is_evaluation=True, events=())
    assert (page.plan, page.prediction, page.timeline) == (None, None, None)
    assert [row.field for row in page.violations] == ["tensor parallel"]


def test_a_page_leads_to_the_same_result_for_programs() -> None:
    assert _page(planned(), is_evaluation=False, events=()).api_path.startswith("/v1/plans/")
    assert _page(evaluated(), is_evaluation=True, events=()).api_path.startswith("/v1/evaluations/")
    assert json.loads(_page(planned(), is_evaluation=False, events=()).result_json) == planned()


def test_many_stages_are_folded() -> None:
    document = planned()
    document["plan"]["stages"] = [plan()["stages"][0] | {"stage": stage} for stage in range(40)]
    assert "<summary>24 more</summary>" in _html(document, is_evaluation=False, events=())
