"""The studio as a person has it: in a browser, from the printed address on."""

import base64
import http.client
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from counted import count_folder
from dpose.measure.config import CountConfig
from dpose.measure.live import live_config
from dpose.measure.plan import whole_day
from dpose.release.verify import verify_release
from dpose.studio.app import VIEWS
from dpose.studio.server import _page_to_open
from run_folders import BROWSERS, make_run_in, pckh, steps  # noqa: F401  (fixtures)
from studios import photo
from tiers import rest_slow

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")
CHROMIUM = next((path for name in BROWSERS if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed")

WAIT = 90_000
"""Milliseconds until a page that has not changed is a failure: no measure, the slowest machine has to make it."""
TRAINING = """
import json, signal, sys, time
from pathlib import Path
from dpose.files import locked_folder
folder, going = Path(sys.argv[1]), [True]
signal.signal(signal.SIGINT, lambda *_: going.clear())
with locked_folder(folder):
    print("holds", flush=True)
    for step in range(4, 10_000):
        if not going:
            break
        with (folder / "log.jsonl").open("a") as log:
            log.write(json.dumps({"type": "step", "step": step, "noisy_gradient_norm": 4.0, "loss": 777.0}) + "\\n")
        time.sleep(0.3)
"""
"""Stands for a training: it holds the folder's lock, writes steps, and stops when it is asked to."""


@pytest.fixture(scope="module")
def place(tmp_path_factory, make_run_in, steps):  # noqa: F811
    base = tmp_path_factory.mktemp("browser")
    (base / "photos").mkdir()
    (base / "runs").mkdir()
    photo(base / "photos" / "ward.png", 480, 640)
    for number, name in enumerate(("first", "second")):
        run = make_run_in(base / "runs", name=name).log(*steps(3)).evaluated(share=0.4 + 0.2 * number)
        for step in range(1, 4):
            run.scored(step, 0.3 + 0.1 * step)
    config = CountConfig.of(queries="occupancy,falls", epsilon="1", visible="30s", times=4)
    today = datetime.now().date().isoformat()
    count_folder(base / "runs" / "corridor" / today, whole_day(live_config(config), today, ("corridor-3",)))
    (base / "runs" / "first" / "report.html").write_text("<h1>All of it</h1><script>document.title = 'ran'</script>")
    return base


@pytest.fixture(scope="module")
def served(place):
    command = [
        "studio",
        "--no-browser",
        "--out",
        place / "out",
        "--folder",
        place / "photos",
        "--folder",
        place / "runs",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "dpose", *map(str, command)], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        address = process.stdout.readline().split()[-1]
        work = Path(os.environ["XDG_STATE_HOME"]) / "dpose" / "studio"
        yield SimpleNamespace(address=address, home=address.partition("/#")[0], process=process, work=work)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert list(work.iterdir()) == []  # copies of private pictures go with the studio


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_the_page_that_the_browser_is_given_leads_in(served, chromium, tmp_path):
    """The file is of no site at all, and its address is one that lets in."""
    page = chromium.new_context().new_page()
    page.goto(_page_to_open(tmp_path, served.address).as_uri())
    page.wait_for_selector("#folders:not([hidden])", timeout=WAIT)
    assert page.url == f"{served.home}/"  # the secret stands in no address any more


@pytest.fixture
def page(chromium, served):
    """A page that was let in; whatever its console complains of, or asks of another host, fails the test."""
    known = "Blocked script execution in"  # of a report that is made to try
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    made, complaints = context.new_page(), []
    made.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    context.on(
        "request", lambda asked: None if asked.url.startswith((served.home, "data:")) else complaints.append(asked.url)
    )
    made.set_default_timeout(WAIT)  # for the slowest machine, whose first preview compiles its kernels
    # a page that goes on by itself to the next, whose scripts have run when it is loaded
    made.goto(served.address)
    made.wait_for_url(f"{served.home}/")
    yield made
    context.close()
    assert [line for line in complaints if known not in line] == []


def drop(page, path):
    data = base64.b64encode(path.read_bytes()).decode()
    handle = page.evaluate_handle(
        """([name, data]) => {
          const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)), moved = new DataTransfer();
          moved.items.add(new File([bytes], name));
          return moved;
        }""",
        [path.name, data],
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": handle})
    page.wait_for_selector("#preview[src^=data]")


def axe(page):
    """What axe-core finds wrong, by the rules of WCAG 2.1 A and AA."""
    source = Path(pytest.importorskip("axe_core_python", reason="no axe-core").__file__).parent / "axe.min.js"
    page.evaluate(source.read_text(encoding="utf-8") + "; 0")
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    found = page.evaluate(
        """async (rules) => (await axe.run({runOnly: rules})).violations.map((one) =>
          [one.id, one.nodes.map((node) => [node.html.slice(0, 120), node.failureSummary])])""",
        rules,
    )
    assert found == []


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def settle(page, path):
    """Wait until a view has said all it has to say."""
    page.wait_for_selector("p.status:text-is('')" if path == "/plan" else "main", state="attached")
    if path == "/plan":
        page.wait_for_selector("#curve svg")
    if path == "/runs":
        page.wait_for_selector("#runs:not([hidden])")
    if path == "/counts":
        page.wait_for_selector("#counts svg")
    if path == "/account":
        page.wait_for_selector("#reading:not(:text('reading the account'))")


@pytest.mark.parametrize("path", rest_slow(VIEWS, 0, 1))
def test_every_view_is_sound_light_and_dark_and_at_360_pixels(page, served, path):
    page.goto(served.home + path)
    settle(page, path)
    for scheme, width in (("light", 1280), ("dark", 360)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        assert overflow(page) == 0
        axe(page)


def test_a_whole_release_from_drop_to_verified_file(page, served, place):
    drop(page, place / "photos" / "ward.png")
    assert "Nothing is saved or charged" in page.inner_text("#preview-frame + figcaption")
    page.check("input[value=box]")
    page.locator("#frame").scroll_into_view_if_needed()
    frame = page.locator("#shown").bounding_box()
    page.mouse.move(frame["x"] + frame["width"] * 0.25, frame["y"] + frame["height"] * 0.25)
    page.mouse.down()
    page.mouse.move(frame["x"] + frame["width"] * 0.5, frame["y"] + frame["height"] * 0.5, steps=3)
    page.mouse.up()
    page.wait_for_selector("#epsilons td:text('the box you drew')")
    assert abs(int(page.input_value("#box-w")) - 160) <= 4
    # a box that is half drawn may have been asked about before: what is said last is of all of it
    page.wait_for_selector(r"#hidden:text-matches('(32,768|16,384) pixels')")
    page.wait_for_selector("#standing:text('no earlier release')")
    axe(page)
    page.set_viewport_size({"width": 360, "height": 800})
    assert overflow(page) == 0
    page.set_viewport_size({"width": 1280, "height": 900})

    page.focus("#release")
    page.keyboard.press("Enter")
    page.wait_for_selector(".job .tag:text('finished')", timeout=WAIT)
    page.click(".job button:text('Verify')")
    page.wait_for_selector(".job .holds")
    page.click(".job summary")
    assert "somebody who saw the picture" in page.inner_text(".job pre")
    with page.expect_download() as caught:
        page.click(".job a >> nth=0")
    saved = place / "downloaded.png"
    caught.value.save_as(saved)
    assert saved.read_bytes() == (place / "out" / "000001.png").read_bytes()
    statement, _ = verify_release(place / "out" / "000001.png")
    assert statement.epsilon == 2
    page.wait_for_selector("#again-row:not([hidden])")
    assert "together cost epsilon 4" in page.inner_text("#standing")
    axe(page)

    page.click("nav a:text('Account')")
    page.wait_for_selector("#datasets td:text('release')")
    maps = Path(f"/proc/{served.process.pid}/maps")
    if maps.exists():  # none of this needs a model, and none of its libraries is loaded
        assert "libtorch" not in maps.read_text()


@pytest.mark.slow
def test_keyboard_alone_finds_the_page_the_sliders_and_a_folder(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id == 'main'")  # a browser follows a link when it has time
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#browser button:text('photos/')").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#browser button:text('ward.png')").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview[src^=data]")
    page.focus("#epsilon")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#epsilon-out") == "2.1"
    assert page.get_attribute("#epsilon", "aria-valuetext") == "epsilon 2.1"
    page.check("input[value=box]")
    for side, value in (("x", 5), ("y", 6), ("w", 50), ("h", 40)):
        page.fill(f"#box-{side}", str(value))
    page.wait_for_selector("#hidden:text('2,048 pixels')")


@pytest.mark.slow
def test_a_run_is_read_compared_and_its_report_runs_nothing(page, served):
    page.goto(f"{served.home}/runs")
    page.click("#runs button:text('first')", timeout=WAIT)
    page.wait_for_selector("#detail h2:text('first')", timeout=WAIT)
    page.click("#detail button:text('Verify')")
    page.wait_for_selector("#detail .bad")  # a made-up run has no ledger, and that is said
    page.click("summary:text('The report')")
    inside = page.frame_locator("iframe.report")
    inside.locator("h1:text('All of it')").wait_for()
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None
    assert "by step" in page.locator("#detail .chart svg").get_attribute("aria-label")
    page.check("#runs input >> nth=0")
    page.check("#runs input >> nth=1")
    page.click("#compare")
    page.wait_for_selector("h2:text('Side by side')")
    assert page.locator(".curve.second").count() == 1
    axe(page)
    page.set_viewport_size({"width": 360, "height": 800})
    assert overflow(page) == 0


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="who holds a lock cannot be seen on this system")
def test_a_run_is_followed_live_and_stopped(page, served, place, make_run_in, steps):  # noqa: F811
    folder = make_run_in(place / "runs", name="live", statement=False, plan={"epochs": 900}).log(*steps(3)).path
    with subprocess.Popen([sys.executable, "-c", TRAINING, str(folder)], stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout.readline() == "holds\n"
        page.goto(f"{served.home}/runs")
        page.click("#runs button:text('live')", timeout=WAIT)
        page.wait_for_selector("#detail .tag.training", timeout=WAIT)
        first = page.inner_text(".facts")
        page.wait_for_selector(f".facts:not(:text-is('{first}'))", timeout=WAIT)
        assert "step" in page.inner_text(".facts")
        assert "777" not in page.content()  # a private run's loss is not shown, whatever its log holds
        page.click("button:text('Stop it')")
        assert training.wait(10) == 0
        page.wait_for_selector("#detail .tag:text('not finished')", timeout=WAIT)


def test_a_page_of_another_site_learns_nothing(chromium, served, tmp_path):
    """A real browser, let in before: a stranger's page asks by every way that a page has."""
    (tmp_path / "index.html").write_text("<!doctype html><title>a stranger's</title>")
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: handler(*a, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context()
    try:
        own = context.new_page()
        own.goto(served.address)
        own.wait_for_selector("#folders:not([hidden])")  # it was let in
        assert context.cookies() == []
        stranger = context.new_page()
        stranger.goto(f"http://localhost:{server.server_port}/")
        for options in ("{}", "{credentials: 'include'}", "{method: 'POST', credentials: 'include', body: '{}'}"):
            asked = f"fetch('{served.home}/api/jobs', {options}).then((r) => r.text(), () => 'blocked')"
            assert stranger.evaluate(asked) == "blocked"
        sent = "{mode: 'no-cors', credentials: 'include'}).then((r) => r.type, () => 'blocked')"
        assert stranger.evaluate(f"fetch('{served.home}/api/jobs', {sent}") in ("opaque", "blocked")
        framed = """(home) => new Promise((done) => {
          const frame = document.createElement('iframe');
          frame.src = home + '/';
          frame.onload = () => done(frame.contentDocument === null ? 'closed' : 'open');
          document.body.append(frame);
        })"""
        assert stranger.evaluate(framed, served.home) == "closed"
        # a tab that has no secret, by hand or by a link: the page holds nothing of anybody's, and says what to do
        assert stranger.goto(f"{served.home}/").status == 200
        stranger.wait_for_selector("#opening:text('this tab is not let in')")
        assert not stranger.is_visible("#folders")
        assert own.evaluate("sessionStorage.length") == 1
        assert stranger.evaluate("sessionStorage.length + localStorage.length") == 0
        # the address again, in the same tab: the page is there already, and is let in all the same
        stranger.goto(served.address)
        stranger.wait_for_selector("#folders:not([hidden])")
        assert stranger.url == f"{served.home}/"
    finally:
        context.close()
        server.shutdown()
