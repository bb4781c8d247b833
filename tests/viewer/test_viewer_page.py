"""The viewer's page as a person meets it: a real server, a real browser, a real session."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from browser import Visit, chromium, post, small_picture
from demo_transcript import build
from project_paths import ROOT

from compact import CompactConfig, CompactManager
from compact.testing import Recorder
from compact.viewer import running

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
WINDOW = 12_000
RTL, ZERO = "\u202e", "\u200b"


def lived(manager: CompactManager, session: str, transcript: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The transcript, replayed as an agent would have lived it; what is left of it."""
    context: list[dict[str, Any]] = []
    for message in transcript:
        if message["role"] == "assistant":
            context = manager.preflight(session, context)
        context.append(message)
    return context


def config_of(path: Path, **sections: Any) -> CompactConfig:
    return CompactConfig(model="gpt-4o", max_context_tokens=WINDOW, storage={"path": str(path)}, **sections)


class Stage:
    """A session on disk, the viewer that shows it, and a browser."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.transcript = build(seed=3, tokens=30_000)
        self.recorder = Recorder()
        with CompactManager(config_of(folder), sinks=[self.recorder]) as manager:
            lived(manager, "demo", self.transcript)
            self.folds = manager.session("demo").folds
        assert len(self.folds) >= 3
        self.address = ""

    def json(self, path: str, **query: Any) -> Any:
        with urllib.request.urlopen(f"{self.address}{path}?{urlencode(query)}", timeout=10) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with chromium() as browser:
        stage = Stage(browser, tmp_path_factory.mktemp("archive"))
        database = tmp_path_factory.mktemp("spans") / "spans.sqlite"
        with running(config_of(stage.folder), stage.folder, db=database) as stage.address:
            yield stage


@pytest.fixture
def visit(stage: Stage) -> Iterator[Callable[..., Visit]]:
    """Opens pages; afterwards none of them may have complained or asked anybody else."""
    with ExitStack() as stack:
        visits: list[Visit] = []

        def opened(address: str | None = None, **options: Any) -> Visit:
            one = Visit(stage.browser, address or stage.address, **options)
            stack.callback(one.context.close)
            visits.append(one)
            return one

        yield opened
        for one in visits:
            assert [] == one.wrong
            assert [] == one.strangers


def shown(page: Any, selector: str, text: str | re.Pattern[str] | None = None) -> Any:
    """The first element of a kind that holds a text, once it is there to be seen."""
    found = (page.locator(selector, has_text=text) if text is not None else page.locator(selector)).first
    found.wait_for(state="visible")
    return found


def settles(page: Any, check: Callable[[], bool]) -> bool:
    """Whether something becomes true of a page that may still be drawing itself."""
    for _ in range(50):
        if check():
            return True
        page.wait_for_timeout(100)
    return False


def readable(page: Any, selector: str) -> bool:
    """Whether an element stands out enough from its ground."""
    return settles(page, lambda: page.locator(selector).first.evaluate(CONTRAST) >= 4.5)


# -- the screens -------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_with_their_numbers(visit: Callable[..., Visit], stage: Stage) -> None:
    """The rail names the session, its folds and how full its window is; a filter narrows it; a click opens it."""
    page = visit().open()
    row = shown(page, ".session", "demo")
    assert f"{len(stage.folds)} compactions" in row.inner_text()
    assert "/12k" in row.inner_text()
    assert shown(page, "main h1", "Choose a session")
    page.fill(".rail input", "nobody")
    shown(page, ".rail", "No session of this name.")
    page.fill(".rail input", "dem")
    shown(page, ".session", "demo").click()
    shown(page, "main h1", "demo")
    assert page.url.endswith("#/s/demo")


@pytest.mark.spec("S22")
def test_timeline_has_every_fold_and_says_why(visit: Callable[..., Visit], stage: Stage) -> None:
    """Each fold is a marker with its numbers; a hover tells the reason; a click opens the fold."""
    page = visit().open("#/s/demo")
    shown(page, ".mark")
    labels = page.locator(".mark").evaluate_all("marks => marks.map(mark => mark.getAttribute('aria-label'))")
    expected = [
        f"Compaction {f.step}: {', '.join(f.reasons)}, {f.tokens_before:,} to {f.tokens_after:,} tokens"
        for f in stage.folds
    ]
    assert expected == labels
    page.locator(".mark").nth(1).hover()
    card = shown(page, ".card", "Compaction 2").inner_text()
    assert stage.folds[1].reasons[0] in card
    assert f"{stage.folds[1].tokens_before:,} → {stage.folds[1].tokens_after:,}" in card
    assert "fidelity" in card
    assert page.locator(".plot canvas").evaluate(COLOURS) > 20
    page.locator(".mark").nth(1).click()
    shown(page, "main h1", "Compaction 2")


COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


def test_timeline_zooms_and_the_tree_goes_with_it(visit: Callable[..., Visit], stage: Stage) -> None:
    """Dragging over the curve shows that stretch alone; a double click shows all again."""
    page = visit().open("#/s/demo")
    shown(page, ".mark")
    box = page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + 80, box["y"] + 120)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 120, steps=4)
    page.mouse.up()
    shown(page, "button", "Show all")
    assert page.locator(".mark").count() < len(stage.folds)
    page.mouse.dblclick(box["x"] + 200, box["y"] + 120)
    page.wait_for_function(f"() => document.querySelectorAll('.mark').length === {len(stage.folds)}")


@pytest.mark.spec("S22")
def test_span_tree_has_bars_and_an_inspector(visit: Callable[..., Visit], stage: Stage) -> None:
    """Summarizer calls have bars as long as they took; a fold's span shows summary, policy, counts and payload."""
    page = visit().open("#/s/demo")
    call = shown(page, ".span.llm")
    rows = {row["span_id"]: row for row in stage.json("/api/spans", session="demo")["spans"]}
    whole = max(one["ended"] for one in rows.values()) - min(one["started"] for one in rows.values())

    def drawn_to_scale() -> bool:
        name, bar, lane = call.evaluate(BAR)  # in one go: rows are drawn anew when more of them have come
        row = rows[name]
        assert "compact.summary_call" == row["name"]
        return bool(abs(bar - max(3, lane * (row["ended"] - row["started"]) / whole)) < 2)

    assert settles(page, drawn_to_scale)
    page.locator("[role=tree]").focus()
    page.keyboard.press("Home")
    fold = shown(page, ".span.fold", "fold 1")
    assert "true" == fold.get_attribute("aria-expanded")
    fold.click()
    shown(page, ".inspected h2", "fold 1")  # until then, the newest fold is on offer there
    inspector = shown(page, ".inspected", "Response").inner_text()
    summary = stage.recorder["summary_created"][0].data["summary"]
    assert next(line for line in summary.splitlines() if len(line) > 60)[:40] in inspector
    for title in ("Policy", "trigger pct", "85 %", "Counts", "messages before", "kept: pinned", "Fidelity", "Payload"):
        assert title in inspector
    assert f"{stage.folds[0].tokens_after:,}" in inspector
    page.locator(".json summary", has_text="policy").click()
    shown(page, ".json", "hard_cap_buffer")
    assert "/span/" in page.url
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    shown(page, ".inspected h2", "fold 1")


