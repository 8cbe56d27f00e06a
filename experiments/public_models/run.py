"""Shrink networks of public packages with half of their units dead.

    pip install --no-deps --target PACKAGES pytorchcv efficientnet_pytorch monai transformers x-transformers ...
    OMP_NUM_THREADS=1 PYTHONPATH=PACKAGES python experiments/public_models/run.py     # writes results.jsonl

In every linear and convolutional layer half of the output units, drawn at random, get zero weights and biases; batch
norms get zero shifts. `shrink` raises an error if the outputs change.
"""

from __future__ import annotations

import json
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import gossamer
from gossamer.files import write_atomically

FILE = Path(__file__).with_name("results.jsonl")
IMAGE, PHOTO, LARGE = torch.randn(1, 3, 64, 64), torch.randn(1, 3, 224, 224), torch.randn(1, 3, 299, 299)
TOKENS = {"input_ids": torch.randint(0, 90, (1, 9))}

PYTORCHCV = [
    "resnet18",
    "resnet50",
    "preresnet18",
    "densenet121",
    "mobilenetv2_w1",
    "mobilenetv3_large_w1",
    "seresnet18",
    "senet16",
    "cbam_resnet18",
    "efficientnet_b0",
    "ghostnet",
    "squeezenet_v1_1",
    "shufflenetv2_w1",
    "shufflenet_g3_w1",
    "resnext50_32x4d",
    "regnetx002",
    "dpn68",
    "hrnet_w18_small_v1",
    "inceptionv3",
    "xception",
    "vgg11",
]
MONAI = {
    "UNet": (
        {
            "spatial_dims": 2,
            "in_channels": 3,
            "out_channels": 2,
            "channels": (16, 32, 64, 128),
            "strides": (2, 2, 2),
            "num_res_units": 2,
        },
        IMAGE,
    ),
    "BasicUNet": ({"spatial_dims": 2, "in_channels": 3, "out_channels": 2}, IMAGE),
    "SegResNet": ({"spatial_dims": 2, "in_channels": 3, "out_channels": 2}, IMAGE),
    "ViT": (
        {
            "in_channels": 3,
            "img_size": (64, 64),
            "patch_size": (16, 16),
            "spatial_dims": 2,
            "hidden_size": 96,
            "mlp_dim": 192,
            "num_layers": 3,
            "num_heads": 4,
        },
        IMAGE,
    ),
}
SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TRANSFORMERS = {
    "BertModel": ("BertConfig", SMALL, TOKENS),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "use_cache": False},
        TOKENS,
    ),
    "LlamaForCausalLM": ("LlamaConfig", {**SMALL, "num_key_value_heads": 2, "use_cache": False}, TOKENS),
    "T5EncoderModel": (
        "T5Config",
        {"vocab_size": 100, "d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 128},
        TOKENS,
    ),
    "DistilBertModel": (
        "DistilBertConfig",
        {"vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        TOKENS,
    ),
    "ViTModel": (
        "ViTConfig",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "image_size": 64,
        },
        IMAGE,
    ),
    "ResNetModel": ("ResNetConfig", {}, IMAGE),
    "ConvNextModel": ("ConvNextConfig", {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 48, 64]}, IMAGE),
}


def from_pytorchcv(name: str) -> nn.Module:
    # pytorchcv imports torchvision for one operation that none of these networks uses.
    vision, operations = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
    operations.DeformConv2d, operations.deform_conv2d, vision.ops = object, None, operations
    sys.modules.update({"torchvision": vision, "torchvision.ops": operations})
    try:
        from pytorchcv.model_provider import get_model

        return get_model(name, pretrained=False)
    finally:
        del sys.modules["torchvision"], sys.modules["torchvision.ops"]


def from_efficientnet() -> nn.Module:
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0")


def from_monai(name: str) -> nn.Module:
    import monai.networks.nets as nets

    return getattr(nets, name)(**MONAI[name][0])


def from_transformers(name: str) -> nn.Module:
    import transformers

    config, settings, _ = TRANSFORMERS[name]
    return getattr(transformers, name)(getattr(transformers, config)(**settings))


def from_x_transformers() -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(num_tokens=100, max_seq_len=16, attn_layers=Decoder(dim=64, depth=2, heads=4))


@torch.no_grad()
def kill_half(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd) or type(layer).__name__ == "Conv1D":
            outputs = (
                1 if isinstance(layer, nn.modules.conv._ConvTransposeNd) or type(layer).__name__ == "Conv1D" else 0
            )
            units = layer.weight.shape[outputs]
            dead = torch.randperm(units, generator=generator)[: units // 2]
            layer.weight.index_fill_(outputs, dead, 0)
            if layer.bias is not None and len(layer.bias) == units:
                layer.bias[dead] = 0
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.bias.zero_()
    return model


def cases() -> list[tuple[str, str, Callable[[], nn.Module], object]]:
    large = {"inceptionv3", "xception"}
    found = [("pytorchcv", n, lambda n=n: from_pytorchcv(n), LARGE if n in large else PHOTO) for n in PYTORCHCV]
    found.append(("efficientnet_pytorch", "efficientnet-b0", from_efficientnet, PHOTO))
    found += [("monai", n, lambda n=n: from_monai(n), MONAI[n][1]) for n in MONAI]
    found += [("transformers", n, lambda n=n: from_transformers(n), TRANSFORMERS[n][2]) for n in TRANSFORMERS]
    found.append(("x-transformers", "Decoder", from_x_transformers, TOKENS["input_ids"]))
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for package, name, make, example in cases():
        torch.manual_seed(0)
        model = kill_half(make().eval())
        started = time.perf_counter()
        plan = gossamer.plan(model, example)
        row = {
            "package": package,
            "network": name,
            "form": plan.form,
            "parameters": plan.weights_before,
            "left": plan.weights_after,
            "seconds": round(time.perf_counter() - started, 1),
            "unexplained": sum("please report" in reason for channels in plan.channels for reason in channels.reasons),
        }
        rows.append(row)
        print(f"{package:22} {name:24} {plan.form:7} {plan.weights_after / plan.weights_before:7.1%}", flush=True)
    write_atomically(FILE, "".join(json.dumps(row) + "\n" for row in rows).encode())


if __name__ == "__main__":
    main()
