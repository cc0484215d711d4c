"""Archives taken apart and put together again, for tests."""

import io
import json
import zipfile

import numpy as np

from dpose.release.archive import _deflated, _framed


def rebuilt(data: bytes, **changes) -> bytes:
    """The archive with some members replaced (None: left out), checksums and all, written as dpose writes one."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members = {**members, **{f"{name}.npy": content for name, content in changes.items()}}
    members = {name: content for name, content in members.items() if content is not None}
    return _framed(members, [_deflated(content, 9) for content in members.values()])


def npy(array) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array, allow_pickle=True)
    return raw.getvalue()


def edited(data: bytes, edit) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        about = json.loads(np.load(io.BytesIO(file.read("about.npy"))).tobytes())
    edit(about)
    return rebuilt(data, about=npy(np.frombuffer(json.dumps(about, separators=(",", ":")).encode(), np.uint8)))
