"""The layouts: which messages each keeps and compacts, and the reason of each.

`golden/layouts.txt` has the plan of every layout for some conversations, `golden/why.txt` the reason of each message;
`make golden` writes the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from project_paths import GOLDEN

from compact import CompactConfig, CompactManager, Plan
from compact.testing import chat, shape


def golden_rows() -> list[tuple[str, str, str, str]]:
    """Layout, policy, pattern and expected plan of each row."""
    lines = [line for line in (GOLDEN / "layouts.txt").read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(part.strip() for part in line.split("|")) for line in lines]  # type: ignore[misc]


def policy_from(text: str) -> dict[str, Any]:
    """A policy from `name=value` pairs; roles are separated by commas, and none may be given."""
    given = dict(pair.split("=") for pair in text.split())
    roles = given.pop("roles_never_prune", None)
    return {**given, **({} if roles is None else {"roles_never_prune": [role for role in roles.split(",") if role]})}


def plan_of(layout: str, policy: str, messages: list[dict[str, Any]]) -> Plan:
    """The plan of a manager whose window is large enough for the whole conversation."""
    config = CompactConfig(
        max_context_tokens=100_000, policy={"layout": layout, **policy_from(policy)}, storage={"adapter": "none"}
    )
    with CompactManager(config) as manager:
        return manager.plan("s", messages)


def reasons() -> Iterator[str]:
    """For every row of the table of layouts, why each message stays or goes."""
    for layout, policy, pattern, _ in golden_rows():
        plan = plan_of(layout, policy, chat(pattern))
        yield f"{layout} | {policy} | {pattern} | " + ", ".join(plan.why[i] for i in sorted(plan.why))


@pytest.mark.spec("S12", "S13", "L05", "L06", "L18", "P2")
@pytest.mark.parametrize(("layout", "policy", "pattern", "expected"), golden_rows())
def test_layouts_choose_what_the_golden_table_says(layout: str, policy: str, pattern: str, expected: str) -> None:
    """Each row of the table is the plan of that layout and policy for that conversation."""
    messages = chat(pattern)
    assert expected == shape(plan_of(layout, policy, messages), messages)


def test_a_plan_says_why_as_before() -> None:
    """Each message of each row has its reason."""
    assert "\n".join(reasons()) + "\n" == (GOLDEN / "why.txt").read_text("utf-8")


if __name__ == "__main__":
    (GOLDEN / "why.txt").write_text("\n".join(reasons()) + "\n", "utf-8")
