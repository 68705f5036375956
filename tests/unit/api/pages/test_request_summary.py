from api.pages.request_summary import machines_name, model_name, request_summary, words
from tests.unit.api.pages.documents import request


def test_a_request_is_a_model_on_machines_and_some_facts() -> None:
    summary = request_summary(request())
    assert (summary.model, summary.machines) == ("llama-3-70b", "64 × h100-sxm")
    facts = dict(summary.facts)
    assert facts["global batch"] == "1,024 samples"
    assert facts["without"] == "offload"


def test_what_is_fixed_and_bounded_is_said() -> None:
    document = request()
    document["constraints"] |= {
        "fixed": {"tensor_parallel": 8},
        "bounds": {"pipeline_parallel": [1, 8]},
        "forbid": [],
    }
    facts = dict(request_summary(document).facts)
    assert facts["fixed tensor parallel"] == "8"
    assert facts["pipeline parallel"] == "1 to 8"
    assert "without" not in facts


def test_a_fixed_object_is_said_in_words() -> None:
    document = request()
    document["constraints"]["fixed"] = {
        "schedule": {"name": "zb-v", "virtual_stages": None},
        "recompute": {"mode": "selective", "modules": ["mlp"]},
        "offload": {"optimizer": {"cpu": 0.5, "nvme": 0.0}},
    }
    facts = dict(request_summary(document).facts)
    assert facts["fixed schedule"] == "zb-v"
    assert facts["fixed offload"] == "optimizer 50% on the cpu"
    assert facts["fixed recompute"] == "mode selective, modules mlp"


def test_what_is_trained_and_seen_is_said() -> None:
    document = request()
    document["job"] |= {
        "images_per_sample": 4,
        "image_size": 336,
        "trainable": {
            "kind": "lora",
            "rank": 8,
            "targets": ["q_proj"],
            "base_dtype": "nf4",
            "frozen": ["head"],
        },
    }
    facts = dict(request_summary(document).facts)
    assert facts["images"] == "4 per sample"
    assert facts["image size"] == "336 pixels"
    assert facts["trained"] == "adapters of rank 8 on q_proj over nf4 weights"
    assert facts["frozen"] == "head"


def test_a_workload_without_a_sequence_has_no_sequence() -> None:
    document = request()
    document["job"]["sequence_length"] = None
    assert "sequence" not in dict(request_summary(document).facts)


def test_a_model_is_called_by_its_preset_its_own_name_or_its_kind() -> None:
    assert model_name({"preset": "llama-3-8b", "num_layers": 8}) == "llama-3-8b (8 layers)"
    assert model_name({"huggingface": {"_name_or_path": "acme/tiny"}}) == "acme/tiny (own configuration)"
    assert model_name({"huggingface": {"model_type": "llama"}}) == "llama (own configuration)"
    assert model_name({"layers": []}) == "layers (own configuration)"


def test_machines_are_counted_by_group() -> None:
    groups = [
        {"num_nodes": 2, "devices_per_node": 8, "device": "H100-SXM5-80GB"},
        {"num_nodes": 1, "devices_per_node": 4, "device": {"name": "mine"}},
    ]
    assert machines_name({"node_groups": groups}) == "16 × H100-SXM5-80GB + 4 × mine"


def test_words_of_the_contract_read_as_words() -> None:
    assert words("tensor_parallel") == "tensor parallel"