BAR = """row => [row.dataset.span, ...[".span-bar", ".lane"].map(
  (part) => row.querySelector(part).getBoundingClientRect().width)]"""


def test_idle_preflights_are_one_row(visit: Callable[..., Visit], stage: Stage) -> None:
    """Calls with nothing due are one row that opens; filters leave folds or errors alone."""
    page = visit().open("#/s/demo")
    shown(page, ".span.run", "preflights")
    page.locator("[role=tree]").focus()
    page.keyboard.press("Home")
    run = page.locator(".span.run").first
    count = int(re.match(r"\D*(\d+)", run.inner_text()).group(1))
    run.locator(".twist").click()
    assert "true" == page.locator(".span.run").first.get_attribute("aria-expanded")
    assert count >= 3
    shown(page, ".span .name", re.compile("^preflight$"))
    page.locator("[data-show=folds]").click()
    page.wait_for_function("() => !document.querySelector('.span.run')")
    page.locator("[data-show=errors]").click()
    shown(page, ".spans", "No event")


@pytest.mark.spec("S22")
def test_a_fold_before_and_after(visit: Callable[..., Visit], stage: Stage) -> None:
    """Every message is in a list; hover reads, click opens all of it; layers filter; laws and fidelity are told."""
    fold = stage.json("/api/fold", session="demo", step=2)
    page = visit().open("#/s/demo/fold/2")
    head = shown(page, ".headline", "Compaction 2").inner_text()
    assert f"{fold['tokens_before']:,} → {fold['tokens_after']:,}" in head.replace("\n", " ")
    assert f"{fold['counts']['folded']} messages folded" in head
    counts = page.locator(".list h2 .count").all_inner_texts()
    assert [str(len(fold["before"])), str(len(fold["after"]))] == counts
    at = next(i for i, row in enumerate(fold["before"]) if row[3] == "folded" and row[4] > 20)
    row = page.locator(".list").first.locator(f"[data-row='{at}']")
    row.scroll_into_view_if_needed()
    row.hover()
    message = stage.json("/api/message", session="demo", step=2, line=fold["before"][at][0])
    words = (message["text"] or message["calls"][0]["arguments"])[:40]
    shown(page, ".card", words.split("\n")[0])
    row.click()
    reader = shown(page, ".drawer .read", "Raw JSON")
    assert " ".join(words.split()) in " ".join(reader.inner_text().split())
    page.keyboard.press("j")
    shown(page, ".drawer h2", f"#{fold['before'][at + 1][1]} ")
    page.keyboard.press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    page.locator(".legend [data-layer=folded]").click()
    assert [f"{fold['counts']['folded']} of {len(fold['before'])}", f"0 of {len(fold['after'])}"] == page.locator(
        ".list h2 .count"
    ).all_inner_texts()
    page.locator(".legend .all").click()
    page.locator("[role=tab]", has_text="Laws").click()
    assert len(fold["laws"]) == page.locator(".laws li").count() > 10
    assert fold["laws"][0]["says"] in page.locator(".laws").inner_text()
    page.locator("[role=tab]", has_text="Fidelity").click()
    fidelity = page.locator(".fidelity").inner_text()
    assert f"{fold['report']['score']:.1f}" in fidelity
    assert all(name in fidelity for name in fold["report"]["missing"] if name.isascii() and "  " not in name)
    page.locator("a[aria-label='Next compaction']").click()
    shown(page, "h1", "Compaction 3")


