"""Calibrations: a machine's own factors on kernels and links, from steps that ran on it."""

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from api.dependencies import CurrentService
from api.jobs.calibrating import calibrate_machine
from api.routes.profiles import PATH as PROFILES_PATH
from api.schemas.calibration import CalibrationDocument, CalibrationRequestDocument

router = APIRouter(prefix="/v1/calibrations", tags=["profiles"])

PATH: Final = "/v1/calibrations"


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=CalibrationDocument,
    responses={HTTPStatus.OK: {"model": CalibrationDocument, "description": "A dry run: nothing is stored"}},
)
def create_calibration(document: CalibrationRequestDocument, service: CurrentService) -> Response:
    """Fit a machine's own factors to three or more steps, and store them as a profile for its plans."""
    found = calibrate_machine(document, workspace=service.workspace)
    is_stored = found.digest is not None
    return JSONResponse(
        found.model_dump(mode="json"),
        status_code=HTTPStatus.CREATED if is_stored else HTTPStatus.OK,
        headers={"Location": f"{PROFILES_PATH}/{found.name}"} if is_stored else {},
    )
