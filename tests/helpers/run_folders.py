"""Run folders made in a moment, and a browser that says what is wrong with a page."""

import contextlib
import http.server
import json
import re
import shutil
import subprocess
import threading
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dpose.pose.metrics import PCKh
from dpose.privacy.entries import GENESIS, Entry, EntryType, Seal, read_ledger, run_digests
from dpose.privacy.ledger import Ledger, keep_head
from dpose.privacy.sections import About, Query
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.reporting import write_run_report
from dpose.training.first_weights import Inherited
from dpose.training.folder import model_card
from dpose.training.plan import TrainingPlan
from dpose.training.statement import LedgerRecord, StatementFacts, run_statement
from dpose.training.trained_on import NOTHING

HELD_OUT = Query("PCKh", "synthetic:ward:val, 64 units")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pckh(share: float, people: int = 40, seed: int = 0) -> dict:
    """A true PCKh result in which about `share` of the joints are found."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0, 100, (people, 16, 2))
    found = rng.random((people, 16)) < share
    predicted = true + np.where(found, 1.0, 50.0)[..., None]
    metric = PCKh()
    metric.update(predicted, true, np.ones((people, 16)), np.full(people, 10.0))
    return metric.compute().to_dict()


def finished_run(folder: Path, state: Path, plan: TrainingPlan, *, task="dots", about=None, blocks=3):
    """A finished run of 1,000 units as `dpose.train` leaves it, sealed, without real weights; its bound plan."""
    bound, run_id = plan.bind(1000), "ab" * 16
    folder.mkdir()
    with Ledger.create(folder / "ledger.jsonl", bound.sha256, "key", state, run_id) as ledger:
        each = bound.steps // blocks
        for first in range(0, bound.steps, each):
            ledger.reserve(bound.event, first, each)
            ledger.commit(first, each)
    first = Inherited(learnt=NOTHING).to_dict()
    run = {"first_weights": first, "plan": plan.to_dict(), "bound": bound.constants(), "seed": None}
    config = {"task": task, "run_id": run_id, "model": {}, "trained_on": NOTHING.to_dict(), "run": run}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "log.jsonl").write_text("")
    record = LedgerRecord(counted=bound.steps)
    said = run_statement(bound, StatementFacts(about=about or About()), record, seeded=False)
    sealed_again(folder, said, state=state)
    return bound


def sealed_again(folder: Path, statement=None, *, entries=None, first_weights=None, card=None, state=None):
    """Chain, card and seal of a run folder made anew, as whoever edits a folder can make them: there is no secret.

    Args:
        folder: Whose files are sealed as they are.
        statement: In the place of its own.
        entries: In the place of its ledger's lines; seals among them are left out.
        first_weights: In the place of the sealed digest.
        card: In the place of the card that follows.
        state: Where the new head is kept apart; nowhere when None, as on a machine that never saw the run.
    """
    path = folder / "ledger.jsonl"
    before = read_ledger(path)
    statement = statement or PrivacyStatement.from_json((folder / "privacy.json").read_text())
    lines = [e for e in (entries or before) if e.type is not EntryType.SEAL and not e.torn]
    chain: list[Entry] = []
    for entry in lines:
        head = chain[-1].sha256 if chain else GENESIS
        chain.append(replace(entry, seq=len(chain), prev=head, plan_sha256=statement.plan_sha256).sealed())
    statement = replace(statement, ledger_head=chain[-1].sha256, seal="")
    config = json.loads((folder / "config.json").read_text())
    (folder / "README.md").write_text(card or model_card(statement, config))
    sealed = [Seal.from_dict(e.event, "") for e in before if e.type is EntryType.SEAL]
    if first_weights is None:
        first_weights = sealed[-1].first_weights if sealed else ""
    seal = Seal.of(statement, run_digests(folder), first_weights).to_dict()
    plan, key = chain[-1].plan_sha256, chain[-1].key_id
    chain.append(Entry(len(chain), chain[-1].sha256, EntryType.SEAL, seal, 0, 0, plan, key).sealed())
    path.write_bytes(b"".join(entry.line() for entry in chain))
    (folder / "privacy.json").write_text(replace(statement, seal=chain[-1].sha256).to_json())
    if state:
        keep_head(path, state)


@dataclass
class Folder:
    """A run folder under construction."""

    path: Path
    lines: list = field(default_factory=list)

    def log(self, *lines) -> "Folder":
        """Append lines: objects become JSON, text stays as it is."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        return self

    def scored(self, step, share, epsilon=None, data="synthetic:ward:public, 200 units", public=True, **more):
        """Append a score's line."""
        result = pckh(share, seed=step)
        return self.log(
            {
                "type": "score",
                "step": step,
                "data": data,
                "public": public,
                "epsilon": epsilon,
                "result": result,
                **more,
            }
        )

    def evaluated(self, data="synthetic:ward:val", share=0.5, **more) -> "Folder":
        """Write an evaluation."""
        folder = self.path / "evaluations"
        folder.mkdir(exist_ok=True)
        content = {"data": data, "units": 64, "at": "2026-05-03T10:00:00+00:00", "result": pckh(share, 400), **more}
        (folder / f"{len(list(folder.iterdir()))}.json").write_text(json.dumps(content))
        return self


