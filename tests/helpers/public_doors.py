"""The doors of releases for pictures and videos that are declared public: for tests that count nothing."""

from functools import partial
from typing import Any

from dpose.release import api, batch
from dpose.release.items import Work
from dpose.release.jobs import Job

pixelize = partial(api.pixelize, public=True)
release_array = partial(api.release_array, public=True)
release_video = partial(api.release_video, public=True)


def release_file(info: Any, out: Any, config: Any, *, workers: int = 1, progress: Any = None, **more: Any) -> Any:
    """Release one video by a configuration; `more` is of `Work`."""
    ((_, statement),) = release_all([Job(info.path, out)], config, workers=workers, progress=progress, **more)
    return statement


def release_all(jobs: Any, config: Any, *, workers: int = 1, progress: Any = None, **more: Any) -> Any:
    """Release files by a configuration; `more` is of `Work`."""
    return batch.release_all(jobs, Work(config, public=True, **more), workers=workers, progress=progress)


def obfuscate_file(info: Any, out: Any, method: str, *, finder: Any = None, **more: Any) -> Any:
    """Obscure one video; `more` is of `Work`."""
    return batch.release_one(Work(None, method, finder, public=True, **more), Job(info.path, out))