@pytest.mark.spec("S22")
def test_a_citation_leads_to_the_original(visit: Callable[..., Visit], stage: Stage) -> None:
    """In the same fold the message opens; from a later fold the page goes to the fold that holds it, and back."""
    page = visit().open("#/s/demo/fold/1")
    cite = shown(page, ".cite")
    position = int(cite.get_attribute("data-position"))
    cite.click()
    shown(page, ".drawer h2", f"#{position} ")
    original = stage.transcript[position]["content"]
    shown(page, ".drawer .read", original[:30])
    page.keyboard.press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    assert page.evaluate("document.activeElement.classList.contains('cite')"), "the focus is back at the citation"
    last = len(stage.folds)
    page.goto(f"{stage.address}/#/s/demo/fold/{last}")
    shown(page, "h1", f"Compaction {last}")
    fold = stage.json("/api/fold", session="demo", step=last)
    here = {row[1] for row in fold["before"] if row[3] != "summary"}
    cited = page.locator(".summary .cite").evaluate_all("cites => cites.map(cite => Number(cite.dataset.position))")
    position = next(one for one in cited if one not in here)
    original = stage.transcript[position]["content"] or ""
    page.locator(f".cite[data-position='{position}']").first.click()
    shown(page, ".drawer .came", f"Back to compaction {last}")
    shown(page, ".drawer .read", original[:30])
    assert f"fold/{last}/" not in page.url
    page.locator(".drawer .came a").click()
    shown(page, "h1", f"Compaction {last}")


