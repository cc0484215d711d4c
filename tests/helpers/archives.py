"""Archives taken apart and put together again, for tests."""

import io
import json
import zipfile

import numpy as np


def rebuilt(data: bytes, **changes) -> bytes:
    """The archive with some members replaced (None: left out), checksums and all."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        members = {name.removesuffix(".npy"): old.read(name) for name in old.namelist()}
        for name, content in {**members, **changes}.items():
            if content is not None:
                new.writestr(f"{name}.npy", content)
    return out.getvalue()


def npy(array) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array, allow_pickle=True)
    return raw.getvalue()


def edited(data: bytes, edit) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        about = json.loads(np.load(io.BytesIO(file.read("about.npy"))).tobytes())
    edit(about)
    return rebuilt(data, about=npy(np.frombuffer(json.dumps(about).encode(), np.uint8)))
