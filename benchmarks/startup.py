"""CPU seconds of starting: the version, the planner's modules, the first plan of a new process."""

import resource
import subprocess
import sys
import tempfile

COMPILED = "import sys; sys.dont_write_bytecode = False; "
"""Whatever the environment says: an installed program is compiled."""
COMMAND = f"{COMPILED}from api.cli import main; main()"
COMMANDS = (
    ("meshplan --version", ("-c", COMMAND, "--version")),
    ("import planner.planning", ("-c", f"{COMPILED}import planner.planning")),
    (
        "meshplan plan: llama-3-8b on 8 x h100-sxm",
        (
            *("-c", COMMAND, "plan", "--model", "llama-3-8b", "--cluster", "h100-sxm:8"),
            *("--global-batch", "128", "--sequence", "8192"),
        ),
    ),
)


def children_seconds() -> float:
    """Return the CPU time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run each command once to compile its modules, then print what the second run takes."""
    with tempfile.TemporaryDirectory() as folder:
        python = [sys.executable, "-X", f"pycache_prefix={folder}"]
        for name, arguments in COMMANDS:
            for _ in range(2):
                before = children_seconds()
                subprocess.run([*python, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
                taken = children_seconds() - before
            print(f"{name:46} {taken:6.2f}")


if __name__ == "__main__":
    main()