def test_search_finds_what_was_folded(visit: Callable[..., Visit], stage: Stage) -> None:
    """Words typed behind `/` give messages with the words marked; one opens in its fold."""
    page = visit().open("#/s/demo")
    shown(page, ".mark")
    page.keyboard.press("/")
    page.keyboard.type("migrations")
    page.keyboard.press("Enter")
    hit = shown(page, ".hits a", "migrations")
    assert "migrations" in hit.locator("mark").first.inner_text().lower()
    hit.click()
    assert "migrations" in shown(page, ".drawer .read", "migrations").inner_text()
    page.goto(f"{stage.address}/#/s/demo/search/{quote('zzz qqq')}")
    shown(page, "h1", "Nothing found")


def test_an_exported_fold_opens_from_disk(visit: Callable[..., Visit], stage: Stage, tmp_path: Path) -> None:
    """One file, no server: lists, reader, citations and theme work, and nothing is asked of anybody."""
    page = visit().open("#/s/demo/fold/2")
    with page.expect_download() as download:
        shown(page, "a.button", "Export").click()
    saved = tmp_path / "fold.html"
    download.value.save_as(saved)
    other = visit(saved.as_uri(), offline=True)
    page = other.page
    page.goto(other.address)
    shown(page, "h1", "Compaction 2")
    fold = stage.json("/api/fold", session="demo", step=2)
    assert str(len(fold["before"])) == page.locator(".list h2 .count").first.inner_text()
    page.locator(".message").nth(4).click()
    shown(page, ".drawer .read", "Raw JSON")
    page.keyboard.press("Escape")
    page.locator(".cite").last.click()
    shown(page, ".drawer .read, .notice")
    assert [saved.as_uri()] == other.requests


# -- live --------------------------------------------------------------------------------------------------------------


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06}Z"


def span(session: str, name: str, *, at: float | None = None, **fields: Any) -> dict[str, Any]:
    at = time.time() if at is None else at
    return {
        "type": "span",
        "trace_id": session,
        "span_id": f"{name}-{at!r}",
        "kind": "compact",
        "name": name,
        "started_at": stamp(at),
        "ended_at": stamp(at),
        "status": "ok",
        "data": {"event": name},
    } | fields


@pytest.mark.spec("S17", "S40")
def test_what_is_sent_is_seen(visit: Callable[..., Visit], stage: Stage, tmp_path: Path) -> None:
    """An agent that sends its events here is followed: rows, curve, folds and the list, without a reload."""
    page = visit().open("#/s/live%20one")
    shown(page, ".live[data-state=live]")
    config = config_of(tmp_path / "elsewhere", tracing={"ariadne_url": stage.address})
    with CompactManager(config) as manager:
        lived(manager, "live one", stage.transcript)
        folds = manager.session("live one").folds
    shown(page, ".span.fold", f"fold {len(folds)}")
    page.wait_for_function(f"() => document.querySelectorAll('.mark').length === {len(folds)}")
    shown(page, ".session.here", f"{len(folds)} compactions")
    page.locator(".mark").first.click()
    shown(page, "h1", "No details of this compaction")
    told = page.locator(".welcome").inner_text()
    assert f"{folds[0].tokens_before:,} → {folds[0].tokens_after:,}" in told
    assert "compact view .compact/archive" in told
    page.context.pages[0].goto("about:blank")


