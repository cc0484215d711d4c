"""The studio's pages and their calls: a table of functions, each from a request's JSON to its answer's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dpose.errors import DposeError
from dpose.files import file_text
from dpose.media.headers import KINDS
from dpose.media.kinds import CONTAINERS
from dpose.studio.jobs import Jobs, ReleaseJob
from dpose.studio.opened import OpenedFile, OpenedFiles
from dpose.studio.roots import Roots, Workplace
from dpose.studio.security import REPORT_POLICY, Door, Guard

HERE = Path(__file__).parent
MOST_JSON = 64 << 10
"""Largest body of a call, bytes."""
NESTED = "the page sent what is nested too deeply: a value is a text, a number, or a list of numbers"
VIEWS = {"/": "release", "/plan": "plan", "/runs": "runs", "/counts": "counts", "/account": "account"}
Body = Mapping[str, Any]


@dataclass
class Studio:
    """State that the calls share.

    Attributes:
        door: Decides which requests are let in.
        roots: Folders that may be read.
        out: Folder that releases are written to.
        workplace: Private folder for copies of opened files.
        files: Opened files.
        jobs: Releases.
        resumed: Trainings that were resumed from here; created on first use.
    """

    door: Door
    roots: Roots
    out: Path
    workplace: Workplace
    files: OpenedFiles = field(init=False)
    jobs: Jobs = field(default_factory=Jobs)
    resumed: Any = None

    def __post_init__(self) -> None:
        self.files = OpenedFiles(self.workplace)

    def close(self) -> None:
        """Stop all jobs and remove the private folder."""
        self.jobs.close()
        self.workplace.close()


def _open_file(studio: Studio, body: Body) -> dict[str, Any]:
    """Open a picture or clip of a folder."""
    return _file_json(studio, studio.files.open(studio.roots.find(body.get("place")), studio.roots))


def _browse(studio: Studio, body: Body) -> dict[str, Any]:
    """List a folder, with the folder that releases are written to."""
    from dpose.studio.runs_view import folder_entries

    return folder_entries(studio.roots, body) | {"out": str(studio.out)}


def _preview(studio: Studio, body: Body) -> dict[str, Any]:
    """Preview a release, with the numbers of its plan."""
    from dpose.studio.preview import previewed
    from dpose.studio.settings import wanted

    opened = studio.files.get(body.get("file"))
    return previewed(opened, wanted(body, *opened.size, clip=opened.clip))


def _standing(studio: Studio, body: Body) -> dict[str, Any]:
    """Compare a planned release with the account."""
    from dpose.studio.account_view import stands
    from dpose.studio.settings import wanted

    opened = studio.files.get(body.get("file"))
    return stands(opened, wanted(body, *opened.size, clip=opened.clip))


def _release(studio: Studio, body: Body) -> dict[str, Any]:
    """Queue the release of an opened file, or of all files of a folder with the settings of an opened one."""
    from dpose.media.images import MAX_PIXELS
    from dpose.studio.jobs import release_memory
    from dpose.studio.settings import wanted

    opened = studio.files.get(body.get("file"))
    height, width = opened.size
    wanted(body, height, width, clip=opened.clip)  # refuse wrong settings before queueing
    folder = studio.roots.find(body["folder"]) if body.get("folder") else None
    if folder is not None and (opened.clip or not folder.is_dir() or folder not in opened.source.parents):
        raise DposeError(
            "folder-settings-missing", "a folder is released with the settings of a picture in it", fix="open one of it"
        )
    task = opened.task(
        kind=opened.facts["kind"],
        height=height,
        width=width,
        settings=dict(body),
        out=str(studio.out),
        again=body.get("again") is True,
        memory=release_memory(MAX_PIXELS if folder else height * width, clip=opened.clip),
    )
    if folder is not None:
        task |= {"source": str(folder), "seen": task["source"]}
    elif opened.dropped:  # by name alone: the copy's folder must not enter the account
        task["source"] = opened.source.name
    studio.files.hold(opened.id, busy=True)
    job = studio.jobs.add(
        folder.name if folder else opened.source.name,
        task,
        opened.source.parent if opened.dropped else None,
        lambda: studio.files.hold(opened.id, busy=False),
    )
    return _job_json(studio, job)


def _jobs(studio: Studio, body: Body) -> dict[str, Any]:
    """List all jobs with their progress."""
    return {"jobs": [_job_json(studio, job) for job in studio.jobs.all()]}


def _stop_job(studio: Studio, body: Body) -> dict[str, Any]:
    """Stop a job."""
    return _job_json(studio, studio.jobs.stop(body.get("job")))


def _verify_job(studio: Studio, body: Body) -> dict[str, Any]:
    """Verify the files that a job wrote."""
    from dpose.release.verify import verify_release
    from dpose.studio.jobs import ENDED

    job = studio.jobs.get(body.get("job"))
    if job.state not in ENDED:
        raise DposeError("job-unfinished", "is not finished", job.name, "wait for it")
    lines, holds = [], True
    for path in job.files:
        if path.suffix == ".json":
            continue
        try:
            lines.append(verify_release(path)[1].replace(str(path), path.name))
        except DposeError as error:
            lines, holds = [*lines, error.line().replace(str(path), path.name)], False
    return {"lines": lines, "holds": holds}


def _methods(studio: Studio, body: Body) -> dict[str, Any]:
    """List the methods that can be planned."""
    from dpose.studio.planning import private_methods

    return {"methods": private_methods()}


def _plan(studio: Studio, body: Body) -> dict[str, Any]:
    """Plan a training."""
    from dpose.studio.planning import planned

    return planned(body)


def _curve(studio: Studio, body: Body) -> dict[str, Any]:
    """Compute epsilon against noise for a plan."""
    from dpose.studio.planning import noise_curve

    return noise_curve(body)


def _runs(studio: Studio, body: Body) -> dict[str, Any]:
    """List all runs."""
    from dpose.studio.runs_view import run_list

    return {"runs": run_list(studio.roots), "folders": len(studio.roots.folders)}


def _run(studio: Studio, body: Body) -> dict[str, Any]:
    """Describe one run."""
    from dpose.studio.runs_view import run_detail

    detail = run_detail(_folder(studio, body), _resumed(studio))
    return detail | {"report": studio.door.keyed(f"/report/{body['run']}") if detail["report"] else ""}


def _verify(studio: Studio, body: Body) -> dict[str, Any]:
    """Verify a run."""
    from dpose.studio.runs_view import verify_lines

    return verify_lines(_folder(studio, body))


def _stop(studio: Studio, body: Body) -> dict[str, Any]:
    """Stop a training run."""
    from dpose.studio.runs_view import stop_run

    return stop_run(_folder(studio, body))


def _resume(studio: Studio, body: Body) -> dict[str, Any]:
    """Resume a stopped run."""
    _resumed(studio).start(_folder(studio, body))
    return {"said": "It goes on from its last checkpoint. It may take a minute until the next step is there."}


def _predict(studio: Studio, body: Body) -> dict[str, Any]:
    """Try a run's model on an opened picture."""
    from dpose.studio.jobs import answer
    from dpose.studio.settings import drawn_box

    opened, folder = studio.files.get(body.get("file")), _folder(studio, body)
    if opened.clip:
        raise DposeError(
            "clip-unsupported", "is a clip", opened.source.name, "try the model on a picture; dpose predict takes clips"
        )
    out = opened.room / "predicted.jpg"
    box = drawn_box(body["box"], *opened.size) if body.get("box") else None
    task = opened.task(run=str(folder), out=str(out), box=box)
    # the memory that a model takes is not known beforehand
    joints = answer("predict", task, seconds=180, memory=0)["joints"]
    return {"joints": joints, "picture": studio.door.keyed(f"/files/{opened.id}/{out.name}")}


