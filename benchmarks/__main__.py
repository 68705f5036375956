"""Run every benchmark of this folder: ``python -m benchmarks [name ...]``."""

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent

for path in sorted(FOLDER.glob("*.py")):
    if path.stem.startswith("_") or (sys.argv[1:] and path.stem not in sys.argv[1:]):
        continue
    purpose = path.read_text("utf-8").splitlines()[0].strip('"')
    print(f"\n{path.stem}: {purpose}")
    runpy.run_path(str(path), run_name="__main__")