def test_errors_stand_out(visit: Callable[..., Visit], stage: Stage) -> None:
    """An error is marked on the timeline, in the tree, in the header and in the list, as it arrives."""
    page = visit().open("#/s/in%20trouble")
    shown(page, ".live[data-state=live]")
    now = time.time()
    data = {"event": "compact.token_estimate", "t_est": 900, "max_tokens": 1000, "usage_pct": 0.9, "step": 0}
    failure = {"event": "compact.error", "error_type": "SummaryTimeout", "message": "60 s", "fallback": "prune"}
    post(
        stage.address,
        span("in trouble", "compact.token_estimate", at=now - 1, data=data),
        span("in trouble", "compact.error", at=now, status="error", data={**failure, "step": 0}),
    )
    shown(page, ".span.error", "SummaryTimeout").click()
    shown(page, ".inspected .notice.bad", "SummaryTimeout")
    shown(page, ".flag.error").hover()
    shown(page, ".card", "60 s")
    shown(page, ".figure .bad", "1")
    shown(page, ".session .chip.bad", "1")


def test_a_lost_connection_is_said_and_found_again(visit: Callable[..., Visit], tmp_path: Path) -> None:
    """When the server goes a bar says so; when it is back the page goes on from where it was."""
    config = config_of(tmp_path / "archive")
    with running(config, db=tmp_path / "spans") as address:
        one = visit(address)
        page = one.open("#/s/again")
        shown(page, ".live[data-state=live]")
    shown(page, "#lost", "Lost the connection")
    with running(config, db=tmp_path / "spans", port=int(address.rpartition(":")[2])) as address:
        page.wait_for_selector("#lost", state="hidden")
        post(address, span("again", "compact.warning", data={"event": "compact.warning", "code": "back"}))
        shown(page, ".span.warning", "back")
        one.context.close()
    one.wrong.clear()  # the browser itself complains about a refused connection


def test_nothing_yet_teaches(visit: Callable[..., Visit], tmp_path: Path) -> None:
    """Without a session the page says the exact lines that bring one."""
    with running(config_of(tmp_path / "none"), db=tmp_path / "spans") as address:
        one = visit(address)
        page = one.open()
        shown(page, "h1", "No session yet")
        told = page.locator(".welcome").inner_text()
        assert f"ariadne_url: {address}" in told
        assert f"COMPACT_TRACING_ARIADNE_URL={address}" in told
        one.context.close()


# -- for everybody -----------------------------------------------------------------------------------------------------


def test_neighbours_are_known_while_the_timeline_is_loading(visit: Callable[..., Visit], stage: Stage) -> None:
    """Going on before the timeline has come does not lose the way back."""
    page = visit().open("#/s/demo")
    shown(page, ".mark")
    page.route("**/api/timeline*", lambda route: None)  # never answered
    page.goto(f"{stage.address}/#/s/demo/fold/2")
    for key, step in (("]", 3), ("[", 2)):
        shown(page, ".message")
        page.keyboard.press(key)
        shown(page, "h1", f"Compaction {step}")


def test_by_keyboard_alone(visit: Callable[..., Visit], stage: Stage) -> None:
    """From the list to the text of a message and back, without a pointer; the focus can always be seen."""
    page = visit().open()
    shown(page, ".session", "demo")
    press = page.keyboard.press
    press("Tab")
    assert "skip" == page.evaluate("document.activeElement.id")
    press("s")
    while "demo" != page.locator(".session[aria-selected=true] .name").inner_text():
        press("j")
    press("Enter")
    shown(page, ".mark")
    page.locator("#find-text").focus()
    press("Escape")
    for _ in range(30):
        press("Tab")
        if page.evaluate("document.activeElement.classList.contains('mark')"):
            break
    press("ArrowRight")
    assert "2" == page.evaluate("document.activeElement.dataset.step")
    assert "none" != page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    shown(page, ".card", "Compaction 2")
    press("Tab")
    press("Tab")
    press("Tab")
    press("Tab")
    assert "tree" == page.evaluate("document.activeElement.getAttribute('role')")
    press("j")
    assert "fold 1" in page.locator(".span[aria-selected=true]").inner_text()
    press("ArrowLeft")
    assert "false" == page.locator(".span[aria-selected=true]").get_attribute("aria-expanded")
    press("ArrowRight")
    press("ArrowRight")
    assert "token_estimate" in page.locator(".span[aria-selected=true]").inner_text()
    shown(page, ".inspected h2", "compact.token_estimate")
    press("Shift+Tab")
    press("?")
    shown(page, ".help", "Previous and next compaction")
    press("Escape")
    page.goto(f"{stage.address}/#/s/demo/fold/2")
    shown(page, ".message")
    press("]")
    shown(page, "h1", "Compaction 3")
    press("[")
    shown(page, "h1", "Compaction 2")
    shown(page, ".message")
    page.locator(".rows").nth(1).focus()
    press("End")
    press("Enter")
    shown(page, ".drawer .read", "Raw JSON")
    press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    assert "listbox" == page.evaluate("document.activeElement.getAttribute('role')")
    press("Escape")
    shown(page, ".figures")
    press("Escape")
    shown(page, "h1", "Choose a session")


