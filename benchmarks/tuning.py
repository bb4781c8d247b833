"""What `compact tune` finds on each kind of real transcript, judged on those held back. `make bench-tune`.

Owns: the measurements. Must never: use a network, or write outside a temporary directory.

Each file of the shared transcripts is a kind. The window is a quarter of each transcript besides its instructions. A
kind counts when the policy that was found is better than the default on cost or fidelity and no worse on the other, on
transcripts that the search did not see. Names of kinds on the command line measure only these.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from compact.importers import read_logs
from compact.replay import Setting, Window, processes
from compact.replay.tune import tune

SHARED = Path(__file__).resolve().parents[2] / "shared" / "transcripts"
BAR = 4
CANDIDATES = 48


def main() -> None:
    """Tune on each kind."""
    files = sorted(SHARED.glob("*.jsonl.gz"))
    if not files:
        sys.exit(f"there are no transcripts in {SHARED}; this benchmark needs them")
    wanted = sys.argv[1:]
    better = kinds = 0
    for file in files:
        kind = file.name.partition(".")[0]
        if wanted and kind not in wanted:
            continue
        started = time.perf_counter()
        setting = Setting(Window(share=0.25), model="gpt-4o")
        tuned = tune(read_logs([str(file)]), setting, engine=processes(os.cpu_count() or 1), candidates=CANDIDATES)
        (held,) = tuned.held
        kinds += 1
        better += held.better
        print(f"{held}", flush=True)
        print(f"    on the others: {tuned.trained}")
        print(f"    {tuned.changes or 'nothing better found'}, {time.perf_counter() - started:.0f} s", flush=True)
    print(f"better on {better} of {kinds} kinds (bar {BAR} of 6)")


if __name__ == "__main__":
    main()
