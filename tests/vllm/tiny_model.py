"""Make a tiny Llama with random weights, its own tokenizer and a chat template: no network, no torch.

Usage: ``python tiny_model.py OUT WORDS``. WORDS is a text file; each of its words becomes one token, so that a
prompt of N of them costs N tokens. The folder OUT loads like any Hugging Face model. Runs in vLLM's own
environment, on its tokenizers, safetensors and numpy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<pad>", "<s>", "</s>", "<|role|>", "<|end|>")
VOCABULARY = 4096
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 128, 2, 4, 2, 32
CONTEXT_TOKENS = 2048
TEMPLATE = (
    "{% for m in messages %}<|role|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|role|>assistant\n{% endif %}"
)


def tokenizer(words: str) -> Tokenizer:
    """Byte-level BPE, so that any text encodes; ``words`` with and without a leading space become tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([words, *words.split()], trainer)
    # Filled up to the size of the embedding, so that no generated id is without a token.
    made.add_tokens([f"<{n}>" for n in range(made.get_vocab_size(), VOCABULARY)])
    return made


def config() -> dict[str, object]:
    """The architecture as transformers writes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT_TOKENS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "pad_token_id": SPECIAL.index("<pad>"),
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index("<|end|>"),
    }


def weights() -> dict[str, np.ndarray]:
    """Random weights, the same at every call; matrices are (out, in)."""
    rng = np.random.default_rng(0)

    def matrix(out: int, into: int) -> np.ndarray:
        return rng.standard_normal((out, into), dtype=np.float32) / np.float32(into**0.5)

    ones = np.ones(HIDDEN, np.float32)
    made = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
        "model.norm.weight": ones,
        "lm_head.weight": matrix(VOCABULARY, HIDDEN),
    }
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (4 * HIDDEN, HIDDEN),
        "mlp.up_proj": (4 * HIDDEN, HIDDEN),
        "mlp.down_proj": (HIDDEN, 4 * HIDDEN),
    }
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            made[f"model.layers.{layer}.{norm}.weight"] = ones.copy()
        for name, shape in shapes.items():
            made[f"model.layers.{layer}.{name}.weight"] = matrix(*shape)
    return made


def main(out: Path, words: Path) -> None:
    """Write the model's folder."""
    out.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": config(),
        "generation_config.json": {"eos_token_id": SPECIAL.index("<|end|>")},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": "<pad>",
            "bos_token": "<s>",
            "eos_token": "<|end|>",
            "model_max_length": CONTEXT_TOKENS,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    }
    for name, document in documents.items():
        (out / name).write_text(json.dumps(document, indent=1) + "\n")
    tokenizer(words.read_text()).save(str(out / "tokenizer.json"))
    save_file(weights(), out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