def test_light_and_dark(visit: Callable[..., Visit], stage: Stage) -> None:
    """The system's wish counts until somebody chooses; the choice is kept; text is readable in both."""
    grounds = set()
    for scheme in ("light", "dark"):
        page = visit(color_scheme=scheme).open("#/s/demo/fold/2")
        shown(page, ".message")
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        for selector in (".headline h1", ".dim", ".preview", ".cite", ".count"):
            assert readable(page, selector), (scheme, selector)
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("t")
        after = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.reload()
        shown(page, ".message")
        assert before != after == page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert 2 == len(grounds)


CONTRAST = """element => {
  const seen = (colour) => {
    const pen = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
    pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let behind = element, ground = [255, 255, 255];
  while (behind) {
    const colour = seen(getComputedStyle(behind).backgroundColor);
    if (colour[3] === 255) { ground = colour; break; }
    behind = behind.parentElement;
  }
  const [one, other] = [light(seen(getComputedStyle(element).color)), light(ground)].sort((a, b) => b - a);
  return (one + 0.05) / (other + 0.05);
}"""


@pytest.mark.parametrize("width", [900, 1440])
def test_no_screen_is_wider_than_the_window(visit: Callable[..., Visit], stage: Stage, width: int) -> None:
    """On a laptop and on half of one: nothing to scroll sideways, nothing cut off at the right edge."""
    one = visit(viewport={"width": width, "height": 800})
    screens = {
        "home": ("#/", "main h1"),
        "session": ("#/s/demo", ".mark"),
        "fold": ("#/s/demo/fold/2", ".message"),
        "search": ("#/s/demo/search/migrations", ".hits a"),
    }
    for name, (place, sign) in screens.items():
        page = one.open(place)
        page.reload()
        shown(page, sign)
        if name == "session":
            page.locator(".span.fold").last.click()
            shown(page, ".inspected", "Payload")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            wide = "[document.documentElement, document.getElementById('main')].map(e => e.scrollWidth - e.clientWidth)"
            assert [0, 0] == page.evaluate(wide), name
            parts = page.locator("main .panel, main .actions, header.top > *")
            edges = parts.evaluate_all("parts => parts.map(part => part.getBoundingClientRect().right)")
            assert max(edges) <= width, name
            if os.environ.get("SCREENS"):
                picture(page, f"{name}-{width}-{theme}")


def picture(page: Any, name: str) -> None:
    """A screenshot for the documentation, small enough for a repository."""
    folder = ROOT / "docs" / "screens"
    folder.mkdir(parents=True, exist_ok=True)
    page.locator(".source").evaluate("source => { source.textContent = '.compact/archive'; }")
    page.locator(".welcome > p:last-child").evaluate_all("all => all.forEach(one => one.remove())")
    page.wait_for_timeout(200)
    small = small_picture(page)
    assert len(small) < 200_000, name
    (folder / f"{name}.png").write_bytes(small)


def test_long_lists_draw_what_is_in_sight(visit: Callable[..., Visit], stage: Stage) -> None:
    """15,000 spans are some dozens of elements, and the last one can be reached."""
    now = time.time() - 5_000
    name = "long session"
    for first in range(0, 15_000, 500):
        post(stage.address, *(span(name, f"step {n}", at=now + n / 10, data={}) for n in range(first, first + 500)))
    page = visit().open(f"#/s/{quote(name)}")
    shown(page, ".spans h2 .count", "15,000")
    assert page.locator(".span").count() < 100
    page.locator("[role=tree]").focus()
    page.keyboard.press("End")
    shown(page, ".span[aria-selected=true]", "step 14999")
    assert page.locator(".span").count() < 100


