"""What only a GPU can tell of aot-cudagraphs, in two phases of under four minutes each.

    python benchmarks/gpu/cudagraphs.py --phase A     does CUDA refuse what our table refuses, and nothing else?
    python benchmarks/gpu/cudagraphs.py --phase B     how fast are replays, against eager and torch's own ways?

Both run from the sources, print what they have found as they go, and go on where they were stopped if given the same
``--state``. ``--help`` after a phase shows its options.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT / "packages" / name / "src") for name in ("aot-core", "aot-cudagraphs")]
PHASES = {"A": "cudagraphs_refusals", "B": "cudagraphs_speed"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
    )
    parser.add_argument("--phase", choices=sorted(PHASES), required=True)
    options, rest = parser.parse_known_args()
    # For this process and for those that it starts.
    sys.path[:0] = [str(Path(__file__).parent), *SOURCES]
    os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])
    return int(importlib.import_module(PHASES[options.phase]).main(rest))


if __name__ == "__main__":
    sys.exit(main())