def _counts(studio: Studio, body: Body) -> dict[str, Any]:
    """List all counts, of live sources the last 24 hours."""
    from datetime import datetime

    from dpose.studio.counts_view import count_list

    return {"counts": count_list(studio.roots, datetime.now()), "folders": len(studio.roots.folders)}


def _account(studio: Studio, body: Body) -> dict[str, Any]:
    """Show the whole account."""
    from dpose.studio.account_view import whole_account

    return whole_account()


def _history(studio: Studio, body: Body) -> dict[str, Any]:
    """Show the history of one opened picture or clip."""
    from dpose.studio import account_view
    from dpose.studio.jobs import answer

    opened = studio.files.get(body.get("file"))
    if "hashes" not in opened.facts:
        opened.facts |= answer("marks", opened.task(), seconds=600)
    return account_view.picture_history(opened.source.name, opened.facts["hashes"])


CALLS: Mapping[str, Callable[[Studio, Body], dict[str, Any]]] = {
    one.__name__[1:]: one
    for one in (
        *(_open_file, _browse, _preview, _standing, _release, _jobs, _stop_job, _verify_job),
        *(_methods, _plan, _curve),
        *(_runs, _run, _verify, _stop, _resume, _predict),
        *(_counts, _account, _history),
    )
}
"""Calls by the name that a page uses."""


