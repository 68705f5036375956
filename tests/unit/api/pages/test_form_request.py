import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pages.form_fields import FIELDS, Verb
from api.pages.form_request import FieldFault, faults_by_field, form_request
from api.pages.form_values import FormValues
from api.schemas.problem import FaultDocument


def _document(**texts: str) -> dict[str, object]:
    return form_request(FormValues(texts=texts), verb=Verb.PLAN).document


def _fault(name: str, text: str) -> str:
    said = form_request(FormValues(texts={name: text}), verb=Verb.PLAN)
    return said.unreadable[name][0].detail


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024),
        (" 1,024 ", 1024),
        ("1 024", 1024),
        ("1_024", 1024),
        ("1e3", 1000.0),
        ("8.5", 8.5),
        ("-3", -3),
    ],
)
def test_numbers_may_be_written_as_people_write_them(text: str, value: float) -> None:
    assert _document(global_batch_size=text)["job"] == {"global_batch_size": value}


@pytest.mark.parametrize("text", ["abc", "8 samples", "0x10", "--", "1" * 50])
def test_what_is_no_number_is_said_beside_its_field(text: str) -> None:
    assert _fault("global_batch_size", text).endswith("is not a number")


def test_what_is_neither_yes_nor_no_is_said() -> None:
    assert _fault("sequence_parallel", "maybe") == "“maybe” is neither yes nor no"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("[" * 100_000, "not a document: it is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(text: str, detail: str) -> None:
    assert _fault("model_config", text) == detail


def test_a_model_is_a_preset_or_a_file_as_chosen() -> None:
    both = {"model_preset": "llama-3-8b", "model_config": '{"model_type": "llama"}'}
    assert _document(**both, model_source="preset")["model"] == {"preset": "llama-3-8b"}
    assert _document(**both, model_source="own")["model"] == {"huggingface": {"model_type": "llama"}}


@pytest.mark.parametrize("text", ['{"name": "a"}', '[{"name": "a"}]', '{"node_groups": [{"name": "a"}]}'])
def test_machines_are_a_group_several_or_a_cluster(text: str) -> None:
    assert _document(node_groups=text)["cluster"] == {"node_groups": [{"name": "a"}]}


def test_links_between_groups_come_with_them() -> None:
    cluster = '{"node_groups": [{"name": "a"}, {"name": "b"}], "between_groups": [{"groups": ["a", "b"]}]}'
    assert _document(node_groups=cluster)["cluster"] == json.loads(cluster)


def test_a_node_group_by_its_figures_is_made_whole() -> None:
    figures = {"group_num_nodes": "2", "group_devices_per_node": "4", "group_inside_bandwidth": "300"}
    cluster = _document(cluster_source="own", group_inside="nvlink3", **figures)["cluster"]
    assert isinstance(cluster, dict)
    (group,) = cluster["node_groups"]
    assert (group["num_nodes"], group["devices_per_node"]) == (2, 4)
    assert group["levels"][0]["bandwidth_bytes_per_second"] == 300e9
    assert [level["devices"] for level in group["levels"]] == [4, 8]


def test_a_document_of_machines_counts_before_figures() -> None:
    both = {"node_groups": '{"name": "a"}', "group_num_nodes": "2", "cluster_source": "own"}
    assert _document(**both)["cluster"] == {"node_groups": [{"name": "a"}]}


def test_figures_of_the_source_that_was_not_chosen_do_not_count() -> None:
    both = {"cluster_preset": "h100-sxm", "group_num_nodes": "2", "cluster_source": "preset"}
    assert _document(**both)["cluster"] == {"preset": "h100-sxm"}


def test_adapters_and_images_are_fields_of_the_job() -> None:
    texts = {"trained": "lora", "lora_rank": "8", "lora_targets": "q_proj, v_proj", "base_dtype": "nf4"}
    job = _document(**texts, frozen="vision", images_per_sample="4", image_size="336")["job"]
    assert job == {
        "images_per_sample": 4,
        "image_size": 336,
        "trainable": {
            "kind": "lora",
            "rank": 8,
            "targets": ["q_proj", "v_proj"],
            "base_dtype": "nf4",
            "frozen": ["vision"],
        },
    }


def test_something_else_than_machines_is_left_for_the_service_to_refuse() -> None:
    assert _document(node_groups="3")["cluster"] == {"node_groups": 3}


def test_fixed_choices_constrain_a_search_and_are_the_plan_of_an_evaluation() -> None:
    values = FormValues(texts={"tensor_parallel": "8", "recompute": "full"})
    choices = {"tensor_parallel": 8, "recompute": "full"}
    assert form_request(values, verb=Verb.PLAN).document["constraints"] == {"fixed": choices}
    assert form_request(values, verb=Verb.EVALUATE).document["plan"] == choices


def test_ticked_techniques_are_forbidden() -> None:
    said = form_request(FormValues(forbid=("offload",)), verb=Verb.PLAN)
    assert said.document["constraints"] == {"forbid": ["offload"]}


def test_anything_else_is_laid_over_the_rest() -> None:
    document = _document(
        tensor_parallel="8",
        more='{"constraints": {"bounds": {"pipeline_parallel": [1, 2]}}, "profiles": ["x"]}',
    )
    assert document["constraints"] == {
        "fixed": {"tensor_parallel": 8},
        "bounds": {"pipeline_parallel": [1, 2]},
    }
    assert document["profiles"] == ["x"]


@pytest.mark.parametrize(("text", "detail"), [("[1]", "should be an object: {…}"), ("{", "not JSON")])
def test_anything_else_is_an_object(text: str, detail: str) -> None:
    assert _fault("more", text).startswith(detail)


def test_faults_stand_beside_their_fields_with_what_may_be_clicked() -> None:
    faults = faults_by_field(
        [
            FaultDocument(pointer="/cluster/num_devices", detail="is odd", nearest_legal=(56, 64)),
            FaultDocument(pointer="/model/huggingface/hidden_size", detail="is odd", nearest_legal=(64,)),
            FaultDocument(pointer="/profiles/0", detail="is not there", nearest_legal=("a",)),
            FaultDocument(pointer="/constraints/fixed/sequence_parallel", detail="no", nearest_legal=(True,)),
            FaultDocument(pointer="/cluster/node_groups/0/num_nodes", detail="is missing"),
            FaultDocument(pointer="/job/trainable/rank", detail="goes with lora"),
        ],
        verb=Verb.PLAN,
    )
    assert faults == {
        "num_devices": (FieldFault(detail="is odd", suggestions=("56", "64")),),
        "model_config": (FieldFault(detail="/model/huggingface/hidden_size: is odd"),),
        "": (FieldFault(detail="/profiles/0: is not there"),),
        "sequence_parallel": (FieldFault(detail="no"),),
        "group_num_nodes": (FieldFault(detail="is missing"),),
        "lora_rank": (FieldFault(detail="goes with lora"),),
    }


texts = st.dictionaries(st.sampled_from(sorted(FIELDS)), st.text(max_size=30), max_size=8)


@given(texts=texts, verb=st.sampled_from(Verb))
def test_whatever_is_typed_is_a_document_or_a_fault_beside_its_field(
    texts: dict[str, str], verb: Verb
) -> None:
    said = form_request(FormValues(texts=texts), verb=verb)
    assert set(said.unreadable) <= set(texts)