# -- hostile -----------------------------------------------------------------------------------------------------------

PWN = "globalThis.pwned = 1"
HOSTILE = [
    f"<script>{PWN}; alert(1)</script>",
    f"<img src=x onerror='{PWN}; alert(1)'>",
    f"<svg onload='{PWN}; alert(1)'><circle r=9></svg>",
    f"</script><script>{PWN}</script>",
    f"</textarea></title></style><script>{PWN}</script>",
    f"<iframe srcdoc='<script>parent.{PWN}</script>'></iframe>",
    f"<a href='javascript:{PWN}'>here</a>",
    f"javascript:{PWN}//",
    f"[link](javascript:{PWN})",
    "![picture](http://192.0.2.1/leak.png)",
    "<img src=http://192.0.2.1/leak.png>",
    "<link rel=stylesheet href=//192.0.2.1/x.css>",
    "<meta http-equiv=refresh content='0;url=http://192.0.2.1/'>",
    "<base href=http://192.0.2.1/>",
    "<style>body { display: none }</style>",
    "<form action=http://192.0.2.1/><input name=q autofocus onfocus=alert(1)></form>",
    "<template><script>alert(1)</script></template><math><mtext></mtext></math>",
    "<!-- --><!DOCTYPE html><html><body onload=alert(1)>",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)} <%= 1 %>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;b&#62;",
    f"{RTL}gpj.exe and \u2066isolated\u2069",
    f"zero{ZERO}width\u200d joined\ufeff, \u00adsoft",
    "bell \x07, null \x00, escape \x1b[31mred\x1b[0m, \x1b]0;title\x07, \x9b31m",
    "line\r\nbreak\rreturn\u2028separator\u2029paragraph\x0bvertical\x0cfeed",
    "half a pair \ud800 and \udfff other half",
    "Z\u0351\u0342\u0343\u0344\u0345" * 200,
    "__proto__ constructor toString hasOwnProperty",
    "[#0] [#999999999] [#1-#2] [#" + "9" * 400 + "]",
    "x" * 5_000_000,
    "<COMPACT-SUMMARY v1><b>mine</b></COMPACT-SUMMARY>",
]


