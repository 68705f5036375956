import csv
import json
from pathlib import Path

from tests.unit.api.cli.commands import Command
from tests.unit.api.machines import machine_profile


def test_exported_profile_can_be_imported_again(meshplan: Command) -> None:
    meshplan("profiles", "import", "-", given=json.dumps(machine_profile()))
    exported = meshplan("profiles", "export", "cpu-small/measured")

    assert exported.document["facts"] == machine_profile()["facts"]
    again = meshplan("profiles", "import", "-", given=exported.output)
    assert "was there already" in again.output


def test_table_has_a_line_for_each_row(meshplan: Command, tmp_path: Path) -> None:
    source, target = tmp_path / "profile.json", tmp_path / "table.csv"
    profile = machine_profile(transfers=[{"operation": "h2d", "payload_bytes": 8, "bytes_per_second": 2.0}])
    source.write_text(json.dumps(profile))
    ended = meshplan("profiles", "export", str(source), "--format", "csv", "--output", str(target))

    assert ended.code == 0
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert [row["list"] for row in rows] == ["kernels"] * 3 + ["collectives"] * 2 + ["transfers"]
    assert {row["operator"] for row in rows} == {"matrix_product", "add", ""}
    product = next(row for row in rows if row["operator"] == "matrix_product")
    assert json.loads(product["shape"]).keys() == {"m", "n", "k"}
    assert float(product["seconds"]) > 0


def test_name_that_is_not_there_gets_the_nearest(meshplan: Command) -> None:
    ended = meshplan("profiles", "export", "h100-sxm/publish")

    assert ended.code == 2
    assert "h100-sxm/published" in ended.errors
