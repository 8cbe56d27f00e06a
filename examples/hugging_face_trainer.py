"""gossamer in the Trainer of Hugging Face: a callback, here with a small GPT-2 that learns to count.

python examples/hugging_face_trainer.py [EPOCHS]
"""

import sys
import tempfile

import torch
import transformers

import gossamer
from gossamer.adapters.transformers import SparsityCallback

NUMBERS = 50


def counting(count=512, length=12):
    start = torch.randint(0, NUMBERS, (count, 1), generator=torch.Generator().manual_seed(0))
    ids = (start + torch.arange(length)) % NUMBERS
    return [{"input_ids": row, "labels": row} for row in ids]


def main(epochs):
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=NUMBERS, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        loss_type="ForCausalLM",
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    data = counting()
    example = {"input_ids": data[0]["input_ids"].unsqueeze(0)}

    # The inner units of the feed-forward layers.
    inner = [f"transformer.h.{layer}.mlp.c_fc" for layer in range(config.n_layer)]
    callback = SparsityCallback(
        lambda model: gossamer.group_lasso(model, strength=2e-3, groups="outputs", only=inner),
        example,
        hold_at=0.75,
    )
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder, num_train_epochs=epochs, per_device_train_batch_size=32, learning_rate=3e-3, use_cpu=True,
            report_to=[], disable_tqdm=True, save_strategy="epoch", save_total_limit=1, logging_steps=50,
        )  # fmt: skip
        trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[callback])
        trainer.train()  # resume_from_checkpoint=True goes on where a stopped training was

    small = callback.small
    print(gossamer.measure(small, example))
    with torch.no_grad():
        left, right = small(**example).logits, model.eval()(**example).logits
    print("the same outputs:", torch.allclose(left, right, atol=1e-4))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
