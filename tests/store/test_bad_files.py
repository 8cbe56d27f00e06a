"""Damaged, mismatched and hostile files: one GossamerError, and the model stays as it was."""

from __future__ import annotations

import copy
import json
import os
import stat
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.store import load, read_manifest, save
from gossamer.store.archive import open_archive


class Net(nn.Module):
    def __init__(self, width: int = 8, channels: int = 4) -> None:
        super().__init__()
        self.width = width
        self.shape = (-1, width)
        self.conv = nn.Conv2d(2, channels, 3, groups=2, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.first = nn.Linear(channels, width)
        self.attention = nn.MultiheadAttention(width, 2)
        self.second = nn.Linear(width, width, bias=False)
        self.second.weight = self.attention.out_proj.weight
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("cache", torch.zeros(3), persistent=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = Net(6, 2)
    with torch.no_grad():
        model.first.bias.zero_()
        model.attention.in_proj_weight[2:] = 0
        model.attention.out_proj.weight[:, 3:] = 0
    save(model, tmp_path / "net.safetensors", sparse=True, provenance={"by": "test"})
    return tmp_path / "net.safetensors"


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything that loading might touch, with the identity of the parameters."""
    state = {
        f"tensor {name}": (id(t), t.dtype, t.tolist()) for name, t in model.named_parameters(remove_duplicate=False)
    }
    state |= {f"buffer {name}": (id(t), t.dtype, t.tolist()) for name, t in model.named_buffers()}
    for path, module in model.named_modules():
        state[f"module {path}"] = {name: v for name, v in vars(module).items() if isinstance(v, int | tuple)}
    return state


def refused(path: Path, model: nn.Module) -> str:
    """The one error that loading gives, after checking that nothing has changed."""
    before = snapshot(model)
    with pytest.raises(GossamerError) as caught:
        load(path, model)
    assert snapshot(model) == before
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def rewrite(file: Path, edit: Callable[[dict, dict[str, Tensor]], object]) -> None:
    """What a hostile author does: change manifest and tensors, and make all checksums right again."""
    with safe_open(file, "pt") as handle:
        manifest = json.loads(handle.metadata()["gossamer"].partition(" ")[2])
    tensors = load_file(file)
    edit(manifest, tensors)
    parts = {"dense": ("",), "mask": (".values", ".mask"), "gaps": (".values", ".gaps")}
    for name, record in manifest["tensors"].items():
        try:
            record[3] = 0
            for part in parts[record[2]]:
                record[3] = zlib.crc32(tensors[name + part].flatten().view(torch.uint8).numpy().data, record[3])
        except (KeyError, TypeError, IndexError):
            continue
    write(file, json.dumps(manifest), tensors)


def write(file: Path, manifest: str, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, file, {"gossamer": f"{zlib.crc32(manifest.encode())} {manifest}"})


def test_the_file_itself_loads(file: Path) -> None:
    assert load(file, Net()).width == 6
    rewrite(file, lambda manifest, tensors: None)
    assert load(file, Net()).shape == (-1, 6)


# Damage

DAMAGE = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture
def right(file: Path) -> dict[str, Tensor]:
    return load(file, Net()).state_dict()


def loads_the_same_or_is_refused(path: Path, damaged: bytes, right: dict[str, Tensor]) -> None:
    path.write_bytes(damaged)
    model = Net()
    before = snapshot(model)
    try:
        load(path, model)
    except GossamerError:
        assert snapshot(model) == before
    else:
        assert all(tensor.equal(right[name]) for name, tensor in model.state_dict().items())


@DAMAGE
@given(data=st.data())
def test_flipped_bytes(file: Path, right: dict[str, Tensor], data: st.DataObject) -> None:
    content = bytearray(file.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] ^= data.draw(st.integers(1, 255))
    loads_the_same_or_is_refused(file.with_name("damaged"), bytes(content), right)


@DAMAGE
@given(data=st.data())
def test_truncated_or_spliced(file: Path, right: dict[str, Tensor], data: st.DataObject) -> None:
    content = file.read_bytes()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2)))
    loads_the_same_or_is_refused(file.with_name("damaged"), content[:start] + content[end:], right)
    loads_the_same_or_is_refused(file.with_name("damaged"), content[:end], right)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\xff" * 64, struct.pack("<Q", 2) + b"{}"]
)
def test_other_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net").write_bytes(content)
    refused(tmp_path / "net", Net())


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe", Path("/dev/zero")):
        assert "Give the path of a file" in refused(path, Net())


def test_plain_safetensors_file(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "net")
    assert "without a manifest of gossamer" in refused(tmp_path / "net", Net())


# Another network


def test_another_class(file: Path) -> None:
    assert "holds a" in refused(file, nn.Sequential(nn.Linear(2, 2)))


def test_same_class_name_elsewhere_is_the_same_class(file: Path) -> None:
    moved = type("Net", (Net,), {"__module__": "somewhere.else"})
    assert load(file, moved()).width == 6


def test_other_structure(file: Path) -> None:
    model = Net()
    model.extra = nn.Linear(2, 2)
    assert "different modules: only in the model 'extra'" in refused(file, model)
    model = Net()
    model.free = nn.Parameter(torch.ones(2))
    assert "different tensors: only in the model 'free'" in refused(file, model)
    model = Net()
    model.first.bias = None
    save(model, file)
    assert "'first.bias'" in refused(file, Net())


def test_replaced_module(file: Path) -> None:
    model = Net()
    model.norm = nn.Identity()
    assert "'norm' is a 'torch.nn.modules.batchnorm.BatchNorm2d' in the file" in refused(file, model)


def test_other_settings(file: Path) -> None:
    model = Net()
    model.conv = nn.Conv2d(2, 4, 3, groups=2, bias=False, stride=2)
    assert "'stride' of the module 'conv'" in refused(file, model)


def test_other_types(file: Path) -> None:
    model = Net()
    model.flags = torch.tensor([1.0])
    assert "is a torch.bool in the file and a torch.float32" in refused(file, model)
    model = Net()
    model.first.weight = nn.Parameter(torch.ones(3))
    assert "has the shape" in refused(file, model)


def test_derived_buffer_of_another_size(file: Path) -> None:
    model = Net()
    model.cache = torch.zeros(4)
    assert "persistent=True" in refused(file, model)


def test_lazy_modules(file: Path) -> None:
    model = Net()
    model.first = nn.LazyLinear(8)
    with pytest.raises(GossamerError, match="LazyLinear"):
        load(file, model)


# Hostile authors

HUGE = 2**62
EDITS = {
    "newer format": lambda m, t: m.update(format=2),
    "format true": lambda m, t: m.update(format=True),
    "format missing": lambda m, t: m.pop("format"),
    "more fields": lambda m, t: m.update(code="import os"),
    "fewer fields": lambda m, t: m.pop("ties"),
    "modules a list": lambda m, t: m.update(modules=[]),
    "no modules": lambda m, t: m.update(modules={}),
    "module a text": lambda m, t: m["modules"].update(first="x"),
    "class a number": lambda m, t: m["modules"].update(first=[1, {}]),
    "path trick": lambda m, t: m["modules"].update({"../../etc/passwd": ["x", {}]}),
    "size a float": lambda m, t: m["modules"][""][1].update(width=6.0),
    "size a truth value": lambda m, t: m["modules"][""][1].update(width=True),
    "size a text": lambda m, t: m["modules"][""][1].update(width="6"),
    "size null": lambda m, t: m["modules"][""][1].update(width=None),
    "size negative": lambda m, t: m["modules"][""][1].update(width=-6),
    "size absurd": lambda m, t: m["modules"][""][1].update(width=10**9),
    "size beyond 64 bits": lambda m, t: m["modules"][""][1].update(width=10**30),
    "size another type": lambda m, t: m["modules"][""][1].update(width=[6]),
    "size of another length": lambda m, t: m["modules"][""][1].update(shape=[-1, 6, 6]),
    "size unknown": lambda m, t: m["modules"][""][1].update(height=6),
    "size a method": lambda m, t: m["modules"][""][1].update(forward=6),
    "size private": lambda m, t: m["modules"][""][1].update(_version=6),
    "size of the class": lambda m, t: m["modules"][""][1].update(__class__=6),
    "size the training flag": lambda m, t: m["modules"][""][1].update(training=0),
    "shape with another negative": lambda m, t: m["modules"][""][1].update(shape=[-2, 6]),
    "stride": lambda m, t: m["modules"]["conv"][1].update(stride=[5, 5]),
    "kernel": lambda m, t: m["modules"]["conv"][1].update(kernel_size=[1, 9]),
    "groups zero": lambda m, t: m["modules"]["conv"][1].update(groups=0),
    "groups that do not divide": lambda m, t: m["modules"]["conv"][1].update(in_channels=3),
    "heads that do not divide": lambda m, t: m["modules"]["attention"][1].update(num_heads=4),
    "width of attention": lambda m, t: m["modules"]["attention"][1].update(embed_dim=4, head_dim=2),
    "outputs": lambda m, t: m["modules"]["first"][1].update(out_features=7),
    "features": lambda m, t: m["modules"]["norm"][1].update(num_features=3),
    "tensor record too short": lambda m, t: m["tensors"]["first.weight"].pop(),
    "tensor of unknown type": lambda m, t: m["tensors"]["first.weight"].__setitem__(1, "object"),
    "tensor of unknown encoding": lambda m, t: m["tensors"]["first.weight"].__setitem__(2, "pickle"),
    "tensor of another type": lambda m, t: m["tensors"]["first.weight"].__setitem__(1, "int32"),
    "tensor of another shape": lambda m, t: m["tensors"]["first.weight"].__setitem__(0, [2, 6]),
    "negative shape": lambda m, t: m["tensors"]["first.weight"].__setitem__(0, [-6, -2]),
    "huge shape": lambda m, t: m["tensors"]["first.weight"].__setitem__(0, [HUGE, HUGE]),
    "huge empty shape": lambda m, t: m["tensors"]["first.weight"].__setitem__(0, [0, HUGE]),
    "huge flags": lambda m, t: m["tensors"]["flags"].__setitem__(0, [HUGE]),
    "wrong truth values": lambda m, t: t.update(flags=torch.tensor([7, 0], dtype=torch.uint8).view(torch.bool)),
    "missing tensor": lambda m, t: t.pop("first.weight"),
    "stray tensor": lambda m, t: t.update(stray=torch.ones(1)),
    "stray tensor in both": lambda m, t: (
        t.update(stray=torch.ones(1)),
        m["tensors"].update(stray=[[1], "float32", "dense", 0]),
    ),
    "bias where there is none": lambda m, t: (
        t.update({"second.bias": torch.ones(7)}),
        m["tensors"].update({"second.bias": [[7], "float32", "dense", 0]}),
    ),
    "tie to nothing": lambda m, t: m["ties"].update({"second.weight": "nothing"}),
    "tie to itself": lambda m, t: m["ties"].update({"first.weight": "first.weight"}),
    "tie of other shapes": lambda m, t: m["ties"].update({"second.weight": "first.weight"}),
    "tie of other ranks": lambda m, t: m["ties"].update({"second.weight": "first.bias"}),
    "tie a number": lambda m, t: m["ties"].update({"second.weight": 3}),
    "derived of another shape": lambda m, t: m["derived"].update(cache=[HUGE]),
    "provenance a list": lambda m, t: m.update(provenance=[]),
}


@pytest.mark.parametrize("name", EDITS)
def test_hostile_manifest(file: Path, name: str) -> None:
    rewrite(file, EDITS[name])
    refused(file, Net())


def shrink_gaps(manifest: dict, tensors: dict[str, Tensor]) -> None:
    """A bomb: few bytes that say "many zeros", with attributes that agree."""
    count = 3 * 2**20
    manifest["tensors"]["first.weight"] = [[count, 2], "float32", "gaps", 0]
    del tensors["first.weight"]
    gaps = torch.full((2 * count // 255 + 1,), 255, dtype=torch.uint8)
    gaps[-1] = 2 * count % 255
    tensors.update({"first.weight.values": torch.empty(0), "first.weight.gaps": gaps})
    manifest["modules"]["first"][1]["out_features"] = count


def test_bomb_of_zeros(file: Path) -> None:
    rewrite(file, shrink_gaps)
    message = refused(file, Net())
    assert "first.bias" in message  # the layer's own consistency is looked at first
    rewrite(file, lambda m, t: (m["tensors"].pop("first.bias"), [t.pop(k) for k in list(t) if "first.bias" in k]))
    model = Net()
    model.first.bias = None
    assert "claim to unfold to" in refused(file, model)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 10_000,
        '{"format":NaN}',
        '{"format":1e999}',
        '{"format":-Infinity}',
        '{"format":1,"format":1}',
        '"\\ud800"',
        '{"format":1',
    ],
    ids=lambda text: text[:12],
)
def test_manifest_that_is_no_manifest(file: Path, text: str) -> None:
    write(file, text, load_file(file))
    assert "the manifest cannot be used" in refused(file, Net())


def test_header_longer_than_any_network_needs(file: Path) -> None:
    write(file, " " * (17 * 2**20), {})
    assert "the header cannot be used" in refused(file, Net())


def safetensors_bytes(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "entries",
    [
        {"a": ("F32", [1], [0, 4]), "b": ("F32", [1], [0, 4])},
        {"a": ("F32", [1], [4, 8])},
        {"a": ("F32", [2], [0, 4])},
        {"a": ("F32", [2**40, 2**40], [0, 4])},
        {"a": ("F32", [-1], [0, 4])},
        {"a": ("F4", [8], [0, 4])},
        {"a": ("F32", [1], [0, 2**60])},
    ],
)
def test_header_that_contradicts_itself(tmp_path: Path, entries: dict) -> None:
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": at} for name, (dtype, shape, at) in entries.items()
    }
    (tmp_path / "net").write_bytes(safetensors_bytes(header, b"1234"))
    refused(tmp_path / "net", Net())


def test_type_that_torch_does_not_have(file: Path) -> None:
    content = file.read_bytes()
    assert b'"dtype":"BOOL","shape":[2]' in content
    file.write_bytes(content.replace(b'"dtype":"BOOL","shape":[2]', b'"dtype":"F4",  "shape":[4]'))
    assert "cannot be used" in refused(file, Net())


# What save refuses


def test_graph_module_cannot_be_rebuilt(tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(GossamerError, match="export_onnx"):
        save(graph, tmp_path / "net")
    with pytest.raises(GossamerError, match=r"torch\.export\.save"):
        save(nn.Sequential(graph), tmp_path / "net")
    assert not list(tmp_path.iterdir())


def with_attribute(layer: nn.Module, name: str, value: object) -> nn.Module:
    setattr(layer, name, value)
    return layer


class WithExtraState(nn.Module):
    def get_extra_state(self) -> str:
        return "anything"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.LazyLinear(3), "Run the model once"),
        (with_attribute(nn.Linear(2, 3), "out_features", 4), "needs \\(4, 2\\)"),
        (nn.Linear(2, 3, device="meta"), "meta device"),
        (nn.Linear(2, 3, dtype=torch.complex128), "torch.complex128"),
        (WithExtraState(), "extra state"),
        ({"weight": torch.ones(2)}, "Give a torch.nn.Module"),
    ],
)
def test_models_that_cannot_be_stored(model: nn.Module, message: str, tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=message):
        save(model, tmp_path / "net")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("provenance", [{"loss": float("nan")}, {"model": nn.Linear(1, 1)}, ["a"], {"deep": None}])
def test_provenance_that_is_not_json(provenance: Any, tmp_path: Path) -> None:
    if isinstance(provenance, dict) and "deep" in provenance:
        provenance["deep"] = nested = []
        for _ in range(5000):
            nested.append(nested := [])
    with pytest.raises(GossamerError, match="provenance"):
        save(nn.Linear(1, 1), tmp_path / "net", provenance=provenance)
    assert not list(tmp_path.iterdir())


def test_manifest_can_be_read_without_a_model(file: Path) -> None:
    assert read_manifest(file).provenance == {"by": "test"}
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(GossamerError, match="cannot load"):
        read_manifest(file)


def test_failed_load_leaves_a_model_that_works(file: Path) -> None:
    model = nn.LSTM(3, 4)
    example = torch.randn(2, 1, 3)
    before = copy.deepcopy(model)(example)[0]
    refused(file, model)
    assert model(example)[0].equal(before)


def test_file_that_shrinks_while_it_is_read(file: Path) -> None:
    with open_archive(file) as archive:
        os.truncate(file, 100)  # a mapped file would now kill the process with SIGBUS
        assert archive.tensor("first.weight").shape == (6, 2)


def test_attribute_that_no_tensor_follows(file: Path) -> None:
    class Stepper(Net):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 3

    model = Stepper()
    save(model, file)

    def hostile(manifest: dict, tensors: dict[str, Tensor]) -> None:
        manifest["modules"][""][1]["steps"] = 1

    rewrite(file, hostile)
    assert "not a size that shrinking changes" in refused(file, model)


class Router(nn.Module):
    """`heads`, `parts` and `width` are sizes of tensors; the others are numbers of the same values."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.heads = self.parts = self.top_k = self.window = self.depth = self.filled = width // 2
        self.width = self.largest = width
        self.layer = nn.Linear(4, width)
        self.conv = Strided(4, width, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        heads, limit = self.heads, self.largest
        shape = (*x.shape[:-1], heads, 2)
        x = x + torch.full((1,), self.filled)
        hidden = self.layer(x).view(shape).topk(self.top_k, 1).values.clamp(max=limit)
        for _ in range(getattr(self, "depth")):  # noqa: B009
            hidden = hidden[:, -self.window :]
        return halves(hidden, self).reshape(-1, self.width)


class Strided(nn.Conv2d):
    pass


def halves(x: Tensor, router: Router) -> Tensor:
    return x.unflatten(0, (router.parts, 2))


@pytest.mark.parametrize("name", ["top_k", "window", "depth", "filled", "largest", "stride"])
def test_attribute_that_is_no_size_in_the_code(file: Path, name: str) -> None:
    """Its value would follow the tensors, but what the code does with it is another thing."""
    model = Router()
    save(Router(4), file)
    if name != "stride":
        model.top_k = model.window = model.depth = model.filled = 2
        model.largest = 4
        setattr(model, name, 2 * getattr(model, name))
    else:
        model.top_k = model.window = model.depth = model.filled = 2
        model.largest = 4
        rewrite(file, lambda manifest, _: manifest["modules"]["conv"][1].update(stride=[1, 1]))
    assert f"'{name}' of the module" in (message := refused(file, model))
    assert "not a size that shrinking changes" in message


def test_size_of_a_subclass_that_its_tensors_do_not_have(file: Path) -> None:
    save(Router(), file)
    rewrite(file, lambda manifest, _: manifest["modules"]["conv"][1].update(out_channels=7))
    assert "'out_channels' of the module 'conv'" in refused(file, Router())


def test_attributes_that_are_sizes_in_the_code(file: Path) -> None:
    small, model = Router(4), Router()
    for each in (small, model):
        each.top_k = each.window = each.depth = each.filled = each.largest = 2
    save(small, file)
    loaded = load(file, model)
    assert (loaded.heads, loaded.parts, loaded.width, loaded.conv.out_channels) == (2, 2, 4, 4)


def test_attribute_in_code_without_a_source(file: Path) -> None:
    names: dict[str, Any] = {"nn": nn}
    exec(  # as in a shell
        "class Made(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.width = width\n"
        "        self.layer = nn.Linear(2, width)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x).topk(self.width)\n",
        names,
    )
    save(names["Made"](4), file)
    assert "not a size that shrinking changes" in refused(file, names["Made"](8))


def test_save_refuses_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GossamerError, match="not a plain file"):
        save(nn.Linear(2, 2), tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(os.getuid() != 0, reason="making a device needs root")
def test_save_refuses_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with pytest.raises(GossamerError, match="not a plain file"):
        save(nn.Linear(2, 2), device)
    assert device.is_char_device()


@pytest.mark.parametrize("part", ["[]", "{}"])
def test_a_header_of_very_many_parts(file: Path, part: str) -> None:
    """Two characters of it would take up to 64 bytes of memory."""
    manifest = f'{{"provenance": [{",".join([part] * 2**18)}]}}'
    header = json.dumps({"__metadata__": {"gossamer": f"{zlib.crc32(manifest.encode())} {manifest}"}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "262144 are allowed" in refused(file, Net())
