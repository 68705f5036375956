"""How far searches have come: one small file for each, written by the worker, read by the service."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from api.jobs.answering import OnProgress
from api.schemas.result import ProgressDocument
from planner.planning import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressFiles:
    """Progress by request in a folder; a worker that dies at any moment leaves it readable."""

    folder: Path

    def writer(self, request_id: UUID) -> OnProgress:
        """Return what keeps the progress of a request, each time replacing what was there."""
        path = self._path(request_id)

        def write(progress: Progress) -> None:
            beside = path.with_suffix(".writing")
            beside.write_text(ProgressDocument.from_progress(progress).model_dump_json())
            beside.replace(path)

        return write

    def read(self, request_id: UUID) -> ProgressDocument | None:
        """Return the newest progress of a request, None where nothing was said yet."""
        try:
            text = self._path(request_id).read_text()
        except FileNotFoundError:
            return None
        return ProgressDocument.model_validate_json(text)

    def forget(self, request_id: UUID) -> None:
        """Delete the progress of a request that is done."""
        self._path(request_id).unlink(missing_ok=True)

    def _path(self, request_id: UUID) -> Path:
        return self.folder / f"{request_id}.json"
