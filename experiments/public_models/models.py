"""The networks of public packages: how each one is made, and what it is called with.

Networks of transformers come from small configurations (two layers, narrow, the real structure); those of the other
packages have their published sizes, or fewer blocks where a row would take minutes. Nothing is downloaded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

__all__ = ["CASES", "Case"]

Inputs = Callable[[int, int], Any]


@dataclass(frozen=True)
class Case:
    """One network. `inputs(batch, size)` is what it is called with; `sizes` are a size and another one."""

    package: str
    network: str
    make: Callable[[], nn.Module]
    inputs: Inputs
    sizes: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.package}/{self.network}"


class _StubClass(type):
    """A class of which every attribute is its own name (the members of an enumeration)."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Stub(types.ModuleType):
    """A module of which every attribute is an empty class: enough for an import that is never used."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StubClass(name, (), {})


class _StubFinder:
    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, _StubFinder()) if name.split(".")[0] == "torchvision" else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        del module


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """Packages import torchvision for transforms and for operations that these networks do not use."""
    sys.meta_path.append(_StubFinder())  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.meta_path.pop()
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]


def images(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 3, size, size)


def volumes(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 1, size, size, size)


def sound(batch: int, size: int) -> Tensor:
    return torch.randn(batch, size)


def spectra(batch: int, size: int) -> dict[str, Tensor]:
    return {"input_features": torch.randn(batch, 16, size), "decoder_input_ids": torch.randint(0, 90, (batch, 5))}


def tokens(batch: int, size: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, 90, (batch, size))}


def padded(batch: int, size: int) -> dict[str, Tensor]:
    """Tokens of which the last sequence is padded: the usual call of an encoder."""
    mask = torch.ones(batch, size, dtype=torch.long)
    mask[-1, -2:] = 0
    return {**tokens(batch, size), "attention_mask": mask}


def pairs(batch: int, size: int) -> dict[str, Tensor]:
    return {**padded(batch, size), "decoder_input_ids": torch.randint(0, 90, (batch, size - 2))}


def ids(batch: int, size: int) -> Tensor:
    return torch.randint(0, 90, (batch, size))


def _timm(name: str, sizes: tuple[int, int] = (64, 96), **options: Any) -> Case:
    def make() -> nn.Module:
        with _without_torchvision():
            import timm

            return timm.create_model(name, num_classes=10, **options)

    return Case("timm", name, make, images, sizes)


def _pytorchcv(name: str, sizes: tuple[int, int] = (224, 224)) -> Case:
    def make() -> nn.Module:
        with _without_torchvision():
            from pytorchcv.model_provider import get_model

            return get_model(name, pretrained=False)

    return Case("pytorchcv", name, make, images, sizes)


def _monai(name: str, sizes: tuple[int, int] = (64, 96), inputs: Inputs = images, **options: Any) -> Case:
    def make() -> nn.Module:
        import monai.networks.nets as nets

        return getattr(nets, name)(**options)

    return Case("monai", name, make, inputs, sizes)


def _segmentation(name: str, encoder: str) -> Case:
    def make() -> nn.Module:
        with _without_torchvision():
            import segmentation_models_pytorch as models

            return getattr(models, name)(encoder, encoder_weights=None, classes=2)

    return Case("segmentation_models_pytorch", f"{name} {encoder}", make, images, (64, 96))


def _vit_pytorch(name: str, module: str, **options: Any) -> Case:
    def make() -> nn.Module:
        with _without_torchvision():
            import importlib

            return getattr(importlib.import_module(f"vit_pytorch.{module}"), name)(**options)

    return Case("vit-pytorch", name, make, images, (64, 64))


def _efficientnet() -> nn.Module:
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0")


def _x_transformers(kind: str) -> Case:
    def make() -> nn.Module:
        import x_transformers

        layers = getattr(x_transformers, kind)(dim=64, depth=2, heads=4)
        return x_transformers.TransformerWrapper(num_tokens=100, max_seq_len=16, attn_layers=layers)

    return Case("x-transformers", kind, make, ids, (9, 13))


def _transformers(
    name: str, inputs: Inputs = tokens, sizes: tuple[int, int] = (9, 13), config: str = "", **options: Any
) -> Case:
    def make() -> nn.Module:
        import transformers

        model = getattr(transformers, name)
        settings = getattr(transformers, config) if config else model.config_class
        return model(settings(**options, use_cache=False))

    return Case("transformers", name, make, inputs, sizes)


def _detection(name: str) -> Case:
    def make() -> nn.Module:
        import transformers

        model = getattr(transformers, name)
        return model(model.config_class(**DETECTION, backbone_config=transformers.ResNetConfig(**BACKBONE)))

    return Case("transformers", name, make, images, (64, 96))


ENCODER = {
    "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip
VISION = {key: value for key, value in ENCODER.items() if key != "vocab_size"}
DECODER = {**ENCODER, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PAIR = {
    "vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {"vocab_size": 100, "d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 128}
SOUND = {
    **VISION, "conv_dim": (32, 32), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 32,
}  # fmt: skip
VIT = {"image_size": 64, "patch_size": 16}
DETECTION = {
    **{key: value for key, value in PAIR.items() if "token" not in key and key != "vocab_size"}, "num_queries": 10,
    "num_labels": 5, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
}  # fmt: skip
BACKBONE = {
    "embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "layer_type": "basic",
    "out_features": ["stage4"],
}  # fmt: skip

TRANSFORMERS = (
    _transformers("BertModel", padded, **ENCODER),
    _transformers("BertForSequenceClassification", **ENCODER),
    _transformers("RobertaModel", padded, **ENCODER),
    _transformers("AlbertModel", padded, **ENCODER, embedding_size=32),
    _transformers("ElectraModel", padded, **ENCODER, embedding_size=32),
    _transformers(
        "DistilBertModel", padded, vocab_size=100, dim=64, n_layers=2, n_heads=4, hidden_dim=128
    ),
    _transformers("DebertaModel", padded, **ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _transformers("DebertaV2Model", padded, **ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _transformers("MPNetModel", padded, **ENCODER),
    _transformers("ConvBertModel", padded, **ENCODER, embedding_size=64),
    _transformers("SqueezeBertModel", padded, **ENCODER, embedding_size=64),
    _transformers("GPT2LMHeadModel", vocab_size=100, n_embd=64, n_layer=2, n_head=4),
    _transformers(
        "GPTNeoForCausalLM", vocab_size=100, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128,
        attention_types=[[["global", "local"], 1]], window_size=4,
    ),
    _transformers("GPTNeoXForCausalLM", **ENCODER),
    _transformers("GPTJForCausalLM", vocab_size=100, n_embd=64, n_layer=2, n_head=4, rotary_dim=8),
    _transformers("OPTForCausalLM", **{**DECODER, "num_key_value_heads": 4}, ffn_dim=128, word_embed_proj_dim=64),
    _transformers("BloomForCausalLM", vocab_size=100, hidden_size=64, n_layer=2, n_head=4),
    _transformers("FalconForCausalLM", vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4),
    *(
        _transformers(f"{name}ForCausalLM", **DECODER)
        for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Phi", "Phi3", "StableLm", "Gemma", "Gemma2", "Olmo")
    ),
    _transformers("MixtralForCausalLM", **DECODER, num_local_experts=4),
    _transformers("Qwen2MoeForCausalLM", **DECODER, num_experts=4, moe_intermediate_size=48),
    _transformers("T5Model", pairs, **T5),
    _transformers("T5EncoderModel", padded, **T5),
    _transformers("MT5EncoderModel", padded, **T5),
    _transformers("BartModel", pairs, **PAIR),
    _transformers("MBartModel", pairs, **PAIR),
    _transformers("PegasusModel", pairs, **PAIR),
    _transformers("MarianModel", pairs, **PAIR),
    _transformers("BlenderbotSmallModel", pairs, **PAIR),
    _transformers("WhisperModel", spectra, (40, 40), **PAIR, num_mel_bins=16, max_source_positions=20),
    _transformers("ViTModel", images, (64, 64), **VISION, **VIT),
    _transformers("DeiTModel", images, (64, 64), **VISION, **VIT),
    _transformers("BeitModel", images, (64, 64), **VISION, **VIT),
    _transformers("Dinov2Model", images, (56, 84), **VISION, image_size=56),
    _transformers("CLIPVisionModel", images, (64, 64), config="CLIPVisionConfig", **VISION, **VIT),
    _transformers("CLIPTextModel", padded, config="CLIPTextConfig", **ENCODER, eos_token_id=2),
    _transformers("SiglipVisionModel", images, (64, 64), config="SiglipVisionConfig", **VISION, **VIT),
    _transformers(
        "SwinModel", images, (64, 96), embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, image_size=64
    ),
    _transformers("ConvNextModel", images, (64, 96), depths=[1, 1, 2, 1], hidden_sizes=[16, 32, 48, 64]),
    _transformers("ConvNextV2Model", images, (64, 96), depths=[1, 1, 2, 1], hidden_sizes=[16, 32, 48, 64]),
    _transformers("ResNetModel", images, (64, 96)),
    _transformers(
        "RegNetModel", images, (64, 96), hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 2, 1], groups_width=16
    ),
    _transformers("MobileNetV2Model", images, (64, 96)),
    _transformers("MobileViTModel", images, (64, 96)),
    _transformers("SegformerModel", images, (64, 96), depths=[1, 1, 1, 1]),
    _transformers("PoolFormerModel", images, (64, 96), depths=[1, 1, 1, 1]),
    _detection("DetrForObjectDetection"),
    _detection("ConditionalDetrForObjectDetection"),
    _detection("TableTransformerForObjectDetection"),
    _transformers("Wav2Vec2Model", sound, (800, 1000), **SOUND),
    _transformers("HubertModel", sound, (800, 1000), **SOUND),
)  # fmt: skip

TIMM = (
    *(
        _timm(name)
        for name in (
            "resnet18", "resnet50", "resnetv2_50", "resnext50_32x4d", "seresnet50", "ecaresnet26t", "res2net50_26w_4s",
            "resnest14d", "skresnet18", "densenet121", "dla34", "dla60x_c", "vgg11_bn", "mobilenetv2_100",
            "mobilenetv3_large_100", "efficientnet_b0", "tf_efficientnetv2_b0", "mnasnet_small", "lcnet_050",
            "ghostnet_100", "rexnet_100", "hardcorenas_a", "tinynet_e", "convnext_atto", "convnextv2_atto",
            "regnetx_002", "regnety_002", "repvgg_a0", "mobileone_s0", "hrnet_w18_small", "dpn68", "xception41",
            "selecsls42b", "cspresnet50", "poolformer_s12", "poolformerv2_s12", "edgenext_xx_small", "nf_regnet_b0",
            "nf_resnet26", "inception_next_atto", "starnet_s1", "pvt_v2_b0", "mobilevit_xxs", "efficientvit_b0",
            "focalnet_tiny_srf",
        )
    ),
    _timm("inception_v3", (96, 128)),
    _timm("inception_v4", (96, 128)),
    _timm("vit_tiny_patch16_224", (224, 224), depth=3),
    _timm("deit_tiny_patch16_224", (224, 224), depth=3),
    _timm("deit3_small_patch16_224", (224, 224), depth=2),
    _timm("cait_xxs24_224", (224, 224), depth=2),
    _timm("beit_base_patch16_224", (224, 224), depth=1),
    _timm("eva02_tiny_patch14_224", (224, 224), depth=2),
    _timm("mixer_s32_224", (224, 224)),
    _timm("resmlp_12_224", (224, 224)),
    _timm("gmlp_s16_224", (224, 224)),
    _timm("swin_tiny_patch4_window7_224", (224, 224), depths=(1, 1, 1, 1)),
    _timm("xcit_nano_12_p16_224", (224, 224), depth=2),
    _timm("pit_ti_224", (224, 224), depth=(1, 1, 1)),
    _timm("visformer_tiny", (224, 224)),
    _timm("levit_128s", (224, 224)),
    _timm("maxvit_rmlp_pico_rw_256", (256, 256)),
    _timm("coatnet_nano_rw_224", (224, 224)),
    _timm("sequencer2d_s", (224, 224), layers=(1, 1, 1, 1)),
)  # fmt: skip

OTHERS = (
    *(
        _pytorchcv(name)
        for name in (
            "preresnet18", "senet16", "cbam_resnet18", "squeezenet_v1_1", "shufflenetv2_w1", "shufflenet_g3_w1",
            "igcv3_w1", "menet108_8x1_g3", "diracnet18v2", "condensenet74_c4_g4",
        )
    ),
    Case("efficientnet_pytorch", "efficientnet-b0", _efficientnet, images, (64, 96)),
    _monai(
        "UNet", spatial_dims=2, in_channels=3, out_channels=2, channels=(16, 32, 64), strides=(2, 2), num_res_units=2
    ),
    _monai("BasicUNet", spatial_dims=2, in_channels=3, out_channels=2),
    _monai("SegResNet", spatial_dims=2, in_channels=3, out_channels=2),
    _monai("AttentionUnet", spatial_dims=2, in_channels=3, out_channels=2, channels=(8, 16, 32), strides=(2, 2)),
    _monai("DynUNet", spatial_dims=2, in_channels=3, out_channels=2, kernel_size=[3, 3, 3], strides=[1, 2, 2],
           upsample_kernel_size=[2, 2]),
    _monai("VNet", (32, 48), volumes, spatial_dims=3, in_channels=1, out_channels=2),
    _monai("ViT", (64, 64), in_channels=3, img_size=(64, 64), patch_size=(16, 16), spatial_dims=2, hidden_size=96,
           mlp_dim=192, num_layers=3, num_heads=4),
    _segmentation("Unet", "tu-resnet18"),
    _segmentation("FPN", "tu-resnet18"),
    _segmentation("Linknet", "tu-resnet18"),
    _segmentation("DeepLabV3Plus", "tu-resnet18"),
    _vit_pytorch("ViT", "vit", image_size=64, patch_size=16, num_classes=10, dim=64, depth=2, heads=4, mlp_dim=128),
    _vit_pytorch("SimpleViT", "simple_vit", image_size=64, patch_size=16, num_classes=10, dim=64, depth=2, heads=4,
                 mlp_dim=128),
    _x_transformers("Decoder"),
    _x_transformers("Encoder"),
)  # fmt: skip

CASES: dict[str, Case] = {case.name: case for case in (*TRANSFORMERS, *TIMM, *OTHERS)}