@pytest.fixture(scope="session")
def make_run_in():
    """`make_run_in(parent, method=..., **more)`: a folder as training leaves it, without the weights."""

    def make(
        parent,
        method="dp-sgd",
        *,
        name="run",
        data="synthetic:ward",
        seed=None,
        statement=True,
        config=None,
        run=None,
        plan=None,
        queries=(HELD_OUT,),
        **claims,
    ) -> Folder:
        private = (
            {"delta": 1e-5, "noise_multiplier": 1.0, "accountant": "rdp"}
            if method not in ("non-private", "public-only")
            else {}
        )
        settings = TrainingPlan(
            **{"method": method, "unit": "image", "epochs": 2, "expected_batch_size": 100, **private, **(plan or {})}
        )
        bound = settings.bind(1000)
        folder = parent / name
        folder.mkdir()
        written = {
            "task": "pose",
            "model": {"preset": "nano", "input_size": [128, 96], "skeleton": "mpii"},
            "run": {
                "data": {"private": data, "public": None, "limit": None},
                "model": {"preset": "5m", "init": None, "strategy": "full", "input_size": None},
                "plan": settings.to_dict(),
                "optimizer": {"name": "adamw", "lr": 0.001, "options": {"weight_decay": 0.02}},
                "seed": seed,
                "command": f"dpose train --data {data} --method {method}",
                **(run or {}),
            },
            **(config or {}),
        }
        (folder / "config.json").write_text(json.dumps(written))
        if statement:
            facts = StatementFacts(**{f.name: claims.pop(f.name) for f in fields(StatementFacts) if f.name in claims})
            said = {"head": "abc123", "queries": queries if bound.event else (), **claims}
            record = LedgerRecord(**{f.name: said.pop(f.name) for f in fields(LedgerRecord) if f.name in said})
            said = run_statement(bound, facts, record, seeded=seed is not None, **said)
            (folder / "privacy.json").write_text(said.to_json())
        made = Folder(folder)
        return made.log({"type": "start", "n": 1000, "steps": bound.steps})

    return make


@pytest.fixture
def make_run(make_run_in, tmp_path):
    """`make_run_in` the test's own folder."""
    return partial(make_run_in, tmp_path)


@pytest.fixture(scope="session")
def steps():
    """Lines of `count` steps of a private run."""

    def make(count, first=1, **more):
        return [
            {"type": "step", "step": k, "lr": 1e-3, "noisy_gradient_norm": 4.0 + 0.01 * k, **more}
            for k in range(first, first + count)
        ]

    return make


@pytest.fixture
def make_result():
    """`make_result(share, people)`: a result in which about `share` of the joints are found."""
    return pckh


