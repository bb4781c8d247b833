"""The report of the replay lab: on a terminal, as JSON, and as a page in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from browser import Visit, chromium
from hypothesis import given
from hypothesis import strategies as st
from project_paths import ROOT
from rich.console import Console
from typer.testing import CliRunner

from compact import CompactConfig
from compact.cli.commands import app
from compact.cli.replay import _show_tuned, _tuning_value
from compact.importers import Conversation
from compact.replay import Comparison, Lab, Setting, Sums, Trial, Window, replay, summed
from compact.replay.html_page import page
from compact.replay.number_format import money, percent, seconds, short
from compact.replay.plots import PlotLine, line_plot, thin_out
from compact.replay.report import COLUMNS, findings, report_value
from compact.replay.svg import Box, labels, ticks
from compact.replay.table import report_parts
from compact.replay.tune import Reason, TuningResult, Verdict
from compact.testing import chat

EVIL = "</script><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>]]></style>\x1b[31m\u202e"
SETTING = Setting(Window.parse("25%"), "gpt-4o")


def forgetful() -> Conversation:
    """A conversation whose agent comes back, late, to what was said early; every text is hostile."""
    orders = [f"ORD-{7000 + 13 * i}-XK" for i in range(60)]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Help."}]
    for start in range(0, 60, 5):
        told = " ".join(f"{order} {EVIL}" for order in orders[start : start + 5])
        messages += [{"role": "user", "content": f"Remember {told}"}, {"role": "assistant", "content": "Done. " * 40}]
    messages += [{"role": "user", "content": "Which were they?"}, {"role": "assistant", "content": " ".join(orders)}]
    return Conversation(f"id {EVIL}", messages, f"logs/a&b{EVIL}.jsonl", "plain")


def ran() -> Lab:
    others = [Conversation(f"chat-{n}", chat("s" + "utra" * n), "others.jsonl", "plain") for n in (6, 8)]
    config = CompactConfig(counter="chars")
    trials = [Trial("default", config), Trial(f"<b>{EVIL}", config.changed(layout="rolling"))]
    return replay([*others, forgetful()], trials, SETTING)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ran() as lab:
        yield lab


@pytest.fixture(scope="module")
def made(lab: Lab) -> str:
    return page(lab, summed(lab))


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


# The page


def test_the_page_asks_nobody_and_holds_no_script(made: str) -> None:
    """Whatever a transcript, a policy or a file is called: no element and no attribute but ours."""
    elements = Elements(made).found
    allowed = set(
        "html head meta title style body main header h1 h2 h3 p ul li section div table thead tbody tr th td svg bdi "
        "span circle polygon path text rect figure figcaption input label a article b i mark small code details "
        "summary pre dl dt dd".split()
    )
    assert {tag for tag, _ in elements} <= allowed
    names = {name for _, attributes in elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "srcset", "style", "xlink:href")}
    assert {attributes["href"][:8] for _, attributes in elements if "href" in attributes} == {"#moment-"}
    assert "&lt;/script&gt;" in made
    (policy,) = (a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", made, re.S)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" == policy
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_every_link_and_label_leads_somewhere(lab: Lab, made: str) -> None:
    elements = [attributes for _, attributes in Elements(made).found]
    ids = [one["id"] for one in elements if "id" in one]
    assert len(ids) == len(set(ids))
    links = [str(one["href"]) for one in elements if "href" in one]
    assert [f"#moment-{n}" for n in range(1, len(summed(lab).worst) + 1)] == links
    assert {link[1:] for link in links} | {str(one["for"]) for one in elements if "for" in one} == set(ids)
    assert 3 == sum("for" in one for one in elements)


def test_a_moment_says_what_was_lost_where_and_what_stood_there_instead(lab: Lab, made: str) -> None:
    worst = next(one for one in summed(lab).worst if one.conversation.startswith("id "))
    article = made[made.index('<article id="moment-1">') :].partition("</article>")[0]
    fact, at, _ = worst.moment.lost[0]
    assert f"<mark>{fact}</mark>" in article
    assert f"last in message {at}" in article
    assert f'<mark title="message {at}">u</mark>' in article
    assert "COMPACT-SUMMARY" in article
    assert f"Of {worst.moment.before:,} tokens {worst.moment.after:,} were sent" in article


def test_numbers_of_the_page_are_those_of_the_json(lab: Lab, made: str) -> None:
    report = json.loads(json.dumps(report_value(lab, summed(lab))))
    assert {trial.name: trial.fingerprint for trial in lab.trials} == report["fingerprints"]
    assert "25%" == report["setting"]["window"]
    rows = Elements(made).rows
    names = rows[0][1:]
    table = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows[1:4]}
    for sums in report["policies"]:
        (shown,) = (row for name, row in table.items() if name.removesuffix("best edge") == sums["policy"])
        assert f"{sums['sent']:,}" == shown["tokens sent"]
        assert money(sums["cost"]) == shown["cost"]
        assert percent(sums["saved"] / sums["untouched_cost"]) == shown["saved"]
        assert percent(sums["fidelity"]) == shown["fidelity"]
        assert percent(sums["cached"] / sums["sent"]) == shown["cached"]
        for name in ("folds", "largest", "over", "refused", "invalid", "loops"):
            assert f"{sums[name]:,}" == shown[name], name
    assert f"{report['policies'][0]['untouched_sent']:,}" == table["untouched"]["tokens sent"]
    for finding in report["findings"]:
        assert finding in unescape(made)


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(made: str) -> None:
    """But for what was measured, which has a class of its own."""

    def decided(text: str) -> str:
        return re.sub(r'<td class="measured">[^<]*</td>', "", text)

    with ran() as again:
        text = page(again, summed(again))
    assert decided(made) == decided(text)
    assert made.count('class="measured"') == 6


def test_the_palette_is_the_viewers() -> None:
    def colours(path: str) -> dict[str, str]:
        text = (ROOT / "src" / "compact" / path).read_text("utf-8")
        return dict(re.findall(r"(--[a-z-]+): ([^;]+);", text.partition("}")[0]))

    viewer = colours("viewer/static/app.css")
    report = colours("replay/page/report.css")
    assert len(report) > 15
    assert report == {name: viewer[name] for name in report}


@pytest.mark.slow
def test_in_a_browser(made: str, tmp_path: Path) -> None:
    """Light and dark, wide and on a phone: nothing to scroll sideways, nobody asked, no complaint; choices work."""
    (tmp_path / "report.html").write_text(made, "utf-8")
    with chromium() as browser:
        for width, scheme in ((1280, "light"), (400, "dark")):
            visit = Visit(browser, f"file://{tmp_path}", viewport={"width": width, "height": 900}, color_scheme=scheme)
            shown = visit.open("report.html")
            assert width == shown.evaluate("document.documentElement.scrollWidth")
            assert [True, False, False] == [one.is_visible() for one in shown.locator("figure").all()]
            shown.click("label[for=course-2]")
            assert [False, True, False] == [one.is_visible() for one in shown.locator("figure").all()]
            plot = shown.locator("figure svg.plot >> visible=true")
            assert 1 == plot.count()
            assert plot.bounding_box()["width"] > 0.7 * width
            shown.click("a[href='#moment-1']")
            assert 0 <= shown.locator("#moment-1").bounding_box()["y"] < 900
            assert len(shown.screenshot()) > 10_000
            assert [] == visit.wrong
            assert {f"file://{tmp_path}/report.html"} == {url.partition("#")[0] for url in visit.requests}
            visit.context.close()


# The terminal


@pytest.mark.parametrize("width", [80, 140])
def test_the_tables_fit_the_terminal(lab: Lab, width: int) -> None:
    screen = Console(file=StringIO(), width=width, highlight=False, markup=False)
    comparison = summed(lab)
    for part in report_parts(comparison, SETTING, width, by_source=True):
        screen.print(part)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    rows = text.splitlines()
    assert max(map(len, rows)) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text
    for name in ("untouched", "default", "fidelity", "slowest", f"{comparison.policies[0].sent:,}"):
        assert name in text
    heads = [row for row in rows if row.startswith("policy")]
    assert (1 if width == 140 else 2) == len(heads)


def compared(*policies: Sums) -> Comparison:
    return Comparison(list(policies), {"a": list(policies)}, edge=[policies[0].policy])


FINE = {"conversations": 4, "calls": 20, "sent": 9000, "cached": 100, "needs": 5, "cost": 1.0, "untouched_cost": 2.0}


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        (
            {"cost": 2.5, "dearer": 3},
            "bad",
            r"p: it costs more than it saves, \$0.5000 \(25.0%\) more .* in 3 of 4",
        ),
        ({"dearer": 1}, "warn", r"it costs more than it saves in 1 of 4 conversations \(1 in a\), .* saves \$1.00"),
        ({"over": 2}, "bad", r"2 of 20 requests were over the window.*\(2 in a\)"),
        ({"refused": 1}, "warn", "at 1 of 20 calls no plan fitted the budget"),
        ({"invalid": 1}, "bad", "1 list would be refused"),
        ({"failed": 2}, "bad", "2 of 6 conversations could not be replayed"),
        ({"folds": 4, "loops": 3}, "warn", "3 of 4 compactions followed another one at once"),
        ({"folds": 4, "fallbacks": 1}, "warn", "in 1 of 4 compactions the summary failed"),
        ({"cost": None, "untouched_cost": None}, "warn", "The price of gpt-4o is not known"),
        ({"cost": None}, "warn", "The price of the summarizer of p is not known"),
        ({"untouched_over": 7}, "note", "Untouched, 7 of 20 requests would have been over the window"),
        ({"cached": 0}, "note", "Nothing was found in the provider's cache"),
        ({"needs": 0}, "note", "fidelity cannot be measured"),
    ],
)
def test_findings(changes: dict[str, Any], kind: str, said: str) -> None:
    """What a reader must not overlook is said, and nothing else is."""
    assert [] == findings(compared(Sums("p", **FINE)), SETTING)
    (found,) = findings(compared(Sums("p", **(FINE | changes))), SETTING)
    assert kind == found.kind
    assert re.search(said, found.text)


def test_the_best_edge_is_named() -> None:
    comparison = compared(Sums("a", **FINE), Sums("b", **FINE))
    assert "the cheapest first: a. Beaten: b." in findings(comparison, SETTING)[0].text


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        (money, None, "–"), (money, 0.01234, "$0.0123"), (money, -8.847, "−$8.85"), (money, 1234.5, "$1,234"),
        (percent, None, "–"), (percent, 0.9999, "99.9%"), (percent, 1.0, "100.0%"), (percent, -0.031, "−3.1%"),
        (short, 950, "950"), (short, 18_240, "18.2k"), (short, 999_960, "1M"), (short, 5_608_882, "5.61M"),
        (seconds, 0.0634, "63 ms"), (seconds, 9.64, "9.6 s"), (seconds, 600, "10.0 min"),
    ],
)  # fmt: skip
def test_numbers_read_well(written: Any, value: Any, text: str) -> None:
    assert text == written(value)


# The plots


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (8.4, 9.1, [8.4, 8.6, 8.8, 9.0]),
        (0, 26_318, [0, 10_000, 20_000]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert expected == ticks(low, high)


@given(st.lists(st.tuples(st.floats(60, 900), st.floats(30, 300)), min_size=1, max_size=10))
def test_labels_lie_on_nothing(places: list[tuple[float, float]]) -> None:
    paper = Box(52, 14, 970, 330)
    boxes = labels(places, [f"policy-{n}" for n in range(len(places))], paper, [(60.0, 344.0), places[0]])
    for number, box in enumerate(boxes):
        assert paper.contains(box)
        assert not any(box.intersects(other) for other in boxes[:number])
        assert not any(box.intersects(Box(x - 6, y - 6, 12, 12)) for x, y in places)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=400), st.integers(4, 50))
def test_thinning_keeps_the_peaks(values: list[int], most: int) -> None:
    kept = thin_out(values, most)
    assert all(values[place] == value for place, value in kept)
    assert kept == sorted(kept)
    assert {0, len(values) - 1, values.index(max(values)), values.index(min(values))} <= {place for place, _ in kept}
    assert len(kept) <= most + 4


def test_a_plot_says_what_it_shows() -> None:
    drawn = [PlotLine("untouched", [900, 5000, 90_000]), PlotLine("<p>", [900, 3000, 1000], [2], 0)]
    text = line_plot(drawn, 4000, short, wide=True, title="t")
    assert "<title>&lt;p&gt;, call 3: 1,000 tokens after a compaction</title>" in text
    assert "the window, 4,000 tokens" in text
    assert "untouched 90k ↑" in text  # it leaves the paper, and says how far
    assert 1 == text.count('class="mark c0"')


# The commands


def cli(*arguments: str, code: int = 0) -> Any:
    result = CliRunner(env={"COLUMNS": "140"}).invoke(app, list(arguments))
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    assert code == result.exit_code, result.output
    return result


def log(name: str = "chat.json", shape: str = "s" + "utra" * 12) -> None:
    Path(name).write_text(json.dumps(chat(shape, words=60)))


@pytest.mark.slow
def test_replay_writes_a_report_and_takes_up_what_is_known() -> None:
    log()
    Path("compact.yaml").write_text("policy: {layout: rolling}\n")
    Path("foreign.json").write_text('{"a": 1}')
    command = ("replay", "chat.json", "foreign.json", "--window", "50%", "--model", "gpt-4o", "--out", "out")
    first = cli(*command)
    assert "skipped: foreign.json" in first.stderr
    assert "wrote out/report.html, out/report.json" in first.stderr
    assert {"report.html", "report.json", "results.jsonl"} == {file.name for file in Path("out").iterdir()}
    report = json.loads(Path("out/report.json").read_text())
    assert ["default", "compact"] == [sums["policy"] for sums in report["policies"]]
    assert f"{report['policies'][1]['sent']:,}" in first.stdout
    before = Path("out/results.jsonl").read_bytes()
    assert report == json.loads(cli(*command, "--json").stdout)
    assert before == Path("out/results.jsonl").read_bytes()


@pytest.mark.slow
def test_cache_prices_change_the_bill() -> None:
    log()

    def cost(*options: str) -> float:
        told = json.loads(cli("replay", "chat.json", "--window", "50%", "--model", "gpt-4o", "--json", *options).stdout)
        return float(told["policies"][0]["untouched_cost"])

    known, dear, none = cost(), cost("--cache-read", "0.9"), cost("--no-cache")
    assert known < dear < none
    assert none < cost("--cache-read", "1", "--cache-write", "2")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["replay", "none.json"], 1, "none.json does not exist"),
        (["replay", "chat.json", "--window", "3"], 2, "write tokens from 512 up"),
        (["replay", "chat.json", "--policy", "none.yaml"], 1, "none.yaml: cannot be read"),
        (["replay", "chat.json", "--cache-write", "2"], 2, "--cache-write needs --cache-read"),
        (["replay", "chat.json", "--address", "auto"], 2, "add --engine ray"),
        (["tune", "chat.json", "-o", "chat.json"], 1, "chat.json exists; overwrite it with --force"),
    ],
)
def test_what_was_given_wrongly_is_said(arguments: list[str], code: int, said: str) -> None:
    log()
    assert said in cli(*arguments, code=code).stderr


def test_what_tune_found_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of both policies, the reasons, and the verdict on what was held back, also when it is no good."""
    start, chosen = Sums("", **FINE), Sums("", **(FINE | {"cost": 0.5, "lost": 1}))
    trials = Trial("start", CompactConfig()), Trial("tuned", CompactConfig().changed(trigger_pct=0.5))
    reason = Reason("trigger_pct", 0.5, 0.85, -0.2, 0.1)
    verdicts = Verdict("training", start, start), [Verdict("shop", start, chosen)]
    tuned = TuningResult(*trials, {"trigger_pct": 0.5}, [reason], *verdicts)
    _show_tuned(tuned)
    shown = capsys.readouterr().out
    assert re.search(r"^shop +start .*\n +tuned +4 +0 +\$0\.5000", shown, re.M)
    assert "trigger_pct: 0.5 (with 0.85: 20.0% dearer, fidelity +0.100)" in shown
    assert "shop: not better" in shown
    told = _tuning_value(tuned)
    assert [("shop", False, 0.5)] == [(one["source"], one["better"], one["tuned"]["cost"]) for one in told["held"]]
    _show_tuned(TuningResult(*trials, {}, [], verdicts[0], []))
    shown = capsys.readouterr().out
    assert "No policy was better than the start" in shown
    assert "too few conversations to hold any back" in shown


@pytest.mark.slow
def test_the_example_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    log()
    text = (ROOT / "REPLAY.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(code, "REPLAY.md", "exec"), {})
    assert ["default", "rolling"] == [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [] == [column.name for column in COLUMNS if column.name not in text]
