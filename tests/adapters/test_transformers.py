"""The Trainer of Hugging Face trains, checkpoints, is killed and resumes, with BERT and GPT-2 from configurations."""

import pytest
import torch
from safetensors.torch import load_file

import gossamer
from gossamer import GossamerError

from .interrupted import die, run_until_killed

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from gossamer.adapters.transformers import SparsityCallback  # noqa: E402

EXAMPLE = {"input_ids": torch.arange(24).reshape(2, 12)}


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, num_labels=2,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


MODELS = {"bert": bert, "gpt2": gpt2}
INNER = {"bert": "bert.encoder.layer.0.intermediate.dense.weight", "gpt2": "transformer.h.0.mlp.c_fc.weight"}


def data(kind):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 32, (64, 12), generator=generator)
    labels = (ids[:, 0] > 15).long() if kind == "bert" else ids
    return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


def on_units(model):
    """On the inner units of the feed-forward layers."""
    inner = [name for name, _ in model.named_modules() if name.endswith(("intermediate.dense", "mlp.c_fc"))]
    return gossamer.group_lasso(model, 3.0, groups="outputs", scale_by_size=False, only=inner)


class Kill(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **others):
        if state.global_step == 9:
            die()


def train(kind, folder, *, resume=False, extra=(), epochs=4, regularizer=on_units, **options):
    callback = SparsityCallback(regularizer, EXAMPLE, **options)
    args = transformers.TrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=16, learning_rate=0.01, save_strategy="epoch",
        logging_steps=4, report_to=[], use_cpu=True, disable_tqdm=True, optim="adamw_torch", seed=3,
    )  # fmt: skip
    model = MODELS[kind]()
    trainer = transformers.Trainer(model, args, train_dataset=data(kind), callbacks=[callback, *extra])
    trainer.train(resume_from_checkpoint=resume)
    return model, callback, trainer


@pytest.mark.parametrize(
    ("kind", "options"),
    [("bert", {"hold_at": 0.4}), ("gpt2", {"hold_at": 0.75}), ("gpt2", {"hold_at": 0.75, "compact_every": 1})],
    ids=["BERT", "GPT-2", "GPT-2 compacted"],
)
def test_resumed_after_a_kill(tmp_path, kind, options):
    whole, callback, trainer = train(kind, tmp_path / "whole", **options)
    run_until_killed(lambda: train(kind, tmp_path / "killed", extra=[Kill()], **options))
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["checkpoint-4", "checkpoint-8"]
    weight = load_file(tmp_path / "killed" / "checkpoint-8" / "model.safetensors")[INNER[kind]]
    assert (weight.shape != MODELS[kind]().get_parameter(INNER[kind]).shape) is ("compact_every" in options)
    resumed, again, _ = train(kind, tmp_path / "killed", resume=True, **options)
    for (name, parameter), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(parameter, other), name

    logged = [line["gossamer/params_kept"] for line in trainer.state.log_history if "loss" in line]
    assert len(logged) == 4
    assert 0.2 < logged[-1] < 1
    full = gossamer.measure(MODELS[kind](), EXAMPLE).total
    for small in (callback.small, again.small):
        assert gossamer.measure(small, EXAMPLE).total.weights < full.weights
        torch.testing.assert_close(small(**EXAMPLE).logits, whole.eval()(**EXAMPLE).logits)
    if "compact_every" not in options:  # once for each model: it takes seconds
        gossamer.export_onnx(again.small, tmp_path / "net.onnx", EXAMPLE)


def test_a_target(tmp_path):
    target = gossamer.Target(params=0.5)
    model, callback, _ = train(
        "gpt2", tmp_path, regularizer=gossamer.l1, target=target, epochs=18, hold_at=0.8, shrink=False
    )
    assert gossamer.measure(model, EXAMPLE).params_kept == pytest.approx(0.5, abs=0.001)
    assert callback.reached.target == target


def test_a_second_training_starts_anew(tmp_path):
    _, callback, trainer = train("bert", tmp_path)
    assert callback.handle is None
    assert "gossamer" not in trainer.optimizer.state_dict()["param_groups"][0]
    trainer.train()
    assert callback.handle is None


def test_what_it_refuses(tmp_path):
    args = transformers.TrainingArguments(
        str(tmp_path), load_best_model_at_end=True, eval_strategy="epoch", save_strategy="epoch", use_cpu=True
    )
    callback = SparsityCallback(on_units, EXAMPLE, compact_every=1)
    with pytest.raises(GossamerError, match="`compact_every` does not go with `load_best_model_at_end`"):
        transformers.Trainer(bert(), args, train_dataset=data("bert"), eval_dataset=[], callbacks=[callback])


@pytest.mark.parametrize("kind", MODELS)
def test_all_matrices_are_counted_and_regularized(kind):
    model = MODELS[kind]()
    matrices = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)
    assert gossamer.measure(model, EXAMPLE).total.weights == matrices
    regularizer = gossamer.integrated_tl1(model, 1e-3)  # a warning would be an error here
    assert sum(rule.weight.parameter.numel() for rule in regularizer.rules) == matrices
