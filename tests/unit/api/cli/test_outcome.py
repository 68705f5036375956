"""How a command ends."""

import pytest

from api.cli.outcome import EXIT_CODES, ExitCode, problems_told
from planner.errors import InvalidRequest
from planner.plan import Status


def test_every_status_has_the_exit_code_of_the_contract() -> None:
    assert EXIT_CODES == {
        Status.OPTIMAL: 0,
        Status.FEASIBLE: 0,
        Status.FITS: 0,
        Status.INFEASIBLE: 1,
        Status.DOES_NOT_FIT: 1,
        Status.ILLEGAL: 2,
        Status.UNKNOWN: 3,
    }


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InvalidRequest("is odd", pointer="/job"), ExitCode.BAD_INPUT, "/job: is odd"),
        (ArithmeticError("seven is not eight"), ExitCode.MISTAKE, "ArithmeticError: seven is not eight"),
        (TimeoutError("the time is over"), ExitCode.NO_PLAN_IN_TIME, "the time is over"),
        (MemoryError(), ExitCode.UNAVAILABLE, "more memory"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ""),
    ],
)
def test_what_goes_wrong_is_told_without_a_traceback(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, problems_told(as_json=False):
        raise error
    assert ended.value.code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_a_field_at_fault_is_told_with_the_option_that_fills_it(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"/cluster/num_devices": "--cluster NAME:DEVICES"}
    with pytest.raises(SystemExit), problems_told(as_json=False, options=options):
        raise InvalidRequest("is missing", pointer="/cluster/num_devices")
    assert "by option: --cluster NAME:DEVICES" in capsys.readouterr().err
    with pytest.raises(SystemExit), problems_told(as_json=False, options=options):
        raise InvalidRequest("is odd", pointer="/job")
    assert "by option" not in capsys.readouterr().err