def _file_json(studio: Studio, opened: OpenedFile) -> dict[str, Any]:
    return opened.as_json() | {"shown": studio.door.keyed(f"/files/{opened.id}/shown.jpg")}


def _job_json(studio: Studio, job: ReleaseJob) -> dict[str, Any]:
    links = [studio.door.keyed(f"/written/{job.id}/{path.name}") for path in job.files]
    return job.as_json() | {"links": links}


def _folder(studio: Studio, body: Body) -> Path:
    return studio.roots.closed(studio.roots.find(body.get("run")))


def _resumed(studio: Studio) -> Any:
    from dpose.studio.runs_view import Resumed

    if studio.resumed is None:
        studio.resumed = Resumed()
    return studio.resumed


def make_app(studio: Studio) -> ASGIApp:
    """Build the studio's ASGI application, behind its guard."""
    pages = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
    )

    def page(view: str) -> Any:
        async def shown(request: Request) -> Response:
            # the same for everybody: names of folders are sent only in answer to the secret
            return HTMLResponse(
                pages.get_template(f"{view}.html").render(view=view, views=VIEWS, pictures=KINDS, clips=CONTAINERS)
            )

        return shown

    def call(function: Callable[[Studio, Body], dict[str, Any]]) -> Any:
        async def called(request: Request) -> Response:
            body = await _json(request)
            return _Answer(await run_in_threadpool(function, studio, body))

        return called

    async def upload(request: Request) -> Response:
        path = await studio.files.receive(request.query_params.get("name", ""), request.stream())
        return _Answer(_file_json(studio, await run_in_threadpool(studio.files.open, path)))

    async def file(request: Request) -> Response:
        opened, name = studio.files.get(request.path_params["file"]), request.path_params["name"]
        if name not in ("shown.jpg", "predicted.jpg") or not (opened.room / name).is_file():
            raise DposeError("picture-missing", "there is no such picture", name)
        return FileResponse(opened.room / name)

    async def written(request: Request) -> Response:
        job = studio.jobs.get(request.path_params["job"])
        matches = [path for path in job.files if path.name == request.path_params["name"]]
        if not matches or not matches[0].is_file():
            raise DposeError("file-missing", "there is no such file any more", request.path_params["name"])
        kind = "inline" if matches[0].suffix in (".png", ".jpg") and "show" in request.query_params else "attachment"
        return FileResponse(matches[0], filename=matches[0].name, content_disposition_type=kind)

    async def report(request: Request) -> Response:
        folder = await run_in_threadpool(_folder, studio, {"run": request.path_params["run"]})
        if not (folder / "report.html").is_file():
            raise DposeError("report-missing", "has no report", folder.name, "dpose report writes one")
        text = file_text(folder / "report.html", errors="replace")
        return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY})

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, DposeError)
        return _Answer({"error": error.line(), "code": error.code}, 400)

    async def broken(request: Request, error: Exception) -> Response:
        # an internal error's message may hold a path or a value: only its type is shown
        message = f"this is a fault of dpose ({type(error).__name__}); nothing was released by this request"
        return _Answer({"error": message}, 500)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(studio.close)

    routes = [
        *(Route(path, page(view)) for path, view in VIEWS.items()),
        *(Route(f"/api/{name}", call(one), methods=["POST"]) for name, one in CALLS.items()),
        Route("/api/upload", upload, methods=["PUT"]),
        Route("/files/{file}/{name}", file),
        Route("/written/{job}/{name}", written),
        Route("/report/{run:path}", report),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    inner = Starlette(routes=routes, lifespan=life, exception_handlers={DposeError: failed, Exception: broken})
    return Guard(inner, studio.door, frozenset(VIEWS))


class _Answer(JSONResponse):
    """JSON in ASCII: lone surrogates, in a file's name or in what a page has sent, are escaped."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False).encode()


async def _json(request: Request) -> Body:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_JSON:
            raise DposeError("request-too-large", "the page asks for too much at once")
    try:
        body = json.loads(data or b"{}")
    except RecursionError:
        raise DposeError("json-nested-too-deeply", NESTED) from None
    except ValueError as error:
        raise DposeError("json-invalid", "the page sent no JSON") from error
    if not isinstance(body, dict):
        raise DposeError("json-not-object", "the page sent no JSON object")
    held = [value for row in body.values() for value in (row if isinstance(row, list) else [row])]
    if any(isinstance(value, dict | list) for value in held):
        raise DposeError("json-nested-too-deeply", NESTED)
    return body
