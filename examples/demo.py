"""The main job, offline: a day of a coding agent (about 200k tokens) through a window of 32k.

    make demo

The transcript is replayed as the agent would have lived it: before each model call, `preflight`. Nothing is sent
anywhere; the archive goes to `.compact/demo`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from demo_transcript import build

from compact import CompactConfig, CompactManager
from compact.testing import Recorder

WINDOW = 32_000
ARCHIVE = Path(".compact/demo")
BARS = " ▁▂▃▄▅▆▇█"


def main() -> None:
    """Replay the transcript and tell what happened."""
    transcript = build()
    shutil.rmtree(ARCHIVE, ignore_errors=True)
    config = CompactConfig(model="gpt-4o", max_context_tokens=WINDOW, storage={"path": str(ARCHIVE)})
    recorder = Recorder()
    with CompactManager(config, sinks=[recorder]) as manager:
        whole = manager.should_compact("whole", transcript).usage.total
        context, calls = replay(manager, transcript)
        left = manager.should_compact("demo", context).usage.total
        session = manager.session("demo")

    print(f"\n  {len(transcript)} messages, {whole:,} tokens, through a window of {WINDOW:,} in {calls} model calls\n")
    plot([event.data["t_est"] for event in recorder["token_estimate"]], config)
    print("\n  fold  why            tokens           messages   kept: pinned  turns  tool pairs   summary")
    for fold, pruned, summary in zip(
        session.folds, recorder["pruned_messages"], recorder["summary_created"], strict=True
    ):
        data, kept = pruned.data, pruned.data["kept"]
        print(
            f"  {fold.step:>4}  {fold.reasons[0]:<12} {fold.tokens_before:>7,} → {fold.tokens_after:>6,}"
            f"   {data['messages_before']:>4} → {data['messages_after']:>3}"
            f"   {kept['pinned']:>12}  {kept['recent_turns']:>5}  {kept['tool_pairs']:>10}"
            f"   {summary.data['summary_tokens']:>5,} tokens"
        )
    files = sorted(path for path in ARCHIVE.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    print(f"\n  archived   {len(files)} files, {size / 1e6:.1f} MB in {ARCHIVE}/demo, secrets redacted")
    print(f"  went out   {len(context)} messages, {left:,} tokens, every request within {config.budget:,}")
    print("  the model now reads, in place of what was folded:\n")
    shown = next(m["content"] for m in context if str(m.get("content")).startswith("<COMPACT-SUMMARY"))
    print("\n".join(f"    {line}" for line in shown.splitlines()))
    print(f"\n  the first transcript, whole:  {first_transcript(files)}")
    print(f"  look at every compaction in a page:  {viewer()} view {ARCHIVE}\n")


def replay(manager: CompactManager, transcript: list[dict]) -> tuple[list[dict], int]:
    """Let the conversation grow message by message, with `preflight` before each thing the model said."""
    context: list[dict] = []
    calls = 0
    for done, message in enumerate(transcript):
        if message["role"] == "assistant":
            context = manager.preflight("demo", context)
            calls += 1
            if sys.stderr.isatty():
                print(f"\r  replaying {done:>4} of {len(transcript)} messages", end="\r", file=sys.stderr)
        context.append(message)
    return context, calls


def plot(usage: list[int], config: CompactConfig) -> None:
    """Tokens before each model call, against the window."""
    width, rows = 100, 6
    step = max(1, -(-len(usage) // width))
    columns = [max(usage[i : i + step]) for i in range(0, len(usage), step)]
    for row in range(rows, 0, -1):
        line = "".join(BARS[max(0, min(8, round((8 * rows * tokens / WINDOW) - 8 * (row - 1))))] for tokens in columns)
        note = f" ← {config.trigger_line:,} trigger" if row == 6 else ""
        print(f"  {WINDOW * row // rows:>6,} │{line}{note}")
    print(f"         └{'─' * len(columns)} model calls")


def first_transcript(files: list[Path]) -> Path:
    """Where the messages before the first fold are."""
    return next(path for path in files if path.name == "transcript-pre-compact-001.jsonl")


def viewer() -> str:
    """The command beside this interpreter, as somebody would type it here."""
    command = Path(sys.executable).with_name("compact")
    return os.path.relpath(command) if command.exists() else "compact"


if __name__ == "__main__":
    main()