def hostile_messages() -> list[dict[str, Any]]:
    """A conversation in which everybody is hostile: users, tools, their names and their arguments."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": HOSTILE[0]}]
    for number, text in enumerate(HOSTILE):
        name = re.sub(r"\W", "_", text)[:30] or "tool"
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": ""}}
        call["function"]["arguments"] = json.dumps({text[:100]: text[:1000]})
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": text[:2000], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
            {"role": "assistant", "content": "done"},
        ]
    return messages


def test_hostile_text_is_text(visit: Callable[..., Visit], stage: Stage, tmp_path: Path) -> None:
    """Thirty texts that want to be more, everywhere a text can stand: seen as text, no dialog, no request, no error."""
    assert len(HOSTILE) >= 30
    evil = f"<img src=x onerror=alert(1)>/{RTL}s"
    config = CompactConfig(
        model="gpt-4o",
        counter="chars",
        max_context_tokens=4_000_000,
        storage={"path": str(tmp_path / "archive")},
        redaction={"enabled": False},
    )
    summary = "\n".join(text for text in HOSTILE if len(text) < 1000)
    with CompactManager(config, summarizer=lambda ask: summary) as manager:
        manager.manual_compact(evil, hostile_messages(), note=HOSTILE[1])
    with running(config, tmp_path / "archive", db=tmp_path / "spans") as address:
        for number, text in enumerate(HOSTILE):
            short = text[:3000]
            data = {"event": short, "output": short, "reason": short, "policy": {short: short}, "kept": short}
            sent = span(
                short[:900] or "s", short[:900], data=data, kind=short[:60], span_id=f"hostile {number} {short[:200]}"
            )
            post(address, sent, {"type": "trace", "trace_id": short[:900], "name": short})
        one = visit(address)
        page = one.open()
        page.fill(".rail input", "alert(1)>/")
        shown(page, ".session", "onerror").click()
        shown(page, ".span.fold").click()
        shown(page, ".inspected", "Payload")
        page.locator(".mark").first.hover()
        shown(page, ".card", "Compaction 1")
        page.locator(".mark").first.click()
        shown(page, ".message", "<svg onload")
        for layer in ("Summary", "Fidelity", "Laws"):
            page.locator("[role=tab]", has_text=layer).click()
        page.locator("[role=tab]", has_text="Summary").click()
        assert HOSTILE[1] in page.locator("article.summary").inner_text()
        rows = page.locator(".list").first.locator(".rows")
        rows.focus()
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        read = ""
        for _ in range(4 * len(HOSTILE)):
            shown(page, ".drawer .read details")
            read += page.locator(".drawer .read").inner_text()[:20_000]
            page.keyboard.press("j")
        for text in HOSTILE:
            if text.isprintable() and len(text) < 1000:
                assert text in read
        for unseen in ("⟨U+202E⟩", "⟨U+200B⟩", "␛[31m", "␀", "⟨U+2028⟩"):
            assert unseen in read
        assert RTL not in read
        page.keyboard.press("Escape")
        page.wait_for_selector(".drawer", state="detached")
        long = stage_line(address, evil, 5_000_000)
        page.goto(f"{address}/#/s/{quote(evil, safe='')}/fold/1/m/{long}")
        page.reload()
        shown(page, ".drawer .read button", "Show all 5,000,000 characters").click()
        page.wait_for_function("() => document.querySelector('.drawer .text').textContent.length === 5_000_000")
        page.keyboard.press("Escape")
        for text in HOSTILE:
            if text.strip() and len(text) < 900 and "\ud800" not in text:
                page.goto(f"{address}/#/s/{quote(text, safe='')}")
                shown(page, ".span").click()
                shown(page, ".inspected", "Payload")
        page.goto(f"{address}/#/s/{quote(evil, safe='')}/search/{quote('script', safe='')}")
        page.reload()
        shown(page, ".hits a, .welcome, .notice")
        page.goto(f"{address}/#/s/{quote(evil, safe='')}/fold/1")
        with page.expect_download() as download:
            shown(page, "a.button", "Export").click()
        saved = tmp_path / "fold.html"
        download.value.save_as(saved)
        alone = visit(saved.as_uri(), offline=True)
        alone.page.goto(alone.address)
        shown(alone.page, ".message", "<svg onload")
        assert [saved.as_uri()] == alone.requests
        for each in (page, alone.page):
            assert each.evaluate("globalThis.pwned === undefined")
            assert (
                0
                == each.locator("main img, main svg, main iframe, main form, main style, main base, main meta").count()
            )
        one.context.close()


def stage_line(address: str, session: str, characters: int) -> int:
    """The line of the transcript that holds the longest text."""
    with urllib.request.urlopen(
        f"{address}/api/fold?{urlencode({'session': session, 'step': 1})}", timeout=30
    ) as answer:
        fold = json.load(answer)
    line, tokens = max(((row[0], row[4]) for row in fold["before"]), key=lambda row: row[1])
    assert tokens > characters // 8
    return line


def test_the_page_never_makes_markup_of_text() -> None:
    """No part of the page knows a way to turn text into elements or code, or to leave the machine."""
    static = ROOT / "src" / "compact" / "viewer" / "static"
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|DOMParser|createContextualFragment|"
        r"srcdoc|setHTML|https?://(?!www\.w3\.org/2000/svg)"
    )
    for path in sorted(static.iterdir()):
        assert [] == forbidden.findall(path.read_text()), path.name
    page = (static / "index.html").read_text()
    assert not re.search(r"\son\w+=|style=|<script(?![^>]*\ssrc=)|<style", page)
