"""The log says on which request a line was written."""

import logging

from api.request_ids import RequestIdFilter, current_request_id


def test_outside_of_requests_there_is_no_id() -> None:
    record = logging.LogRecord("api", logging.INFO, __file__, 1, "started", None, None)
    assert RequestIdFilter().filter(record)
    assert vars(record)["request_id"] == "-"
    assert current_request_id() is None
