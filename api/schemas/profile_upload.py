"""How far an upload of a profile has come."""

from pydantic import Field

from api.schemas.document import EXPERIMENTAL, OutputDocument


class UploadDocument(OutputDocument):
    """The chunks of an upload that the service has."""

    digest: str = Field(json_schema_extra=EXPERIMENTAL)
    chunks: tuple[int, ...] = Field(json_schema_extra=EXPERIMENTAL, description="Their numbers, from 0.")