@dataclass(frozen=True)
class Page:
    """A report, taken apart; that it can be is itself a test: every element is closed, every attribute quoted."""

    text: str

    @property
    def root(self) -> ET.Element:
        body = re.sub(r"<(img|meta|br)((?: [^>]*)?)>", r"<\1\2/>", self.text.removeprefix("<!DOCTYPE html>"))
        return ET.fromstring(body)

    def sections(self) -> dict:
        """Every section by its id."""
        return {node.get("id"): node for node in self.root.iter("section")}

    def words(self, section="") -> str:
        """The text of a section, or of the header; white space collapsed."""
        node = self.sections()[section] if section else self.root.find("body/header")
        return " ".join("".join(node.itertext()).split())

    def table(self, section, number=0) -> list:
        """The cells of a table, row by row."""
        table = list(self.sections()[section].iter("table"))[number]
        return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


@pytest.fixture
def report():
    """`report(folder, **more)`: the report of a run folder, written and read again."""

    def write(folder, **more) -> Page:
        return Page(write_run_report(folder, **more).read_text(encoding="utf-8"))

    return write


# --- the browser


INSPECTOR = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>inspector</title></head><body><script>
const pages = PAGES;
const frames = pages.map(([name, width]) => {
  const frame = document.createElement("iframe");
  frame.src = name;
  frame.style.cssText = `border:0;width:${width}px;height:2000px`;
  document.body.append(frame);
  return frame;
});
const channels = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
const luminance = rgb => {
  const [r, g, b] = rgb.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const opaque = colour => { const c = channels(colour); return c.length === 3 || c[3] === 1; };
function behind(element, view) {
  for (let e = element; e; e = e.parentElement) {
    const colour = view.getComputedStyle(e).backgroundColor;
    if (opaque(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
}
function faint(document, view) {
  const walker = document.createTreeWalker(document.body, 4);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || ["STYLE", "SCRIPT"].includes(element.tagName)) continue;
    const style = view.getComputedStyle(element);
    const colour = element instanceof view.SVGElement ? style.fill : style.color;
    const [light, dark] = [colour, behind(element, view)].map(c => luminance(channels(c))).sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${node.data.trim().slice(0, 40)}`);
  }
  return found;
}
function inspect(frame, [name, width]) {
  const view = frame.contentWindow, document = frame.contentDocument, root = document.documentElement;
  return {
    page: name,
    width,
    title: document.title,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
    images: document.images.length,
    broken: [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.alt || i.src),
    overflow: Math.max(0, root.scrollWidth - root.clientWidth),
    scripts: document.scripts.length,
    loaded: view.performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:")),
    faint: faint(document, view),
  };
}
window.onload = () => {
  const findings = frames.map((frame, k) => inspect(frame, pages[k]));
  const out = document.createElement("pre");
  out.id = "findings";
  out.textContent = JSON.stringify(findings);
  document.body.replaceChildren(out);
};
</script></body></html>"""
"""Loads pages in frames of given widths and writes what it finds into its own document."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def browser():
    """A Chromium, or a skip."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    return found


@pytest.fixture(scope="session")
def inspect(browser, tmp_path_factory):
    """`inspect(folder, [(page, width), ...], dark=False)`: what is wrong with pages, and what the console says."""

    def look(folder, pages, *, dark=False):
        (folder / "inspector.html").write_text(INSPECTOR.replace("PAGES", json.dumps(pages)))
        handler = lambda *arguments: _Quiet(*arguments, directory=folder)  # noqa: E731
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, contextlib.ExitStack() as stack:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            done = subprocess.run(
                [
                    browser,
                    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
                    *("--hide-scrollbars", "--enable-logging=stderr", "--window-size=1400,2200"),
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                    f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                    f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
                    "--dump-dom",
                    f"http://127.0.0.1:{server.server_port}/inspector.html",
                ],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        found = re.search(r'<pre id="findings">(.*?)</pre>', done.stdout, re.S)
        assert found, f"the browser wrote nothing: {done.stderr[-2000:]}"
        text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return SimpleNamespace(pages=json.loads(text), console=console)

    return look
