from planner.profile import Profile, builtin_profile
from planner.profile_check import check_profile
from tests.unit.planner.cost.machines import bench_profile
from tests.unit.planner.profile_documents import profile_document


def test_a_profile_is_checked_against_itself_and_its_relatives() -> None:
    check = check_profile(builtin_profile("l4/published"))
    assert (check.name, check.device, check.rows) == ("l4/published", "L4-24GB", 2029)
    rows = {one.kind: one for one in check.rows_left_out}
    device = {one.kind: one for one in check.device_left_out}
    kind = "matrix_product fp32 forward"
    # Its power limit shows in its own rows alone.
    assert rows[kind].median_abs_error < 0.1 < device[kind].median_abs_error
    assert device[kind].bias < -0.3


def test_hosts_have_no_figures_to_check() -> None:
    check = check_profile(builtin_profile("hosts/published"))
    assert check.rows_left_out == check.device_left_out == ()


def test_a_measured_machine_is_checked_by_what_it_says_of_itself() -> None:
    document = profile_document(facts={"device": {"memory_bytes": 2**34}, "processes": 1})
    document["kernels"] = bench_profile().to_document()["kernels"]
    check = check_profile(Profile.from_document(document), others=())
    kinds = [one.kind for one in check.rows_left_out]
    assert kinds == ["matrix_product fp32 forward, scattered", "add forward"]
    unknown = Profile.from_document(profile_document())
    assert check_profile(unknown, others=()).rows_left_out == ()
